"""Two judges on the same diagnoses: how far they agree, and which figures of the main table hang on the judge."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..evaluation.metrics import EvaluationError
from ..evaluation.row import EvaluationRow, Judging, read_rows
from ..evaluation.significance import agreement
from ..results import frame
from ..results.methods import DATASETS, Method, judges, main_methods, tier_mark
from ..results.results import Hole, Results
from ..results.table import Cell, Column, Sheet, Table, interval, number
from ..settings import Settings, SettingsError
from ..settings.judging import TABLES
from .main_table import DECIMALS

_ALL = "all"
_NAMES = ("verdicts", "first", "second", "agreed", "kappa", "kappa_low", "kappa_high", "only_first", "only_second",
          "invalid", "second_invalid", "several")  # fmt: skip


@dataclass(frozen=True)
class Judged:
    """The diagnoses of a method on a data set, as rows that a second judge has seen; ``rows`` in all."""

    method: Method
    dataset: str
    diagnoses: Sequence[EvaluationRow]
    rows: int


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding how far the judges agree, and the figures that hang on the judge. Raises SettingsError where there
    is no second judge, and as :class:`Results` does."""
    if settings.judge.second is None:
        raise SettingsError("there is one judge: name another in judge.second (a model of workflow/models.yaml, or "
                            f"`{TABLES}`), which every evaluated diagnosis is then shown to as well")  # fmt: skip
    results = Results(settings, folder, main_methods(settings))
    parts, every_line = [], []
    for decoding in results.decodings:
        judged, missing = _judged(results, decoding)
        lines = list(_lines(settings, decoding, judged))
        parts.append((f"{decoding.capitalize()} decoding", _agreement_table(results, decoding, lines, missing)))
        parts.append((f"Figures that hang on the judge, {decoding} decoding", _cells_table(results, decoding, judged)))
        every_line += lines
    plain = frame.long_table(every_line, ("tier", "decoding", "dataset", "among", "cases"), more=_NAMES)
    return Sheet(f"Agreement of judges ({tier_mark(settings)})", parts, plain)


write_judge_agreement = frame.writer(sheet)


def _judged(results: Results, decoding: str) -> tuple[list[Judged], list[str]]:
    """What was judged twice, and what is missing. Raises EvaluationError for rows without a second verdict."""
    judged, missing = [], []
    for method in (m for m in results.methods if m.runs):
        for dataset, label in DATASETS.items():
            there = results.evaluations(method, dataset, decoding)
            if isinstance(there, Hole):
                missing += [f"{method.label}, {label}: {there.reason}"]
                continue
            paths = [results.path(run, dataset) for run in method.runs]
            rows = [row for path in paths for row in read_rows(path) if row.decoding == there[0].decoding]
            if any(row.judging is None for row in rows):
                raise EvaluationError(f"{paths[0]}: no second judge has seen its diagnoses; evaluate it again")
            twice_judged = [row for row in rows if row.judging and row.judging.second is not None]
            judged.append(Judged(method, dataset, twice_judged, len(rows)))
    return judged, missing


def _lines(settings: Settings, decoding: str, judged: Sequence[Judged]) -> Iterator[frame.Cells]:
    """Agreement data set by data set and over all. Where a model judges, the diagnoses that the tables did not find
    right stand apart: on others the first judge was never asked. So do those on which both gave a verdict, where a
    model gave none: the tables in its place agree with themselves."""
    among: dict[str, Callable[[Judging], bool]] = {"all diagnoses": lambda judging: True}
    if settings.judge.model:
        among["not found by tables"] = lambda judging: judging.by != "table"
    if any(_silent(row.judging) for one in judged for row in one.diagnoses):
        among["both gave a verdict"] = lambda judging: not _silent(judging)
    for dataset in (*DATASETS, _ALL):
        here = [(one.dataset, row) for one in judged if dataset in (_ALL, one.dataset) for row in one.diagnoses]
        for which, belongs in among.items():
            rows = [(name, row) for name, row in here if belongs(row.judging)]
            cases = sorted({(name, row.note_id) for name, row in rows})
            if not cases:
                continue
            place, counts = {case: i for i, case in enumerate(cases)}, np.zeros((len(cases), 4))
            for name, row in rows:
                counts[place[name, row.note_id], _kind(row)] += 1
            of = agreement(counts, settings.evaluation.bootstrap, settings.evaluation.seed, dataset)
            kappa = "undefined" if of.kappa is None else interval(of.kappa, of.low, of.high, 3)
            yield asdict(of) | {
                "tier": settings.tier, "decoding": decoding, "among": which, "cases": len(cases),
                "dataset": Cell(dataset, text=DATASETS.get(dataset, "All")),
                "agreed": of.agreed, "kappa": Cell(of.kappa, text=kappa),
                "kappa_low": of.low, "kappa_high": of.high, "flips": f"{of.only_first} : {of.only_second}",
                "invalid": sum(row.judging.by == "invalid" for _, row in rows),
                "second_invalid": sum(row.judging.second_invalid for _, row in rows),
                "several": sum(row.judging.several for _, row in rows),
            }  # fmt: skip


def _silent(judging: Judging) -> bool:
    return judging.by == "invalid" or judging.second_invalid


def _kind(row: EvaluationRow) -> int:
    """The column of :func:`agreement`'s counts."""
    return 2 * (not row.correct) + (not row.judging.second)


def _agreement_table(results: Results, decoding: str, lines: Sequence[frame.Cells], missing: Sequence[str]) -> Table:
    columns = [
        frame.DATA_SET, Column("among", "Among", align="l"), Column("cases", "Cases"), Column("verdicts", "Verdicts"),
        Column("first", "Right: first judge"), Column("second", "second"),
        Column("agreed", "Agreed %", decimals=1, factor=100.0), Column("kappa", "Cohen's kappa [95%]"),
        Column("flips", "only first : only second right"), Column("invalid", "No verdict: first"),
        Column("second_invalid", "second"), Column("several", "Lists of diseases"),
    ]  # fmt: skip
    first, second = judges(results.settings)
    notes = [
        f"First judge: {first}, whose verdicts count. Second judge: {second}. Workups without a diagnosis are not "
        "judged.",
        "Intervals: bootstrap over cases, with all diagnoses of a case. Kappa is undefined where both judges say one "
        "thing only. No verdict: answers of a judge's model that were neither of the two words, in whose place the "
        "tables judged; over them the tables agree with themselves. Of a list of diseases the one named first is "
        "judged.",
        *missing,
    ]
    text = f"Two judges on the same diagnoses, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, lines, text, notes, f"tab:judge_agreement_{decoding}")


def _cells_table(results: Results, decoding: str, judged: Sequence[Judged]) -> Table:
    columns = [
        frame.METHOD, frame.DATA_SET, Column("cases", "N"), Column("first", "Acc. (%), first judge", decimals=DECIMALS),
        Column("second", "second", decimals=DECIMALS), Column("change", "Δ", decimals=DECIMALS, signed=True),
        Column("flips", "only first : only second right"),
    ]  # fmt: skip
    lines = []
    for one in judged:
        kinds = [_kind(row) for row in one.diagnoses]
        first, second = (100 * sum(kind in right for kind in kinds) / one.rows for right in ((0, 1), (0, 2)))
        if number(first, DECIMALS) != number(second, DECIMALS):
            behind = results.behind(one.dataset, one.method)
            lines.append({
                "method": one.method.label, "dataset": DATASETS[one.dataset], "cases": one.rows,
                "first": Cell(first, runs=behind), "second": Cell(second, runs=behind), "change": second - first,
                "flips": f"{kinds.count(1)} : {kinds.count(2)}",
            })  # fmt: skip
    notes = [f"{len(lines)} of {len(judged)} accuracies of the main table would be others under the second judge."]
    text = f"Accuracies under two judges, where they differ, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, lines, text, notes, f"tab:judge_flips_{decoding}")
