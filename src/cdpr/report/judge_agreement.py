"""The agreement of two judges on the same diagnoses, and the figures of the main table that depend on the judge."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ..evaluation.metrics import EvaluationError
from ..evaluation.significance import agreement
from ..settings import Settings, SettingsError
from ..settings.judging import TABLES
from . import comparisons, layout
from .main_table import DECIMALS
from .methods import DATASETS, judges, main_methods
from .results import NotMeasured, Results
from .table import Row, Sheet, number

_ALL = "all"
_COLUMNS = ("dataset", "note_id", "method", "correct", "judging_by", "judging_second", "judging_second_invalid")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make, per decoding, a table of the agreement, and one of the figures that depend on the judge. Raises
    SettingsError where there is no second judge, and as :class:`Results` does."""
    if settings.judge.second is None:
        raise SettingsError("there is one judge: name another in judge.second (a model of workflow/models.yaml, or "
                            f"`{TABLES}`), which every evaluated diagnosis is then shown to as well")  # fmt: skip
    results = Results(settings, folder, main_methods(settings))
    parts, every_line = [], []
    for decoding in results.decodings:
        rows, missing = _judged(results, decoding)
        lines = list(_lines(settings, decoding, rows))
        words: dict[str, Any] = {"judges": judges(settings), "missing": missing}
        parts.append(layout.part(settings, "judge_agreement.agreement", lines, decoding, **words))
        flips, groups = _flips(results, rows), rows.groupby(["method", "dataset"]).ngroups
        parts.append(layout.part(settings, "judge_agreement.flips", flips, decoding, differ=len(flips), all=groups))
        every_line += lines
    return layout.declared_sheet(settings, "judge_agreement", parts, every_line)


write_judge_agreement = comparisons.writer(sheet)


def _judged(results: Results, decoding: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of all methods, and what is missing. New columns are ``method``; ``kind``, which judges call the
    diagnosis right, NaN where the second has no verdict on it; ``silent``, whether a judge gave no valid verdict.
    Raises EvaluationError for evaluations without a second judge."""
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
    first, second = rows.correct.astype(bool), rows.judging_second.where(seen, False).astype(bool)
    rows["kind"] = (2 * ~first + ~second).where(seen)  # 0: both, 1: the first alone, 2: the second alone, 3: neither
    rows["silent"] = (rows.judging_by == "invalid") | rows.judging_second_invalid.astype(bool)
    return rows, missing


def _lines(settings: Settings, decoding: str, rows: pd.DataFrame) -> Iterator[Row]:
    """Yield the agreement by data set and over all. Where a model judges, the diagnoses that the tables did not find
    right are apart: on others the first judge was never asked. So are those on which both gave a verdict, where a model
    gave none: the tables in its place agree with themselves."""
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
            figures = agreement(counts.to_numpy(), settings.evaluation.bootstrap, settings.evaluation.seed, dataset)
            yield figures | {
                "tier": settings.tier, "decoding": decoding, "among": which, "cases": len(counts),
                "dataset": dataset, "dataset_text": DATASETS.get(dataset, "All"),
                "kappa_text": "undefined" if figures["kappa"] is None else None,
                "flips": f"{figures['only_first']} : {figures['only_second']}",
                "invalid": int((here.judging_by == "invalid").sum()),
                "second_invalid": int(here.judging_second_invalid.sum()), "several": int(here.judging_several.sum()),
            }  # fmt: skip


def _flips(results: Results, rows: pd.DataFrame) -> list[Row]:
    """List the accuracies of the main table that the second judge would change in print."""
    lines = []
    for (name, dataset), here in rows.groupby(["method", "dataset"], sort=False):
        both, only_first, only_second = (int((here.kind == kind).sum()) for kind in range(3))
        first, second = (100 * (both + only) / len(here) for only in (only_first, only_second))
        if number(first, DECIMALS) != number(second, DECIMALS):
            method = results.method(name)
            lines.append({
                "label": method.label, "dataset": DATASETS[dataset], "cases": len(here), "first": first,
                "second": second, "change": second - first, "flips": f"{only_first} : {only_second}",
                "runs": results.behind(dataset, method),
            })  # fmt: skip
    return lines
