"""What several tables share: columns of metrics, rows of differences with sentences about them, and numbers of the
paper."""

from collections.abc import Iterable, Sequence

from ..evaluation.metrics import METRICS, Metric
from ..evaluation.significance import holm
from .methods import Method
from .results import Results
from .table import Column, Row, interval, number

# Metrics of the in-domain tables. AEN and AEC: average examination number, and average examination cost, per case.
# N_na: requests without a result.
IN_DOMAIN_METRICS = tuple(METRICS[name] for name in ("accuracy", "aen", "aec", "n_na", "utility"))
ACCURACY, AEN, AEC, N_NA, UTILITY = IN_DOMAIN_METRICS


def interval_columns(metrics: Sequence[Metric], prefix: str = "", short: bool = False, marked: int = 0) -> list[Column]:
    """Return a column per metric that shows its mean with its 95% interval.

    With a ``prefix`` (``Δ``), which is put before the headers, the columns show differences, with their signs.
    ``short`` takes the short headers of the main table. ``marked`` is how many of the best values are marked.
    """
    columns = []
    for metric in metrics:
        header = metric.short if short and metric.short else metric.header
        columns.append(Column(metric.name, f"{prefix}{header} [95%]", decimals=metric.decimals, factor=metric.factor,
                              signed=bool(prefix), interval=True, marked=marked,
                              higher_is_better=metric.higher_is_better))  # fmt: skip
    return columns


# Differences between two methods


def compare_pairs(results: Results, pairs: Iterable[tuple[Method, Method, str]], decoding: str) -> list[Row]:
    """Return a row of differences (:meth:`Results.change`) for each of the ``pairs`` (first method, second method, data
    set).

    Added are the p-values of the row's McNemar tests, one per training seed: ``p`` as text; after Holm's correction
    over the tests of all rows, ``holm`` as numbers and ``p_holm`` as text. Every metric has a ``..._mark``
    (:func:`outcome_of`), by which the HTML page colours it.
    """
    rows = [results.change(first, second, dataset, decoding) for first, second, dataset in pairs]
    # The adjusted p-values of all tests, row by row.
    adjusted = iter(holm([test.p_value for row in rows for test in row["tests"]]))
    for row in rows:
        row["holm"] = [next(adjusted) for _ in row["tests"]]
        row["p"] = ", ".join(format_p(test.p_value) for test in row["tests"])
        row["p_holm"] = ", ".join(format_p(p) for p in row["holm"])
        if "reason" not in row:
            row |= {f"{metric.name}_mark": outcome_of(row, metric) for metric in METRICS.values()}
    return rows


def describe_changes(changes: Sequence[Row], metrics: Sequence[Metric]) -> list[str]:
    """Return a sentence about each measured difference (:func:`describe_change`). Where the rows are of several data
    sets, each sentence begins with its data set."""
    has_several = len({change["dataset"] for change in changes}) > 1
    return [(f"{change['dataset']}: " if has_several else "") + describe_change(change, metrics)
            for change in changes if "reason" not in change]  # fmt: skip


def describe_change(change: Row, metrics: Sequence[Metric]) -> str:
    """Describe a row of differences (:meth:`Results.change`) in a sentence: on which metrics the first method is
    clearly better, clearly worse, or neither (open). For example ``CDPR against GRPO is better on AEC; open on Acc.``
    Where the comparison supports no conclusion (``void``), the sentence says why."""
    against = f"{change['label']} against {change['second']}"
    if change["void"]:
        return f"{against}: open; {change['void']}."
    metrics_by_outcome: dict[str, list[str]] = {"better": [], "worse": [], "open": []}
    for metric in metrics:
        name = metric.header.partition(" (")[0].rstrip(".")  # "Acc." of "Acc. (%)", without the full stop
        metrics_by_outcome[outcome_of(change, metric) or "open"].append(name)
    parts = [f"{outcome} on {', '.join(names)}" for outcome, names in metrics_by_outcome.items() if names]
    # "CDPR against GRPO is better on AEC", but "CDPR against GRPO: open on AEC".
    link = " is" if metrics_by_outcome["better"] or metrics_by_outcome["worse"] else ":"
    return f"{against}{link} {'; '.join(parts)}."


def outcome_of(change: Row, metric: Metric) -> str:
    """Return ``better`` or ``worse``, for the first of the two methods in a row of differences, where the interval of
    the metric excludes zero; empty where it does not, or where the comparison supports no conclusion (``void``)."""
    low, high = change[f"{metric.name}_low"], change[f"{metric.name}_high"]
    if change["void"] or low <= 0 <= high:
        return ""
    is_higher = low > 0
    return "better" if is_higher == metric.higher_is_better else "worse"


def difference_text(change: Row, metric: Metric) -> str:
    """Return the metric's difference in a row of differences as text, with its interval: ``+30.00 [21.00, 39.00]``."""
    mean, low, high = (metric.factor * change[f"{metric.name}{end}"] for end in ("", "_low", "_high"))
    return interval(mean, low, high, metric.decimals, signed=True)


def format_p(p: float) -> str:
    """Format a p-value with three decimals: ``0.125``; below 0.001 it is ``<0.001``."""
    return "<0.001" if p < 0.001 else number(p, 3)


def add_prefix(prefix: str, row: Row) -> Row:
    """Return a copy of the row with a prefix before all its keys."""
    return {f"{prefix}{key}": value for key, value in row.items()}


def paper_cells(row: Row, names: Iterable[str]) -> dict[str, str | None]:
    """Return the columns ``names`` of a row of the paper as columns ``paper_<name>`` of a CSV, formatted with two
    decimals; None where the paper prints nothing."""
    return {f"paper_{name}": None if row[name] is None else number(row[name]) for name in names}
