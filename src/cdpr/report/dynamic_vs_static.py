"""Table 3: CDPR, which asks for examinations one by one, against a diagnosis from the whole record at once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Estimate, Evaluation, Metric, Summary
from ..evaluation.significance import crossed_bootstrap, percentile_interval
from ..results import frame
from ..results.methods import IN_DOMAIN, Method, dynamic_methods, tier_mark
from ..results.paper import printed_rows
from ..results.results import Hole, Results, first_hole
from ..results.table import Cell, Column, Sheet, Table
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
        less = _reduction(results, decoding)
        parts += [(f"{decoding.capitalize()} decoding", _levels(results, change, less, decoding)),
                  (f"{title}, {decoding} decoding", _changes(results, change, title, decoding))]  # fmt: skip
        for method in results.methods:
            cells = frame.line(results, method, IN_DOMAIN, decoding) | frame.paper_cells(rows[method.name], _PRINTED)
            # A row that is a hole itself shows no change either.
            if method.name == DYNAMIC and "k" in cells:
                cells |= change.numbers(COMPARED)
                cells |= {} if isinstance(less, Hole) else frame.numbers({REDUCTION.name: less})
            lines.append(cells)
    printed = [row | {"ours": results.method(name).label} for name, row in rows.items()]
    columns = [Column(name, header, decimals=decimals) for name, (header, decimals) in _PRINTED.items()]
    parts.append(frame.paper_table(settings, columns, printed, "dynamic_vs_static"))
    names = ("tier", "cost_unit_usd", "decoding", "method", "label", "status", "seeds", "k", "n")
    metrics = [metric.name for metric in COMPARED]
    estimates = (*metrics, REDUCTION.name, *(f"change_{metric}" for metric in metrics))
    plain = frame.long_table(lines, names, estimates, [f"paper_{name}" for name in _PRINTED])
    return Sheet(f"Dynamic against static diagnosis ({tier_mark(settings)})", parts, plain)


write_dynamic_vs_static = frame.writer(sheet)


def reduction(
    static: Sequence[Evaluation], dynamic: Sequence[Evaluation], resamples: int, seed: int
) -> Estimate | Hole:
    """By which share of the static cost the dynamic cost is lower; negative where it is higher.

    A ratio of means: both are resampled together, over the same cases and the seeds of ``dynamic``.
    A hole where static diagnosis costs nothing.
    """
    before = np.mean([e.metric("aec") for e in static], axis=0)
    costs = np.stack([np.stack([before, e.metric("aec")], axis=1) for e in dynamic])
    draws = crossed_bootstrap(costs, resamples, seed, static[0].dataset)
    whole = before.mean()
    if not (whole > 0 and (draws[:, 0] > 0).all()):
        return Hole("not defined: static diagnosis costs nothing")
    by_seed = tuple(float(1 - e.metric("aec").mean() / whole) for e in dynamic)
    return Estimate(float(np.mean(by_seed)), *percentile_interval(1 - draws[:, 1] / draws[:, 0]), by_seed)


def _reduction(results: Results, decoding: str) -> Estimate | Hole:
    sides = [results.evaluations(method, IN_DOMAIN, decoding) for method in results.methods]
    if hole := first_hole(sides):
        return hole
    return reduction(*sides, results.settings.evaluation.bootstrap, results.settings.evaluation.seed)


def _levels(results: Results, change: frame.Change, less: Estimate | Hole, decoding: str) -> Table:
    """The paper's layout: static diagnosis, CDPR, and how much cheaper it is; with counts and 95% intervals. As in the
    paper only the best is marked: of two rows the second best is the worst."""
    columns = [frame.METHOD, *frame.COUNTS, *frame.interval_columns((*SHOWN, REDUCTION))]
    cell = Cell(text=less.reason) if isinstance(less, Hole) else frame.interval_cell(REDUCTION, less, change.runs)

    def more(method: Method, summary: Summary) -> frame.Cells:
        return frame.counts(method, summary) | ({REDUCTION.name: cell} if method.name == DYNAMIC else {})

    lines = frame.method_lines(results, SHOWN, decoding, more, second=False)
    notes = [
        *results.remarks(),
        "AEC reduction: 1 - AEC of CDPR / AEC of static diagnosis; both are resampled together.",
        "Static diagnosis: the policy before reinforcement learning reads the whole record in one turn; its cost is "
        "that of every examination of the record, each billing group charged once. Best in bold.",
    ]
    text = f"Dynamic against static diagnosis. {frame.in_domain_caption(results.settings, decoding)}"
    return Table(columns, lines, text, notes, f"tab:dynamic_vs_static_{decoding}")


def _changes(results: Results, change: frame.Change, title: str, decoding: str) -> Table:
    """CDPR minus static diagnosis on the same cases. Holm's family: the tests of the seeds."""
    columns = [Column("cases", "N", align="l"), *frame.interval_columns(COMPARED, "Δ "),
               *frame.mcnemar_columns("only CDPR : only static right")]  # fmt: skip
    text = f"{title}: first minus second on the same cases, {decoding} decoding ({tier_mark(results.settings)})."
    return frame.change_table([change], COMPARED, text, f"tab:dynamic_minus_static_{decoding}", columns,
                              "McNemar: exact, each seed of CDPR against the one run of static diagnosis.")  # fmt: skip
