"""Two judges on the same diagnoses: how far they agree, and which figures of the main table hang on the judge."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from ..evaluation.metrics import EvaluationError
from ..evaluation.significance import agreement
from ..results import frame
from ..results.methods import DATASETS, judges, main_methods, tier_mark
from ..results.results import NotMeasured, Results
from ..results.table import Column, Row, Sheet, Table, number
from ..settings import Settings, SettingsError
from ..settings.judging import TABLES
from .main_table import DECIMALS

_ALL = "all"
_COLUMNS = ("dataset", "note_id", "method", "correct", "judging_by", "judging_second", "judging_second_invalid")
_NAMES = ("verdicts", "first", "second", "agreed", "kappa", "kappa_low", "kappa_high", "only_first", "only_second",
          "invalid", "second_invalid", "several")  # fmt: skip


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding how far the judges agree, and the figures that hang on the judge. Raises SettingsError where there
    is no second judge, and as :class:`Results` does."""
    if settings.judge.second is None:
        raise SettingsError("there is one judge: name another in judge.second (a model of workflow/models.yaml, or "
                            f"`{TABLES}`), which every evaluated diagnosis is then shown to as well")  # fmt: skip
    results = Results(settings, folder, main_methods(settings))
    parts, every_line = [], []
    for decoding in results.decodings:
        rows, missing = _judged(results, decoding)
        lines = list(_lines(settings, decoding, rows))
        parts.append((f"{decoding.capitalize()} decoding", _agreement_table(results, decoding, lines, missing)))
        parts.append((f"Figures that hang on the judge, {decoding} decoding", _cells_table(results, decoding, rows)))
        every_line += lines
    keys = ["tier", "decoding", "dataset", "among", "cases", *_NAMES]
    return Sheet(f"Agreement of judges ({tier_mark(settings)})", parts, every_line, keys)


write_judge_agreement = frame.writer(sheet)


def _judged(results: Results, decoding: str) -> tuple[pd.DataFrame, list[str]]:
    """The rows of all methods with their ``method``, and what is missing. ``kind`` of a diagnosis is the column of
    :func:`agreement`'s counts, and missing where no second judge has seen it. Raises EvaluationError for rows without a
    second verdict."""
    judged, missing = [], []
    for method in (m for m in results.methods if m.runs):
        for dataset, label in DATASETS.items():
            try:
                rows = results.rows(method, dataset, decoding)
            except NotMeasured as error:
                missing += [f"{method.label}, {label}: {error.reason}"]
                continue
            if "judging_second" not in rows or rows.judging_several.isna().any():
                path = results.path(method.runs[0], dataset)
                raise EvaluationError(f"{path}: no second judge has seen its diagnoses; evaluate it again")
            judged.append(rows.assign(method=method.name))
    rows = pd.concat(judged, ignore_index=True) if judged else pd.DataFrame(columns=_COLUMNS)
    seen = rows.judging_second.notna()
    rows["kind"] = (2 * ~rows.correct.astype(bool) + ~rows.judging_second.where(seen, False).astype(bool)).where(seen)
    rows["silent"] = (rows.judging_by == "invalid") | rows.judging_second_invalid.astype(bool)
    return rows, missing


def _lines(settings: Settings, decoding: str, rows: pd.DataFrame) -> Iterator[Row]:
    """Agreement data set by data set and over all. Where a model judges, the diagnoses that the tables did not find
    right are apart: on others the first judge was never asked. So are those on which both gave a verdict, where a
    model gave none: the tables in its place agree with themselves."""
    rows = rows[rows.kind.notna()]
    among = {"all diagnoses": rows}
    if settings.judge.model:
        among["not found by tables"] = rows[rows.judging_by != "table"]
    if rows.silent.any():
        among["both gave a verdict"] = rows[~rows.silent]
    for dataset in (*DATASETS, _ALL):
        for which, of_all in among.items():
            here = of_all if dataset == _ALL else of_all[of_all.dataset == dataset]
            if here.empty:
                continue
            counts = pd.crosstab([here.dataset, here.note_id], here.kind).reindex(columns=range(4), fill_value=0)
            of = agreement(counts.to_numpy(), settings.evaluation.bootstrap, settings.evaluation.seed, dataset)
            yield asdict(of) | {
                "tier": settings.tier, "decoding": decoding, "among": which, "cases": len(counts),
                "dataset": dataset, "dataset_text": DATASETS.get(dataset, "All"), "agreed": of.agreed,
                "kappa_text": "undefined" if of.kappa is None else None, "kappa_low": of.low, "kappa_high": of.high,
                "flips": f"{of.only_first} : {of.only_second}", "invalid": int((here.judging_by == "invalid").sum()),
                "second_invalid": int(here.judging_second_invalid.sum()), "several": int(here.judging_several.sum()),
            }  # fmt: skip


def _agreement_table(results: Results, decoding: str, lines: Sequence[Row], missing: Sequence[str]) -> Table:
    columns = [
        frame.DATA_SET, Column("among", "Among", align="l"), Column("cases", "Cases"), Column("verdicts", "Verdicts"),
        Column("first", "Right: first judge"), Column("second", "second"),
        Column("agreed", "Agreed %", decimals=1, factor=100.0),
        Column("kappa", "Cohen's kappa [95%]", decimals=3, interval=True),
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


def _cells_table(results: Results, decoding: str, rows: pd.DataFrame) -> Table:
    columns = [
        frame.METHOD, frame.DATA_SET, frame.CASES, Column("first", "Acc. (%), first judge", decimals=DECIMALS),
        Column("second", "second", decimals=DECIMALS),
        Column("change", "Δ", decimals=DECIMALS, signed=True, linked=False),
        Column("flips", "only first : only second right", linked=False),
    ]  # fmt: skip
    lines, groups = [], rows.groupby(["method", "dataset"], sort=False)
    for (name, dataset), here in groups:
        both, only_first, only_second = (int((here.kind == kind).sum()) for kind in range(3))
        first, second = (100 * (both + only) / len(here) for only in (only_first, only_second))
        if number(first, DECIMALS) != number(second, DECIMALS):
            method = results.method(name)
            lines.append({
                "label": method.label, "dataset": DATASETS[dataset], "cases": len(here), "first": first,
                "second": second, "change": second - first, "flips": f"{only_first} : {only_second}",
                "runs": results.behind(dataset, method),
            })  # fmt: skip
    notes = [f"{len(lines)} of {len(groups)} accuracies of the main table would be others under the second judge."]
    text = f"Accuracies under two judges, where they differ, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, lines, text, notes, f"tab:judge_flips_{decoding}")
