"""The table of one patient record, as in the paper's appendix but from our own data: a test case, its examinations with
their prices, and what each agent did on it.

A digest chooses the case, no person does. Cases that the public is not allowed to see are not shown; the table then
says so.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..cases import CaseRecord, iterate_records
from ..costs.price import whole_record_usd
from ..evaluation.metrics import EvaluationError
from ..seeding import derive_seed
from ..settings import Settings, seeds_of_runs
from .methods import IN_DOMAIN, Method, main_methods, source_of
from .results import NotMeasured, Results
from .table import Row, Sheet

# What is shown of an episode, as `EvaluationRow` names it: requests, physical examinations, requests without a result,
# and cost.
_COUNTS = ("n_issued", "n_physical", "n_na", "cost_usd")


def sheet_sample_case(settings: Settings, folder: Path) -> Sheet:
    """Return the tables of the case, its examinations, and the agents' episodes from the results in ``folder``; where
    the case must not be shown, one table with the reason. The CSV has the rows of all tables; the column ``part`` says
    of which.

    Missing evaluations are named. Raises as :func:`choose_case` and :class:`Results`.
    """
    sheet = Sheet(settings, "sample_case", source=source_of(settings, IN_DOMAIN).label, seed=settings.evaluation.seed)
    try:
        case, test_cases = choose_case(settings, folder / "cases" / f"{IN_DOMAIN}.jsonl")
    except NotMeasured as error:
        row = {"part": "case", "name": "Sample case", "text": error.reason, "reason": error.reason}
        sheet.add("hidden", [row])
        sheet.rows.append(row)
        return sheet
    agents = list(agent_rows(settings, case, folder))
    tables = {"case": case_rows(case, test_cases), "examinations": examination_rows(case), "agents": agents}
    broken = [f"{row['status']}; it is shown with the weights before." for row in agents if row.get("status")]
    for name, rows in tables.items():
        sheet.add(name, rows, settings.evaluation.decodings[0], broken=broken)
        sheet.rows += rows
    return sheet


def choose_case(settings: Settings, path: Path) -> tuple[CaseRecord, int]:
    """Choose the test case whose id, hashed with ``evaluation.seed``, gives the smallest number, whatever the order of
    the file. Returns the case, and the number of test cases.

    Raises NotMeasured where a case is credentialed or the data set is not open to everyone, ValueError where there is
    no test case, and RecordError for a broken file.
    """
    candidates = []
    for case in iterate_records(path):
        if case.credentialed or settings.data.source(IN_DOMAIN).credentialed:
            raise NotMeasured("not shown: cases are credentialed")
        if case.split == "test":
            candidates.append(case)
    if not candidates:
        raise ValueError(f"{path}: no case of split 'test'")
    if not source_of(settings, IN_DOMAIN).open:
        raise NotMeasured("not shown: under their licence not everyone may see the cases")
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
    training diverged, ``status`` says at which step. Raises NotMeasured where the run was not evaluated on the case,
    and EvaluationError where the evaluated case had another diagnosis."""
    rows = results.rows(replace(method, runs=(run,)), IN_DOMAIN, results.decodings[0])
    episodes = rows[rows.note_id == case.note_id].to_dict("records")
    if not episodes:
        raise NotMeasured("not evaluated on this case")
    (episode,) = episodes
    if episode["gold"] != case.diagnosis_results:
        path = results.path(run, IN_DOMAIN)
        raise EvaluationError(f"{path}: case {case.note_id!r}: field 'gold': {episode['gold']!r}, but the case says "
                              f"{case.diagnosis_results!r}; evaluate it again")  # fmt: skip
    return {name: episode[name] for name in _COUNTS} | {
        "text": episode["diagnosis"], "correct": str(episode["correct"]).lower(),
        "correct_text": "yes" if episode["correct"] else "no", "status": "; ".join(results.divergences([run])),
        "runs": ((run, IN_DOMAIN),),
    }  # fmt: skip


def case_rows(case: CaseRecord, test_cases: int) -> list[Row]:
    """Return a row per field of the case, with its name and ``text``. ``test_cases`` is the number of cases among which
    it was chosen."""
    fields = [("Note", case.note_id), ("Chosen among", f"{test_cases} test cases"), *_summary_fields(case),
              ("Gold diagnosis", case.diagnosis_results)]  # fmt: skip
    if case.final_diagnosis != case.diagnosis_results:
        fields.append(("Final diagnosis", case.final_diagnosis))
    count, price = len(case.key_pertinent_results_dict), whole_record_usd(case)
    fields.append(("Whole record", f"{count} examinations, USD {price:.2f}"))
    return [{"part": "case", "name": name, "text": text} for name, text in fields]


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
