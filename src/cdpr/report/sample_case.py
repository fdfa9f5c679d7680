"""The paper's appendix table of one record, made from our own data: a test case, its examinations with their prices,
and what each agent did on it.

A digest picks the case, no person does. Cases that not everyone may see are not shown: the table is then a hole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..cases import CaseRecord, iterate_records
from ..costs.billing import charge
from ..evaluation.metrics import EvaluationError
from ..files import with_suffix, write_text
from ..results.methods import IN_DOMAIN, Method, main_methods, tier_mark
from ..results.results import Hole, Results
from ..results.sources import source_of
from ..results.table import Cell, Column, Row, Section, Table, escape, markdown_page, to_csv, to_latex, to_markdown
from ..seeding import derive_seed
from ..settings import Settings

CREDENTIALED = Hole("not shown: cases are credentialed")
NOT_OPEN = Hole("not shown: under their licence not everyone may see the cases")
# Printed lines of one LaTeX table, and characters of a result in one of them: a table cannot break over pages.
_LINES, _CHARACTERS = 50, 60
_PLAIN = ("part", "name", "text", "price_usd", "billing_group", "seed", "correct", "n_issued", "n_physical", "n_na",
          "cost_usd")  # fmt: skip

Show = Callable[[str], str]


@dataclass(frozen=True)
class Outcome:
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


@dataclass(frozen=True)
class Sample:
    """A case, and how many test cases it was chosen among."""

    case: CaseRecord
    among: int


def write_sample_case(
    settings: Settings, cases_path: str | Path, results_dir: str | Path, out_stem: str | Path
) -> list[Path]:
    """Write ``out_stem`` + ``.csv``, ``.md`` and ``.tex``. Missing evaluations become labelled holes.

    Raises ValueError when the file holds no test case, RecordError for a broken one, ProvenanceError or EvaluationError
    for evaluations that do not belong to these cases.
    """
    sample = choose_case(settings, cases_path)
    title = f"Sample case ({tier_mark(settings)})"
    if isinstance(sample, Hole):
        hole = Table([Column("field", "Field", align="l"), Column("text", "Case", align="l")],
                     [Row({"field": "Sample case"}, sample.reason)], f"{title}.", label="tab:sample_case")  # fmt: skip
        plain = _plain_table([{"part": "case", "name": "status", "text": sample.reason}])
        pages, printable = [("The case", hole)], [hole]
    else:
        outcomes = list(outcomes_on(settings, sample.case, results_dir))
        pages = [
            ("The case", case_table(settings, sample, _one_line)),
            ("Examinations", examination_table(settings, sample.case, _one_line)),
            ("What each agent did", outcome_table(settings, outcomes, _one_line)),
        ]
        examinations = examination_table(settings, sample.case, _typeset)
        printable = [
            _wrapped(case_table(settings, sample, _typeset), text=0.75),
            *(_wrapped(part, exam=0.22, result=0.5) for part in _parts(examinations)),
            outcome_table(settings, outcomes, _typeset),
        ]
        plain = _plain_table(_plain_rows(sample, outcomes))
    forms = {
        ".csv": to_csv(plain),
        ".md": markdown_page(title, [(heading, to_markdown(table)) for heading, table in pages]),
        ".tex": "% needs \\usepackage{booktabs}\n" + "\n".join(map(to_latex, printable)),
    }
    return [write_text(with_suffix(out_stem, suffix), text) for suffix, text in forms.items()]


def choose_case(settings: Settings, cases_path: str | Path) -> Sample | Hole:
    """The test case with the smallest digest of ``evaluation.seed`` and its id, whatever the order of the file.

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
    return Sample(best, among) if source_of(settings, IN_DOMAIN).open else NOT_OPEN


def outcomes_on(settings: Settings, case: CaseRecord, results_dir: str | Path) -> Iterator[Outcome]:
    """What every agent of the main table did on the case with the main decoding, seed by seed."""
    decoding = settings.evaluation.decodings[0]
    results = Results(settings, results_dir, [method for method in main_methods(settings) if method.runs])
    for method in results.methods:
        for run in method.runs:
            alone = replace(method, runs=(run,))
            found = results.evaluations(alone, IN_DOMAIN, decoding)
            if isinstance(found, Hole):
                yield Outcome(method, run, found)
                continue
            path = results.folder / "evaluations" / run / f"{IN_DOMAIN}.jsonl"
            diverged = results.status(alone).partition("; ")[2]
            yield Outcome(method, run, _row_of(path, case, found[0].decoding), diverged)


def case_table(settings: Settings, sample: Sample, show: Show) -> Table:
    """Who the patient is, what was found in the end, and how the case was chosen."""
    case, keys = sample.case, list(sample.case.key_pertinent_results_dict)
    rows: list[Row | Section] = [Row({"field": "Note", "text": show(case.note_id)})]
    rows += [Row({"field": show(field), "text": show(text)}) for field, text in _summary(case)]
    rows += [Row({"field": "Gold diagnosis", "text": show(case.diagnosis_results)})]
    if case.final_diagnosis != case.diagnosis_results:
        rows += [Row({"field": "Final diagnosis", "text": show(case.final_diagnosis)})]
    rows += [Row({"field": "Whole record", "text": f"{len(keys)} examinations, USD {_whole_cost(case):.2f}"})]
    notes = [
        f"Chosen among {sample.among} test cases by the smallest digest of evaluation.seed "
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


def outcome_table(settings: Settings, outcomes: Sequence[Outcome], show: Show) -> Table:
    """One row per run: diagnosis, whether it is right, examinations and cost."""
    columns = [
        Column("method", "Agent", align="l"), Column("seed", "Seed"), Column("diagnosis", "Diagnosis", align="l"),
        Column("correct", "Correct", align="c"), Column("n_issued", "Examinations"),
        Column("n_physical", "Physical items"), Column("n_na", "N_na"), Column("cost", "Cost (USD)"),
    ]  # fmt: skip
    rows: list[Row | Section] = []
    group = ""
    for outcome in outcomes:
        if outcome.method.group != group:
            group = outcome.method.group
            rows.append(Section(group))
        head = {"method": outcome.method.label, "seed": outcome.seed or None}
        if isinstance(outcome.row, Hole):
            seed = f", seed {outcome.seed}" if outcome.seed else ""
            rows.append(Row({"method": f"{outcome.method.label}{seed}"}, outcome.row.reason))
            continue
        row = outcome.row
        rows.append(Row(head | {
            "diagnosis": show(row["diagnosis"]), "correct": "yes" if row["correct"] else "no",
            "n_issued": row["n_issued"], "n_physical": row["n_physical"], "n_na": row["n_na"],
            "cost": Cell(float(row["cost_usd"])),
        }))  # fmt: skip
    text = (f"What each agent did on the sample case, {settings.evaluation.decodings[0]} decoding "
            f"({tier_mark(settings)}). One case says nothing about who is better.")  # fmt: skip
    broken = [f"{outcome.diverged}; it is shown with the weights before." for outcome in outcomes if outcome.diverged]
    notes = [*broken, "Agents that are not run stand in the main table."]
    return Table(columns, rows, text, notes, "tab:sample_case_agents")


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


def _plain_rows(sample: Sample, outcomes: Iterable[Outcome]) -> Iterator[dict[str, Any]]:
    case = sample.case
    yield {"part": "case", "name": "status", "text": "shown"}
    yield {"part": "case", "name": "note_id", "text": case.note_id}
    yield {"part": "case", "name": "test_cases", "text": str(sample.among)}
    yield from ({"part": "summary", "name": field, "text": text} for field, text in _summary(case))
    yield {"part": "case", "name": "diagnosis_results", "text": case.diagnosis_results}
    yield {"part": "case", "name": "final_diagnosis", "text": case.final_diagnosis}
    yield {"part": "case", "name": "whole_record", "cost_usd": _whole_cost(case)}
    for exam, result in case.key_pertinent_results_dict.items():
        yield {"part": "examination", "name": exam, "text": result, "price_usd": case.exam_cost_map.get(exam),
               "billing_group": case.exam_billing_group.get(exam)}  # fmt: skip
    for outcome in outcomes:
        head = {"part": "agent", "name": outcome.method.name, "seed": outcome.seed}
        if isinstance(outcome.row, Hole):
            yield head | {"text": outcome.row.reason}
            continue
        numbers = {name: outcome.row[name] for name in ("n_issued", "n_physical", "n_na", "cost_usd")}
        yield head | {"text": outcome.row["diagnosis"], "correct": str(outcome.row["correct"]).lower()} | numbers
        if outcome.diverged:
            yield head | {"part": "status", "text": outcome.diverged}


def _plain_table(rows: Iterable[dict[str, Any]]) -> Table:
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
    pieces: list[list[Row | Section]] = [[]]
    used = 0
    for row in table.rows:
        lines = 1 + len(str(row.cells["result"])) // _CHARACTERS
        if pieces[-1] and used + lines > _LINES:
            pieces.append([])
            used = 0
        pieces[-1].append(row)
        used += lines
    return [_part(table, piece, place, len(pieces)) for place, piece in enumerate(pieces, 1)]


def _part(table: Table, rows: Sequence[Row | Section], place: int, of: int) -> Table:
    caption = f"{table.caption.removesuffix('.')} ({place} of {of})." if of > 1 else table.caption
    label = table.label if place == 1 else f"{table.label}_{place}"
    return replace(table, rows=rows, caption=caption, label=label, notes=table.notes if place == of else ())
