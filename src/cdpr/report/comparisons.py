"""Parts that tables share: columns, rows of differences and their readings, captions, and the paper's printed
figures."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS, Metric
from ..evaluation.significance import holm
from ..job import Job
from ..settings import Settings
from .methods import Method, tier_mark
from .results import Results
from .table import Column, Row, Sheet, number

ACCURACY, AEN, AEC = METRICS["accuracy"], METRICS["aen"], METRICS["aec"]
N_NA, UTILITY = METRICS["n_na"], METRICS["utility"]
IN_DOMAIN_METRICS = (ACCURACY, AEN, AEC, N_NA, UTILITY)

METHOD = Column("label", "Method", align="l", linked=False)
PAIRED_INTERVALS = (
    "Intervals: bootstrap over training seeds and cases, both paired; they cover other cases and training again. Of "
    "one seed there is an interval over cases alone, and nothing is called clear."
)


def interval_columns(metrics: Sequence[Metric], prefix: str = "", short: bool = False, marked: int = 0) -> list[Column]:
    """Make a column with intervals per metric, for differences with the prefix ``Δ``; ``short``: under the main table's
    headers."""
    headers = [metric.short if short and metric.short else metric.header for metric in metrics]
    return [Column(m.name, f"{prefix}{header} [95%]", decimals=m.decimals, factor=m.factor, signed=bool(prefix),
                   interval=True, marked=marked, higher_is_better=m.higher_is_better)
            for m, header in zip(metrics, headers, strict=True)]  # fmt: skip


# Rows of differences


def changes(results: Results, pairs: Iterable[tuple[Method, Method, str]], decoding: str) -> list[Row]:
    """Compute differences of (first, second, place), with McNemar's p-values seed by seed; Holm's family are all their
    tests."""
    rows = [results.change(*pair, decoding) for pair in pairs]
    adjusted = iter(holm([test.p_value for row in rows for test in row["tests"]]))
    for row in rows:
        row["holm"] = [next(adjusted) for _ in row["tests"]]
        row["p"] = ", ".join(p_value(test.p_value) for test in row["tests"])
        row["p_holm"] = ", ".join(map(p_value, row["holm"]))
    return rows


def readings(rows: Sequence[Row], metrics: Sequence[Metric]) -> list[str]:
    """Read each difference in a sentence, which names its data set where there are several."""
    several = len({row["dataset"] for row in rows}) > 1
    return [f"{row['dataset']}: " * several + reading(row, metrics) for row in rows if "reason" not in row]


def reading(row: Row, metrics: Sequence[Metric]) -> str:
    """Say in words what the intervals of the differences show, or why they show nothing."""
    against = f"{row['label']} against {row['second']}"
    if row["void"]:
        return f"{against}: open; {row['void']}."
    verdicts: dict[str, list[str]] = {"better": [], "worse": [], "": []}
    for metric in metrics:
        verdicts[favour(row, metric)].append(metric.header.partition(" (")[0].rstrip("."))
    heads = {"better": "better on", "worse": "worse on", "": "open on"}
    parts = [f"{heads[how]} {', '.join(names)}" for how, names in verdicts.items() if names]
    settled = verdicts["better"] or verdicts["worse"]
    return f"{against}{' is' if settled else ':'} {'; '.join(parts)}."


def discordant_share(row: Row) -> float:
    """Return the share of cases that exactly one of the two got right, on average over seeds."""
    counts = [test.only_first + test.only_second for test in row["tests"]]
    return sum(counts) / len(counts) / row["cases"]


def favour(row: Row, metric: Metric) -> str:
    """Tell what a comparison shows: ``better``, ``worse``, or nothing where it is void or its interval contains
    zero."""
    low, high = row[f"{metric.name}_low"], row[f"{metric.name}_high"]
    if row["void"] or low <= 0 <= high:
        return ""
    return "better" if (low > 0) == metric.higher_is_better else "worse"


def p_value(p: float) -> str:
    """Format a p-value."""
    return "<0.001" if p < 0.001 else number(p, 3)


def prefixed(prefix: str, row: Row) -> dict[str, Any]:
    """Add a prefix to the columns of a row."""
    return {f"{prefix}{key}": value for key, value in row.items()}


# Captions and the paper's own figures


def in_domain_caption(settings: Settings, decoding: str) -> str:
    """Make the caption that a reader needs to compare figures of in-domain cases."""
    return (
        f"In-domain test cases, {decoding} decoding ({tier_mark(settings)}; cost_unit_usd = "
        f"{settings.utility.cost_unit_usd:g}). Trained rows are means over their training seeds; intervals are over "
        "seeds and cases."
    )


def paper_cells(row: Row, names: Iterable[str]) -> dict[str, str | None]:
    """Return the figures of a row of the paper as columns ``paper_*`` of the plain numbers."""
    return {f"paper_{name}": None if row[name] is None else number(row[name]) for name in names}


def writer(sheet: Callable[[Settings, Path], Sheet]) -> Callable[[Settings, Job], None]:
    """Make the stage that writes a sheet of the results; missing evaluations are named in it. Raises as the sheet."""
    return lambda settings, job: sheet(settings, job.inputs["results"]).write(job.out)
