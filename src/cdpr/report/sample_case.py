"""The paper's appendix table of one record, made from our own data: a test case, its examinations with their prices,
and the episodes of the agents on it.

A digest picks the case, no person does. Cases that not everyone may see are not shown: the table then says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..cases import CaseRecord, iterate_records
from ..costs.price import whole_record_usd
from ..evaluation.metrics import EvaluationError
from ..job import Job
from ..seeding import derive_seed
from ..settings import Settings, seeds_of_runs
from . import layout
from .methods import IN_DOMAIN, main_methods
from .results import NotMeasured, Results
from .sources import source_of
from .table import Row, Sheet, Table

CREDENTIALED = "not shown: cases are credentialed"
NOT_EVALUATED = "not evaluated on this case"
NOT_OPEN = "not shown: under their licence not everyone may see the cases"
# Printed lines of one LaTeX table, and characters of a result in one of them: a table cannot break over pages.
_LINES, _CHARACTERS = 50, 60
_COUNTS = ("n_issued", "n_physical", "n_na")


def write_sample_case(settings: Settings, job: Job) -> None:
    """Write the tables; missing evaluations are named in them. Raises ValueError when the file holds no test case,
    RecordError for a broken one, and as :class:`Results` does."""
    _sheet(settings, job.inputs["results"], job.inputs["cases"]).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make the tables of the sample case of the results in ``folder``."""
    return _sheet(settings, folder, folder / "cases" / f"{IN_DOMAIN}.jsonl")


def _sheet(settings: Settings, folder: Path, cases: Path) -> Sheet:
    """Make the tables of the case, its examinations, and the agents' episodes; one line where the case may not be
    shown."""
    try:
        case, among = choose_case(settings, cases)
    except NotMeasured as error:
        hidden = layout.part(settings, "sample_case.hidden", [{"field": "Sample case", "reason": error.reason}])
        rows = [{"part": "case", "name": "status", "text": error.reason}]
        return layout.declared_sheet(settings, "sample_case", [hidden], rows)
    workups = list(workups_on(settings, case, folder))
    parts = [_case_table(settings, case, among), _examination_table(settings, case), _workup_table(settings, workups)]
    about, examinations, agents = (table for _, table in parts)
    rows = list(_plain_lines(case, among, workups))
    return layout.declared_sheet(settings, "sample_case", parts, rows, printed=[about, *_pages(examinations), agents])


def choose_case(settings: Settings, cases_path: Path) -> tuple[CaseRecord, int]:
    """Choose the test case with the smallest digest of ``evaluation.seed`` and its id, whatever the order of the file,
    and count the test cases.

    Raises NotMeasured as soon as one case is credentialed, or where the source is not open to everyone, and ValueError
    without a test case.
    """
    seed, best, among = settings.evaluation.seed, None, 0
    for case in iterate_records(cases_path):
        if case.credentialed:
            raise NotMeasured(CREDENTIALED)
        if case.split == "test":
            among += 1
            best = min(best or case, case, key=lambda c: derive_seed(seed, c.note_id))
    if best is None:
        raise ValueError(f"{cases_path}: no case of split 'test'")
    if not source_of(settings, IN_DOMAIN).open:
        raise NotMeasured(NOT_OPEN)
    return best, among


def workups_on(settings: Settings, case: CaseRecord, folder: Path) -> Iterator[Row]:
    """Yield a line per agent of the main table and seed on its episode with the main decoding; ``reason`` says why
    there is nothing, ``diverged`` at which step its training stopped. Raises EvaluationError for an evaluation of
    another case under its name."""
    decoding = settings.evaluation.decodings[0]
    results = Results(settings, folder, [method for method in main_methods(settings) if method.runs])
    every_run = [(method, run) for method in results.methods for run in method.runs]
    for method, run in every_run:
        seed = ", ".join(map(str, seeds_of_runs([run])))
        line = {"part": "agent", "name": method.name, "seed": seed, "label": method.label, "group": method.group,
                "run": run}  # fmt: skip
        try:
            rows = results.rows(replace(method, runs=(run,)), IN_DOMAIN, decoding)
        except NotMeasured as error:
            yield line | {"text": error.reason, "reason": error.reason}
            continue
        if not (here := rows[rows.note_id == case.note_id].to_dict("records")):
            yield line | {"text": NOT_EVALUATED, "reason": NOT_EVALUATED}
            continue
        (row,) = here
        if row["gold"] != case.diagnosis_results:
            path = results.path(run, IN_DOMAIN)
            raise EvaluationError(f"{path}: case {case.note_id!r}: field 'gold': {row['gold']!r}, but the case says "
                                  f"{case.diagnosis_results!r}; evaluate it again")  # fmt: skip
        yield line | {name: row[name] for name in (*_COUNTS, "cost_usd")} | {
            "text": row["diagnosis"], "correct": str(row["correct"]).lower(),
            "correct_text": "yes" if row["correct"] else "no", "diverged": "; ".join(results.divergences([run])),
            "runs": ((run, IN_DOMAIN),),
        }  # fmt: skip


def _case_table(settings: Settings, case: CaseRecord, among: int) -> tuple[str, Table]:
    """Make the table of the patient, the diagnosis, and how the case was chosen."""
    fields = [("Note", case.note_id), *_summary(case), ("Gold diagnosis", case.diagnosis_results)]
    if case.final_diagnosis != case.diagnosis_results:
        fields.append(("Final diagnosis", case.final_diagnosis))
    whole = f"{len(case.key_pertinent_results_dict)} examinations, USD {whole_record_usd(case):.2f}"
    lines = [{"field": field, "text": text} for field, text in (*fields, ("Whole record", whole))]
    source, seed = source_of(settings, IN_DOMAIN).label, settings.evaluation.seed
    return layout.part(settings, "sample_case.case", lines, among=among, seed=seed, source=source)


def _examination_table(settings: Settings, case: CaseRecord) -> tuple[str, Table]:
    """Make the table of every examination of the record with its result, its price and its billing group."""
    lines = [{"exam": exam, "result": result, "price": case.exam_cost_map.get(exam),
              "group": case.exam_billing_group.get(exam, "")}
             for exam, result in case.key_pertinent_results_dict.items()]  # fmt: skip
    return layout.part(settings, "sample_case.examinations", lines)


def _workup_table(settings: Settings, workups: Sequence[Row]) -> tuple[str, Table]:
    lines = []
    for line in workups:
        seed = line["seed"]
        cells = {"label": f"{line['label']}, seed {seed}"} if "reason" in line and seed else {"seed": seed or None}
        lines.append(line | cells)
    broken = [f"{line['diverged']}; it is shown with the weights before." for line in workups if line.get("diverged")]
    return layout.part(settings, "sample_case.agents", lines, settings.evaluation.decodings[0], broken=broken)


def _summary(case: CaseRecord) -> Iterator[tuple[str, str]]:
    for line in filter(None, (line.strip().removeprefix("- ") for line in case.case_summary.splitlines())):
        field, colon, text = line.partition(": ")
        yield (field, text) if colon else ("Case summary", line)


def _plain_lines(case: CaseRecord, among: int, workups: Iterable[Row]) -> Iterator[Row]:
    rows = [("case", "status", "shown"), ("case", "note_id", case.note_id), ("case", "test_cases", str(among)),
            *(("summary", field, text) for field, text in _summary(case)),
            ("case", "diagnosis_results", case.diagnosis_results),
            ("case", "final_diagnosis", case.final_diagnosis)]  # fmt: skip
    yield from ({"part": part, "name": name, "text": text} for part, name, text in rows)
    yield {"part": "case", "name": "whole_record", "cost_usd": whole_record_usd(case)}
    for exam, result in case.key_pertinent_results_dict.items():
        yield {"part": "examination", "name": exam, "text": result, "price_usd": case.exam_cost_map.get(exam),
               "billing_group": case.exam_billing_group.get(exam)}  # fmt: skip
    for line in workups:
        yield line
        if line.get("diverged"):
            yield {"part": "status", "name": line["name"], "seed": line["seed"], "text": line["diverged"]}


def _pages(table: Table) -> list[Table]:
    """Cut a table into pieces that fit on a page."""
    pages: list[list[Row]] = []
    used = _LINES
    for row in table.rows:
        lines = 1 + len(row["result"]) // _CHARACTERS
        if used + lines > _LINES:
            pages.append([])
            used = 0
        pages[-1].append(row)
        used += lines
    count, caption = len(pages), table.caption.removesuffix(".")
    return [table] if count < 2 else [
        replace(table, rows=rows, notes=table.notes if page == count else (), caption=f"{caption} ({page} of {count}).",
                label=table.label if page == 1 else f"{table.label}_{page}")
        for page, rows in enumerate(pages, 1)
    ]  # fmt: skip
