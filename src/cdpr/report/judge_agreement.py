"""Two judges on the same diagnoses: how far they agree, and which figures of the main table hang on the judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.metrics import EvaluationError
from ..evaluation.row import EvaluationRow, Judging, read_rows
from ..evaluation.significance import Agreement, agreement
from ..job import Job
from ..results import frame
from ..results.methods import DATASETS, Method, judges, main_methods, tier_mark
from ..results.results import Hole, Results, results_folder
from ..results.table import Cell, Column, Row, Sheet, Table, interval, number
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


def write_judge_agreement(settings: Settings, job: Job) -> None:
    """Write the table; missing evaluations are listed. Raises SettingsError where there is no second judge, and as
    :class:`Results` does."""
    if settings.judge.second is None:
        raise SettingsError("there is one judge: name another in judge.second (a model of workflow/models.yaml, or "
                            f"`{TABLES}`), which every evaluated diagnosis is then shown to as well")  # fmt: skip
    results = Results(settings, results_folder(settings, job), main_methods(settings))
    parts, lines = [], []
    for decoding in results.decodings:
        judged, missing = _judged(results, decoding)
        per_place = list(_places(settings, judged))
        parts.append((f"{decoding.capitalize()} decoding", _agreement_table(results, decoding, per_place, missing)))
        parts.append((f"Figures that hang on the judge, {decoding} decoding", _cells_table(results, decoding, judged)))
        lines += [_line(settings, decoding, *one) for one in per_place]
    plain = frame.long_table(lines, ("tier", "decoding", "dataset", "among", "cases"), more=_NAMES)
    Sheet(f"Agreement of judges ({tier_mark(settings)})", parts, plain).write(job.out)


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


def _places(
    settings: Settings, judged: Sequence[Judged]
) -> Iterator[tuple[str, str, list[EvaluationRow], int, Agreement]]:
    """(data set, among which diagnoses, rows, cases, agreement), data set by data set and over all. Where a model
    judges, those that the tables did not find right stand apart: on others the first judge was never asked. So do those
    on which both gave a verdict, where a model gave none: the tables in its place agree with themselves."""
    among: dict[str, Callable[[Judging], bool]] = {"all diagnoses": lambda judging: True}
    if settings.judge.model:
        among["not found by tables"] = lambda judging: judging.by != "table"
    if any(_silent(row.judging) for one in judged for row in one.diagnoses if row.judging):
        among["both gave a verdict"] = lambda judging: not _silent(judging)
    for dataset in (*DATASETS, _ALL):
        for which, belongs in among.items():
            rows = {
                (one.dataset, row.note_id, n): row
                for one in judged if dataset in (_ALL, one.dataset) for n, row in _numbered(one)
                if row.judging and belongs(row.judging)
            }  # fmt: skip
            cases = sorted({key[:2] for key in rows})
            if cases:
                place = {case: i for i, case in enumerate(cases)}
                counts = np.zeros((len(cases), 4))
                for (data, note_id, _), row in rows.items():
                    counts[place[data, note_id], _kind(row)] += 1
                plan = settings.evaluation
                alpha = agreement(counts, plan.bootstrap, plan.seed, dataset)
                yield dataset, which, list(rows.values()), len(cases), alpha


def _silent(judging: Judging) -> bool:
    return judging.by == "invalid" or judging.second_invalid


def _numbered(one: Judged) -> Iterator[tuple[str, EvaluationRow]]:
    """Rows under names of their own: several runs of several methods have one for the same case."""
    yield from ((f"{one.method.name}/{n}", row) for n, row in enumerate(one.diagnoses))


def _kind(row: EvaluationRow) -> int:
    """The column of :func:`agreement`'s counts."""
    assert row.judging is not None
    return 2 * (not row.correct) + (not row.judging.second)


def _agreement_table(results: Results, decoding: str, places: Sequence[tuple], missing: Sequence[str]) -> Table:
    columns = [
        frame.DATA_SET, Column("among", "Among", align="l"), Column("cases", "Cases"), Column("verdicts", "Verdicts"),
        Column("first", "Right: first judge"), Column("second", "second"), Column("agreed", "Agreed %", decimals=1),
        Column("kappa", "Cohen's kappa [95%]"), Column("flips", "only first : only second right"),
        Column("invalid", "No verdict: first"), Column("second_invalid", "second"),
        Column("several", "Lists of diseases"),
    ]  # fmt: skip
    rows = []
    for dataset, among, judged, cases, alpha in places:
        kappa = Cell(text="undefined") if alpha.kappa is None else Cell(
            alpha.kappa, text=interval(alpha.kappa, alpha.low, alpha.high, 3))  # fmt: skip
        rows.append(Row({
            "dataset": DATASETS.get(dataset, "All"), "among": among, "cases": cases, "verdicts": alpha.verdicts,
            "first": alpha.first, "second": alpha.second, "agreed": 100 * alpha.agreed, "kappa": kappa,
            "flips": f"{alpha.only_first} : {alpha.only_second}", **_counted(judged),
        }))  # fmt: skip
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
    return Table(columns, rows, text, notes, f"tab:judge_agreement_{decoding}")


def _cells_table(results: Results, decoding: str, judged: Sequence[Judged]) -> Table:
    """The accuracies of the main table that the second judge would print differently."""
    columns = [
        frame.METHOD, frame.DATA_SET, Column("cases", "N"), Column("first", "Acc. (%), first judge", decimals=DECIMALS),
        Column("second", "second", decimals=DECIMALS), Column("change", "Δ", decimals=DECIMALS, signed=True),
        Column("flips", "only first : only second right"),
    ]  # fmt: skip
    rows, same = [], 0
    for one in judged:
        kinds = [_kind(row) for row in one.diagnoses]
        first, second = (100 * sum(kind in right for kind in kinds) / one.rows for right in ((0, 1), (0, 2)))
        if number(first, DECIMALS) == number(second, DECIMALS):
            same += 1
            continue
        behind = results.behind(one.dataset, one.method)
        rows.append(Row({
            "method": one.method.label, "dataset": DATASETS[one.dataset], "cases": one.rows,
            "first": Cell(first, runs=behind), "second": Cell(second, runs=behind), "change": second - first,
            "flips": f"{kinds.count(1)} : {kinds.count(2)}",
        }))  # fmt: skip
    notes = [f"{len(rows)} of {len(rows) + same} accuracies of the main table would be others under the second judge."]
    text = f"Accuracies under two judges, where they differ, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, rows, text, notes, f"tab:judge_flips_{decoding}")


def _counted(rows: Sequence[EvaluationRow]) -> frame.Cells:
    judgings = [row.judging for row in rows if row.judging]
    return {
        "invalid": sum(one.by == "invalid" for one in judgings),
        "second_invalid": sum(one.second_invalid for one in judgings),
        "several": sum(one.several for one in judgings),
    }


def _line(
    settings: Settings, decoding: str, dataset: str, among: str, judged: Sequence[EvaluationRow], cases: int,
    alpha: Agreement,
) -> frame.Cells:  # fmt: skip
    values = (alpha.verdicts, alpha.first, alpha.second, alpha.agreed, alpha.kappa, alpha.low, alpha.high,
              alpha.only_first, alpha.only_second)  # fmt: skip
    head = {"tier": settings.tier, "decoding": decoding, "dataset": dataset, "among": among, "cases": cases}
    return head | dict(zip(_NAMES, values, strict=False)) | _counted(judged)
