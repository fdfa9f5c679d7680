"""Two methods on the same cases: differences with intervals, McNemar's test, and a reading in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..evaluation.metrics import Comparison, Estimate
from .methods import DATASETS, tier_mark
from .results import Hole, Results
from .rows import ACCURACY, AEC, AEN, UTILITY, Figure, adjusted, mcnemar_cells, printed
from .table import Column, Row, Table

COMPARED = (replace(ACCURACY, header="Acc."), AEN, replace(AEC, header="AEC"), UTILITY)


def title(results: Results, first: str, second: str) -> str:
    """``CDPR (ours) against GRPO``."""
    return f"{results.method(first).label} against {results.method(second).label}"


def paired_table(results: Results, first: str, second: str, decoding: str) -> Table:
    """First minus second per data set. Holm's family: the McNemar tests of this table (data sets and seeds)."""
    columns = [Column("dataset", "Data set", align="l"), Column("cases", "N")]
    columns += [Column(figure.metric, f"Δ {figure.header} [95%]") for figure in COMPARED]
    columns += [Column("seed_sd", "seed SD of Δ Acc."), Column("discordant", "only first : only second right"),
                Column("p", "McNemar p by seed"), Column("p_holm", "after Holm")]  # fmt: skip
    found = {d: results.compare(results.method(first), results.method(second), d, decoding) for d in DATASETS}
    after_holm = adjusted(found)
    rows, notes = [], []
    for dataset, label in DATASETS.items():
        comparison = found[dataset]
        if isinstance(comparison, Hole):
            rows.append(Row({"dataset": label}, comparison.reason))
            continue
        rows.append(Row({
            "dataset": label, "cases": comparison.cases,
            **{f.metric: printed(comparison.differences[f.metric], f, signed=True) for f in COMPARED},
            "seed_sd": _deviation(comparison.differences["accuracy"]), **mcnemar_cells(comparison, after_holm[dataset]),
        }))  # fmt: skip
        notes.append(
            f"{label}: {reading(comparison, results.method(first).label, results.method(second).label, COMPARED)}"
        )
    text = (f"{title(results, first, second)}, {decoding} decoding: first minus second on the same cases "
            f"({tier_mark(results.settings)}).")  # fmt: skip
    notes.append("Intervals: paired bootstrap over cases, seeds averaged per case; they hold for the seeds that were "
                 "trained and do not cover training again. McNemar: exact, seed by seed.")  # fmt: skip
    return Table(columns, rows, text, notes, f"tab:paired_{first}_{second}_{decoding}")


def reading(comparison: Comparison, first: str, second: str, figures: Sequence[Figure]) -> str:
    """The comparison in words: what the intervals of the figures that a table shows tell, whichever way it falls."""
    verdicts: dict[str, list[str]] = {"better": [], "worse": [], "open": []}
    for figure in figures:
        difference, name = comparison.differences[figure.metric], figure.header.partition(" (")[0].rstrip(".")
        if difference.low <= 0 <= difference.high:
            verdicts["open"].append(name)
        else:
            verdicts["better" if (difference.low > 0) == figure.higher_is_better else "worse"].append(name)
    parts = [f"{how} on {', '.join(verdicts[how])}" for how in ("better", "worse") if verdicts[how]]
    parts += [f"no difference shown on {', '.join(verdicts['open'])}"] if verdicts["open"] else []
    return f"{first} against {second} is {'; '.join(parts)}." if verdicts["better"] or verdicts["worse"] else (
        f"{first} against {second}: {parts[0]}.")  # fmt: skip


def _deviation(estimate: Estimate) -> float | None:
    return None if estimate.seed_sd is None else 100 * estimate.seed_sd
