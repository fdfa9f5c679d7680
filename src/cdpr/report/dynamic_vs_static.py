"""Table 3: CDPR, which asks for examinations one by one, against a diagnosis from the whole record at once."""

from pathlib import Path

import numpy as np

from ..evaluation.metrics import Metric, by_run, estimate
from ..results import frame
from ..results.methods import IN_DOMAIN, dynamic_methods, tier_mark
from ..results.paper import printed_rows
from ..results.results import NotMeasured, Results
from ..results.table import Column, Row, Sheet, Table
from ..settings import Settings

STATIC, DYNAMIC = "static", "cdpr"
SHOWN = (frame.ACCURACY, frame.AEC)
COMPARED = (*SHOWN, frame.UTILITY)
REDUCTION = Metric("aec_reduction", "cost_usd", "AEC reduction (%)", factor=100.0, decimals=1)
_PRINTED = {"acc": ("Acc. (%)", 2), "aec": ("AEC (USD)", 2), "aec_reduction_percent": (REDUCTION.header, 1)}
_COUNTERPARTS = {"Static diagnosis": STATIC, "CDPR": DYNAMIC}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding: both with how much cheaper CDPR is, and the change; then the paper's Table 3. As plain numbers
    (accuracy and reduction as shares) ``change_*`` is CDPR minus static, ``paper_*`` what the paper prints. Raises as
    :class:`Results` does."""
    results = Results(settings, folder, dynamic_methods(settings))
    static, dynamic = results.methods
    title = f"{dynamic.label} against {static.label}"
    rows = {_COUNTERPARTS[row["method"]]: row for row in printed_rows("dynamic_vs_static.csv", *_PRINTED)}
    parts, lines = [], []
    for decoding in results.decodings:
        (change,) = frame.changes(results, [(dynamic, static, IN_DOMAIN)], decoding)
        before, after = (results.summary(method, IN_DOMAIN, decoding) for method in results.methods)
        after = after | reduction(results, decoding)
        parts += [(f"{decoding.capitalize()} decoding", _levels(results, [before, after], decoding)),
                  (f"{title}, {decoding} decoding", _changes(results, change, title, decoding))]  # fmt: skip
        # A row that is a hole itself shows no change either.
        lines += [before, after if "hole" in after else after | frame.prefixed("change_", change)]
    lines = [row | frame.paper_cells(rows[row["method"]], _PRINTED) for row in lines]
    printed = [row | {"ours": results.method(name).label} for name, row in rows.items()]
    columns = [Column(name, header, decimals=decimals) for name, (header, decimals) in _PRINTED.items()]
    parts.append(frame.paper_table(settings, columns, printed, "dynamic_vs_static"))
    names = ("tier", "cost_unit_usd", "decoding", "method", "label", "status", "seeds", "k", "n")
    metrics = [metric.name for metric in COMPARED]
    estimates = (*metrics, REDUCTION.name, *(f"change_{metric}" for metric in metrics))
    keys = frame.long_keys(names, estimates, [f"paper_{name}" for name in _PRINTED])
    return Sheet(f"Dynamic against static diagnosis ({tier_mark(settings)})", parts, lines, keys)


write_dynamic_vs_static = frame.writer(sheet)


def reduction(results: Results, decoding: str) -> Row:
    """By which share of the static cost the dynamic cost is lower, negative where it is higher, as columns of
    :func:`~cdpr.evaluation.metrics.estimate`.

    A ratio of means: both are resampled together, over the same cases and the seeds of the dynamic method. A text says
    why there is none.
    """
    try:
        static, dynamic = (by_run(results.rows(method, IN_DOMAIN, decoding), ["cost_usd"]).values()
                           for method in results.methods)  # fmt: skip
    except NotMeasured as error:
        return {f"{REDUCTION.name}_text": error.reason}
    before = np.mean([costs[:, 0] for costs in static], axis=0)
    table = np.stack([np.stack([before, costs[:, 0]], axis=1) for costs in dynamic])
    draws, whole = results.resampled(table, IN_DOMAIN), before.mean()
    if not (whole > 0 and (draws[:, 0] > 0).all()):
        return {f"{REDUCTION.name}_text": "not defined: static diagnosis costs nothing"}
    by_seed = [float(1 - costs[:, 0].mean() / whole) for costs in dynamic]
    return estimate(REDUCTION.name, by_seed, 1 - draws[:, 1] / draws[:, 0])


def _levels(results: Results, rows: list[Row], decoding: str) -> Table:
    """The paper's layout: static diagnosis, CDPR, and how much cheaper it is; with counts and 95% intervals. As in the
    paper only the best is marked: of two rows the second best is the worst."""
    columns = [frame.METHOD, *frame.COUNTS, *frame.interval_columns(SHOWN, marked=1),
               *frame.interval_columns([REDUCTION])]  # fmt: skip
    notes = [
        *results.remarks(),
        "AEC reduction: 1 - AEC of CDPR / AEC of static diagnosis; both are resampled together.",
        "Static diagnosis: the policy before reinforcement learning reads the whole record in one turn; its cost is "
        "that of every examination of the record, each billing group charged once. Best in bold.",
    ]
    text = f"Dynamic against static diagnosis. {frame.in_domain_caption(results.settings, decoding)}"
    return Table(columns, rows, text, notes, f"tab:dynamic_vs_static_{decoding}")


def _changes(results: Results, change: Row, title: str, decoding: str) -> Table:
    """CDPR minus static diagnosis on the same cases. Holm's family: the tests of the seeds."""
    columns = [Column("cases", "N", align="l", linked=False), *frame.interval_columns(COMPARED, "Δ "),
               *frame.mcnemar_columns("only CDPR : only static right")]  # fmt: skip
    text = f"{title}: first minus second on the same cases, {decoding} decoding ({tier_mark(results.settings)})."
    return frame.change_table([change], COMPARED, text, f"tab:dynamic_minus_static_{decoding}", columns,
                              "McNemar: exact, each seed of CDPR against the one run of static diagnosis.")  # fmt: skip
