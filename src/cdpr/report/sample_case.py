"""The table of one patient record, as in the paper's appendix but from our own data: a test case, its examinations with
their prices, and what each agent did on it.

A digest chooses the case, no person does. Cases that the public is not allowed to see are not shown; the table then
says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..cases import CaseRecord, iterate_records
from ..costs.price import whole_record_usd
from ..evaluation.metrics import EvaluationError
from ..seeding import derive_seed
from ..settings import Settings, seeds_of_runs
from . import layout
from .methods import IN_DOMAIN, Method, main_methods, source_of
from .results import NotMeasured, Results
from .table import Row, Sheet, Table

CREDENTIALED = "not shown: cases are credentialed"
NOT_EVALUATED = "not evaluated on this case"
NOT_OPEN = "not shown: under their licence not everyone may see the cases"
# A LaTeX table cannot break over pages: how many printed lines fit on one, and how many characters of a result in a
# line.
_LINES, _CHARACTERS = 50, 60
# What is shown of an episode, as `EvaluationRow` names it: requests, physical examinations, requests without a result,
# and cost.
_COUNTS = ("n_issued", "n_physical", "n_na", "cost_usd")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the case, its examinations, and the agents' episodes from the results in ``folder``; where
    the case must not be shown, one table with the reason. The CSV has a row per field, examination and episode, whose
    column ``part`` says which of them it is.

    Missing evaluations are named. Raises as :func:`choose_case` and :class:`Results`.
    """
    try:
        case, test_cases = choose_case(settings, folder / "cases" / f"{IN_DOMAIN}.jsonl")
    except NotMeasured as error:
        hidden = layout.table(settings, "sample_case.hidden", [{"field": "Sample case", "reason": error.reason}])
        rows = [{"part": "case", "name": "status", "text": error.reason}]
        return layout.declared_sheet(settings, "sample_case", [hidden], rows)
    exams, agents = examination_rows(case), list(agent_rows(settings, case, folder))
    diverged = [f"{row['diverged']}; it is shown with the weights before." for row in agents if row.get("diverged")]
    decoding = settings.evaluation.decodings[0]
    parts = [_case_table(settings, case, test_cases), layout.table(settings, "sample_case.examinations", exams),
             layout.table(settings, "sample_case.agents", agents, decoding, broken=diverged)]  # fmt: skip
    about, examinations, episodes = (table for _, table in parts)
    printed = [about, *_split_pages(examinations), episodes]
    rows = _csv_rows(case, test_cases, exams, agents)
    return layout.declared_sheet(settings, "sample_case", parts, rows, printed=printed)


def choose_case(settings: Settings, path: Path) -> tuple[CaseRecord, int]:
    """Choose the test case whose id, hashed with ``evaluation.seed``, gives the smallest number, whatever the order of
    the file. Returns the case, and the number of test cases.

    Raises NotMeasured where a case is credentialed or the data set is not open to everyone, ValueError where there is
    no test case, and RecordError for a broken file.
    """
    candidates = []
    for case in iterate_records(path):
        if case.credentialed or settings.data.source(IN_DOMAIN).credentialed:
            raise NotMeasured(CREDENTIALED)
        if case.split == "test":
            candidates.append(case)
    if not candidates:
        raise ValueError(f"{path}: no case of split 'test'")
    if not source_of(settings, IN_DOMAIN).open:
        raise NotMeasured(NOT_OPEN)
    seed = settings.evaluation.seed
    return min(candidates, key=lambda case: derive_seed(seed, case.note_id)), len(candidates)


def agent_rows(settings: Settings, case: CaseRecord, folder: Path) -> Iterator[Row]:
    """Yield a row per agent of the main table and training seed, about its episode on the case with the main decoding
    (:func:`_episode_fields`). Where there is no episode, ``reason`` says why. Raises EvaluationError for an evaluation
    of another case under the same id.
    """
    results = Results(settings, folder, [method for method in main_methods(settings) if method.runs])
    for method in results.methods:
        for run in method.runs:
            seed = ", ".join(map(str, seeds_of_runs([run])))
            row = {"part": "agent", "name": method.name, "seed": seed or None, "label": method.label,
                   "group": method.group, "run": run}  # fmt: skip
            try:
                yield row | _episode_fields(results, case, method, run)
            except NotMeasured as error:
                # In the table the reason covers the column of seeds, so the label has the seed.
                label = f"{method.label}, seed {seed}" if seed else method.label
                yield row | {"text": error.reason, "reason": error.reason, "label": label}


def _episode_fields(results: Results, case: CaseRecord, method: Method, run: str) -> Row:
    """Return diagnosis, numbers of requests and cost of a run's episode on a case as columns of a row. If the run's
    training diverged, ``diverged`` says at which step. Raises NotMeasured where the run was not evaluated on the case,
    and EvaluationError where the evaluated case had another diagnosis."""
    rows = results.rows(replace(method, runs=(run,)), IN_DOMAIN, results.decodings[0])
    episodes = rows[rows.note_id == case.note_id].to_dict("records")
    if not episodes:
        raise NotMeasured(NOT_EVALUATED)
    (episode,) = episodes
    if episode["gold"] != case.diagnosis_results:
        path = results.path(run, IN_DOMAIN)
        raise EvaluationError(f"{path}: case {case.note_id!r}: field 'gold': {episode['gold']!r}, but the case says "
                              f"{case.diagnosis_results!r}; evaluate it again")  # fmt: skip
    return {name: episode[name] for name in _COUNTS} | {
        "text": episode["diagnosis"], "correct": str(episode["correct"]).lower(),
        "correct_text": "yes" if episode["correct"] else "no", "diverged": "; ".join(results.divergences([run])),
        "runs": ((run, IN_DOMAIN),),
    }  # fmt: skip


def _case_table(settings: Settings, case: CaseRecord, test_cases: int) -> tuple[str, Table]:
    """Return the table of the patient's summary and diagnosis with its heading. ``test_cases`` is the number of cases
    among which it was chosen."""
    fields = [("Note", case.note_id), *_summary_fields(case), ("Gold diagnosis", case.diagnosis_results)]
    if case.final_diagnosis != case.diagnosis_results:
        fields.append(("Final diagnosis", case.final_diagnosis))
    whole_record = f"{len(case.key_pertinent_results_dict)} examinations, USD {whole_record_usd(case):.2f}"
    rows = [{"field": field, "text": text} for field, text in (*fields, ("Whole record", whole_record))]
    source, seed = source_of(settings, IN_DOMAIN).label, settings.evaluation.seed
    return layout.table(settings, "sample_case.case", rows, among=test_cases, seed=seed, source=source)


def examination_rows(case: CaseRecord) -> list[Row]:
    """Return a row per examination of the case: its name, result (``text``), price in USD and billing group."""
    return [{"part": "examination", "name": exam, "text": result, "price_usd": case.exam_cost_map.get(exam),
             "billing_group": case.exam_billing_group.get(exam, "")}
            for exam, result in case.key_pertinent_results_dict.items()]  # fmt: skip


def _summary_fields(case: CaseRecord) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line of a case summary: ``("Chief Complaint", "...")`` for ``- Chief Complaint:
    ...``. A line without a colon is named ``Case summary``."""
    for line in case.case_summary.splitlines():
        line = line.strip().removeprefix("- ")
        field, colon, text = line.partition(": ")
        if line:
            yield (field, text) if colon else ("Case summary", line)


def _csv_rows(case: CaseRecord, test_cases: int, exams: Sequence[Row], agents: Sequence[Row]) -> list[Row]:
    """Return the rows of the CSV: about the case, its examinations, and the agents. After an agent whose training
    diverged there is a row that says so."""
    texts = [("case", "status", "shown"), ("case", "note_id", case.note_id), ("case", "test_cases", str(test_cases)),
             *(("summary", field, text) for field, text in _summary_fields(case)),
             ("case", "diagnosis_results", case.diagnosis_results),
             ("case", "final_diagnosis", case.final_diagnosis)]  # fmt: skip
    rows: list[Row] = [{"part": part, "name": name, "text": text} for part, name, text in texts]
    rows.append({"part": "case", "name": "whole_record", "cost_usd": whole_record_usd(case)})
    rows += exams
    for row in agents:
        rows.append(row)
        if row.get("diverged"):
            rows.append({"part": "status", "name": row["name"], "seed": row["seed"], "text": row["diverged"]})
    return rows


def _split_pages(table: Table) -> list[Table]:
    """Split the table of examinations into tables that each fit on a page of LaTeX, with ``(1 of 2)`` in the caption.
    The notes are below the last one. A table that fits on one page is returned alone, unchanged."""
    pages: list[list[Row]] = []
    used = _LINES  # lines of the current page; at first as if a page were full, so that the first row begins one
    for row in table.rows:
        lines = 1 + len(row["text"]) // _CHARACTERS
        if used + lines > _LINES:
            pages.append([])
            used = 0
        pages[-1].append(row)
        used += lines
    tables = []
    for page, rows in enumerate(pages, 1):
        caption = f"{table.caption.removesuffix('.')} ({page} of {len(pages)})."
        label = table.label if page == 1 else f"{table.label}_{page}"
        notes = table.notes if page == len(pages) else ()
        tables.append(replace(table, rows=rows, notes=notes, caption=caption, label=label))
    return tables if len(pages) > 1 else [table]
