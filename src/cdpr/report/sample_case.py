"""The paper's appendix table of one record, made from our own data: a test case, its examinations with their prices,
and what each agent did on it.

A digest picks the case, no person does. Cases that not everyone may see are not shown: the table is then a hole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ..cases import CaseRecord, iterate_records
from ..costs.price import charge
from ..evaluation.metrics import EvaluationError
from ..job import Job
from ..results.methods import IN_DOMAIN, Method, main_methods, tier_mark
from ..results.results import Hole, Results, results_folder
from ..results.sources import source_of
from ..results.table import Cell, Column, Heading, Row, Sheet, Table, escape
from ..seeding import derive_seed
from ..settings import Settings

CREDENTIALED = Hole("not shown: cases are credentialed")
NOT_OPEN = Hole("not shown: under their licence not everyone may see the cases")
# Printed lines of one LaTeX table, and characters of a result in one of them: a table cannot break over pages.
_LINES, _CHARACTERS = 50, 60
_COUNTS = ("n_issued", "n_physical", "n_na")
_PLAIN = ("part", "name", "text", "price_usd", "billing_group", "seed", "correct", *_COUNTS, "cost_usd")

Show = Callable[[str], str]


@dataclass(frozen=True)
class Workup:
    """What one run of an agent did on the case: its evaluation row, or why there is none. ``diverged`` says at which
    step its training broke off, if it did."""

    method: Method
    run: str
    row: dict[str, Any] | Hole
    diverged: str = ""

    @property
    def seed(self) -> str:
        """Training seed; empty for what is not trained with seeds."""
        return self.run.partition("-seed")[2]


def write_sample_case(settings: Settings, job: Job) -> None:
    """Write the tables; missing evaluations become labelled holes. Raises ValueError when the file holds no test case,
    RecordError for a broken one, and as :class:`Results` does."""
    _sheet(settings, results_folder(settings, job), job.inputs["cases"]).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """The sample case of the results in ``folder``."""
    return _sheet(settings, folder, folder / "cases" / f"{IN_DOMAIN}.jsonl")


def _sheet(settings: Settings, folder: Path, cases: Path) -> Sheet:
    """The case, its examinations, and what each agent did; one line where nobody may see it."""
    chosen = choose_case(settings, cases)
    title = f"Sample case ({tier_mark(settings)})"
    if isinstance(chosen, Hole):
        hole = Table([Column("field", "Field", align="l"), Column("text", "Case", align="l")],
                     [Row({"field": "Sample case"}, chosen.reason)], f"{title}.", label="tab:sample_case")  # fmt: skip
        return Sheet(title, [("The case", hole)], _plain([{"part": "case", "name": "status", "text": chosen.reason}]))
    case, among = chosen
    workups = list(workups_on(settings, case, folder))
    parts = [
        ("The case", case_table(settings, case, among, _one_line)),
        ("Examinations", examination_table(settings, case, _one_line)),
        ("What each agent did", workup_table(settings, workups, _one_line)),
    ]
    examinations = examination_table(settings, case, _typeset)
    printed = [
        _wrapped(case_table(settings, case, among, _typeset), text=0.75),
        *(_wrapped(part, exam=0.22, result=0.5) for part in _parts(examinations)),
        workup_table(settings, workups, _typeset),
    ]
    return Sheet(title, parts, _plain(_plain_rows(case, among, workups)), printed)


def choose_case(settings: Settings, cases_path: Path) -> tuple[CaseRecord, int] | Hole:
    """The test case with the smallest digest of ``evaluation.seed`` and its id, whatever the order of the file, and how
    many it was chosen among.

    A hole as soon as one case is credentialed, or where the source is not open to everyone.
    """
    seed, best, among = settings.evaluation.seed, None, 0
    for case in iterate_records(cases_path):
        if case.credentialed:
            return CREDENTIALED
        if case.split == "test":
            among += 1
            best = min(best or case, case, key=lambda c: derive_seed(seed, c.note_id))
    if best is None:
        raise ValueError(f"{cases_path}: no case of split 'test'")
    return (best, among) if source_of(settings, IN_DOMAIN).open else NOT_OPEN


def workups_on(settings: Settings, case: CaseRecord, folder: Path) -> Iterator[Workup]:
    """What every agent of the main table did on the case with the main decoding, seed by seed."""
    decoding = settings.evaluation.decodings[0]
    results = Results(settings, folder, [method for method in main_methods(settings) if method.runs])
    for method in results.methods:
        for run in method.runs:
            alone = replace(method, runs=(run,))
            evaluations = results.evaluations(alone, IN_DOMAIN, decoding)
            if isinstance(evaluations, Hole):
                yield Workup(method, run, evaluations)
                continue
            row = _row_of(results.path(run, IN_DOMAIN), case, evaluations[0].decoding)
            yield Workup(method, run, row, "; ".join(results.diverged(run)))


def case_table(settings: Settings, case: CaseRecord, among: int, show: Show) -> Table:
    """Who the patient is, what was found in the end, and how the case was chosen."""
    fields = [("Note", case.note_id), *_summary(case), ("Gold diagnosis", case.diagnosis_results)]
    if case.final_diagnosis != case.diagnosis_results:
        fields.append(("Final diagnosis", case.final_diagnosis))
    whole = f"{len(case.key_pertinent_results_dict)} examinations, USD {_whole_cost(case):.2f}"
    rows = [Row({"field": show(field), "text": show(text)}) for field, text in (*fields, ("Whole record", whole))]
    notes = [
        f"Chosen among {among} test cases by the smallest digest of evaluation.seed "
        f"({settings.evaluation.seed}) and the note's id; nobody picked it.",
        "No case of the paper: the counterpart of its sample record, from this pipeline's data.",
    ]
    columns = [Column("field", "Field", align="l"), Column("text", "Text", align="l")]
    text = f"Sample case, {source_of(settings, IN_DOMAIN).label} ({tier_mark(settings)})."
    return Table(columns, rows, text, notes, "tab:sample_case")


def examination_table(settings: Settings, case: CaseRecord, show: Show) -> Table:
    """Every examination of the record with its result, its price and the group that it is billed with."""
    columns = [Column("exam", "Examination", align="l"), Column("result", "Result", align="l"),
               Column("price", "USD"), Column("group", "Billing group", align="l")]  # fmt: skip
    rows = [
        Row({"exam": show(exam), "result": show(result), "price": case.exam_cost_map.get(exam),
             "group": show(case.exam_billing_group.get(exam, ""))})
        for exam, result in case.key_pertinent_results_dict.items()
    ]  # fmt: skip
    text = f"Examinations of the sample case ({tier_mark(settings)})."
    notes = ["A billing group is charged once per case, with its first member; the physical examination is free."]
    return Table(columns, rows, text, notes, "tab:sample_case_examinations")


def workup_table(settings: Settings, workups: Sequence[Workup], show: Show) -> Table:
    """One row per run: diagnosis, whether it is right, examinations and cost."""
    columns = [
        Column("method", "Agent", align="l"), Column("seed", "Seed"), Column("diagnosis", "Diagnosis", align="l"),
        Column("correct", "Correct", align="c"), Column("n_issued", "Examinations"),
        Column("n_physical", "Physical items"), Column("n_na", "N_na"), Column("cost", "Cost (USD)"),
    ]  # fmt: skip
    rows: list[Row | Heading] = []
    for group, members in groupby(workups, key=lambda workup: workup.method.group):
        rows += [Heading(group), *(_workup_row(workup, show) for workup in members)]
    text = (f"What each agent did on the sample case, {settings.evaluation.decodings[0]} decoding "
            f"({tier_mark(settings)}). One case says nothing about who is better.")  # fmt: skip
    broken = [f"{workup.diverged}; it is shown with the weights before." for workup in workups if workup.diverged]
    notes = [*broken, "Agents that are not run stand in the main table."]
    return Table(columns, rows, text, notes, "tab:sample_case_agents")


def _workup_row(workup: Workup, show: Show) -> Row:
    label, row = workup.method.label, workup.row
    if isinstance(row, Hole):
        return Row({"method": f"{label}, seed {workup.seed}" if workup.seed else label}, row.reason)
    shown_cells = {"diagnosis": show(row["diagnosis"]), "correct": "yes" if row["correct"] else "no",
            "cost": float(row["cost_usd"]), **{name: row[name] for name in _COUNTS}}  # fmt: skip
    cells = {name: Cell(value, runs=((workup.run, IN_DOMAIN),)) for name, value in shown_cells.items()}
    return Row({"method": label, "seed": workup.seed or None, **cells})


def _row_of(path: Path, case: CaseRecord, decoding: str) -> dict[str, Any] | Hole:
    """The evaluation row of the case; the file was checked when it was read."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = json.loads(line)
        if (row["note_id"], row["decoding"]) == (case.note_id, decoding):
            if row["gold"] != case.diagnosis_results:
                raise EvaluationError(f"{path}:{number}: field 'gold': {row['gold']!r}, but the case says "
                                      f"{case.diagnosis_results!r}; evaluate it again")  # fmt: skip
            return row
    return Hole("not evaluated on this case")


def _summary(case: CaseRecord) -> Iterator[tuple[str, str]]:
    """Lines of the summary as (field, text)."""
    for line in filter(None, (line.strip().removeprefix("- ") for line in case.case_summary.splitlines())):
        field, colon, text = line.partition(": ")
        yield (field, text) if colon else ("Case summary", line)


def _whole_cost(case: CaseRecord) -> float:
    keys = list(case.key_pertinent_results_dict)
    return sum(charge(case, keys[:place], key) for place, key in enumerate(keys))


def _plain_rows(case: CaseRecord, among: int, workups: Iterable[Workup]) -> Iterator[dict[str, Any]]:
    rows = [("case", "status", "shown"), ("case", "note_id", case.note_id), ("case", "test_cases", str(among)),
            *(("summary", field, text) for field, text in _summary(case)),
            ("case", "diagnosis_results", case.diagnosis_results),
            ("case", "final_diagnosis", case.final_diagnosis)]  # fmt: skip
    yield from ({"part": part, "name": name, "text": text} for part, name, text in rows)
    yield {"part": "case", "name": "whole_record", "cost_usd": _whole_cost(case)}
    for exam, result in case.key_pertinent_results_dict.items():
        yield {"part": "examination", "name": exam, "text": result, "price_usd": case.exam_cost_map.get(exam),
               "billing_group": case.exam_billing_group.get(exam)}  # fmt: skip
    for workup in workups:
        head = {"part": "agent", "name": workup.method.name, "seed": workup.seed}
        if isinstance(workup.row, Hole):
            yield head | {"text": workup.row.reason}
            continue
        numbers = {name: workup.row[name] for name in (*_COUNTS, "cost_usd")}
        yield head | {"text": workup.row["diagnosis"], "correct": str(workup.row["correct"]).lower()} | numbers
        if workup.diverged:
            yield head | {"part": "status", "text": workup.diverged}


def _plain(rows: Iterable[dict[str, Any]]) -> Table:
    return Table([Column(name, name) for name in _PLAIN], [Row(row) for row in rows])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _typeset(text: str) -> str:
    """Text that LaTeX can print; a character without a LaTeX form stands as its code point."""
    return "".join(character if _printable(character) else f"(U+{ord(character):04X})" for character in _one_line(text))


def _printable(character: str) -> bool:
    try:
        escape(character)
    except ValueError:
        return False
    return character >= " "


def _wrapped(table: Table, **widths: float) -> Table:
    """The table with columns of these shares of the line, in which LaTeX breaks lines."""
    columns = [
        replace(column, align=f"p{{{widths[column.key]}\\linewidth}}") if column.key in widths else column  # type: ignore[arg-type]
        for column in table.columns
    ]
    return replace(table, columns=columns)


def _parts(table: Table) -> list[Table]:
    """The table in pieces that fit on a page."""
    pieces: list[list[Row | Heading]] = [[]]
    used = 0
    for row in table.rows:
        lines = 1 + len(str(row.cells["result"])) // _CHARACTERS
        if pieces[-1] and used + lines > _LINES:
            pieces.append([])
            used = 0
        pieces[-1].append(row)
        used += lines
    of = len(pieces)
    return [
        replace(table, rows=rows, notes=table.notes if place == of else (),
                caption=f"{table.caption.removesuffix('.')} ({place} of {of})." if of > 1 else table.caption,
                label=table.label if place == 1 else f"{table.label}_{place}")
        for place, rows in enumerate(pieces, 1)
    ]  # fmt: skip
