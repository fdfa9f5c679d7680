"""Two methods on the same cases: differences with intervals, McNemar's test, and a reading in words."""

from __future__ import annotations

from ..evaluation.metrics import Comparison, Estimate
from ..evaluation.statistics import holm
from .methods import DATASETS, tier_mark
from .results import Hole, Results
from .table import Column, Row, Table, interval, number

# Metric, header, factor for printing, whether more is better, decimals.
COMPARED = (
    ("accuracy", "Acc.", 100.0, True, 2),
    ("aen", "AEN", 1.0, False, 2),
    ("aec", "AEC", 1.0, False, 2),
    ("utility", "Utility", 1.0, True, 3),
)


def title(results: Results, first: str, second: str) -> str:
    """``CDPR (ours) against GRPO``."""
    return f"{results.method(first).label} against {results.method(second).label}"


def paired_table(results: Results, first: str, second: str, decoding: str) -> Table:
    """First minus second per data set. Holm's family: the McNemar tests of this table (data sets and seeds)."""
    columns = [Column("dataset", "Data set", align="l"), Column("cases", "N")]
    columns += [Column(name, f"Δ {header} [95%]") for name, header, *_ in COMPARED]
    columns += [Column("seed_sd", "seed SD of Δ Acc."), Column("discordant", "only first : only second right"),
                Column("p", "McNemar p by seed"), Column("p_holm", "after Holm")]  # fmt: skip
    found = {d: results.compare(results.method(first), results.method(second), d, decoding) for d in DATASETS}
    measured = {d: c for d, c in found.items() if not isinstance(c, Hole)}
    adjusted = iter(holm([test.p_value for c in measured.values() for test in c.mcnemar]))
    rows, notes = [], []
    for dataset, label in DATASETS.items():
        comparison = found[dataset]
        if isinstance(comparison, Hole):
            rows.append(Row({"dataset": label}, comparison.reason))
            continue
        rows.append(Row({
            "dataset": label, "cases": comparison.cases, **_differences(comparison),
            "seed_sd": _deviation(comparison.differences["accuracy"]),
            "discordant": ", ".join(f"{test.only_first}:{test.only_second}" for test in comparison.mcnemar),
            "p": ", ".join(p_value(test.p_value) for test in comparison.mcnemar),
            "p_holm": ", ".join(p_value(next(adjusted)) for _ in comparison.mcnemar),
        }))  # fmt: skip
        notes.append(f"{label}: {reading(comparison, results.method(first).label, results.method(second).label)}")
    text = (f"{title(results, first, second)}, {decoding} decoding: first minus second on the same cases "
            f"({tier_mark(results.settings)}).")  # fmt: skip
    notes.append("Intervals: paired bootstrap over cases, seeds averaged per case; they hold for the seeds that were "
                 "trained and do not cover training again. McNemar: exact, seed by seed.")  # fmt: skip
    return Table(columns, rows, text, notes, f"tab:paired_{first}_{second}_{decoding}")


def reading(comparison: Comparison, first: str, second: str) -> str:
    """The comparison in words: what the intervals show, whichever way it falls."""
    verdicts: dict[str, list[str]] = {"better": [], "worse": [], "open": []}
    for name, header, _, higher_is_better, _ in COMPARED:
        difference = comparison.differences[name]
        if difference.low <= 0 <= difference.high:
            verdicts["open"].append(header.rstrip("."))
        else:
            verdicts["better" if (difference.low > 0) == higher_is_better else "worse"].append(header.rstrip("."))
    parts = [f"{how} on {', '.join(verdicts[how])}" for how in ("better", "worse") if verdicts[how]]
    parts += [f"no difference shown on {', '.join(verdicts['open'])}"] if verdicts["open"] else []
    return f"{first} against {second} is {'; '.join(parts)}." if verdicts["better"] or verdicts["worse"] else (
        f"{first} against {second}: {parts[0]}.")  # fmt: skip


def p_value(p: float) -> str:
    """A p-value with as many digits as it deserves."""
    return "<0.001" if p < 0.001 else number(p, 3)


def _differences(comparison: Comparison) -> dict[str, str]:
    out = {}
    for name, _, factor, _, decimals in COMPARED:
        at = comparison.differences[name]
        out[name] = interval(at.mean * factor, at.low * factor, at.high * factor, decimals, signed=True)
    return out


def _deviation(estimate: Estimate) -> float | None:
    return None if estimate.seed_sd is None else 100 * estimate.seed_sd
