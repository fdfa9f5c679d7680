"""Table 3: CDPR, which asks for examinations one by one, against a diagnosis from the whole record at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Comparison, Estimate, Evaluation, Metric, Summary
from ..evaluation.significance import crossed_bootstrap, percentile_interval
from ..job import Job
from ..results import frame
from ..results.methods import IN_DOMAIN, Method, dynamic_methods, tier_mark
from ..results.results import Hole, Results, results_folder
from ..results.table import Cell, Column, Row, Sheet, Table
from ..settings import Settings

STATIC, DYNAMIC = "static", "cdpr"
SHOWN = (frame.ACCURACY, frame.AEC)
COMPARED = (*SHOWN, frame.UTILITY)
REDUCTION = Metric("aec_reduction", "", "AEC reduction (%)", factor=100.0, decimals=1)
_FILE, _PRINTED = "dynamic_vs_static.csv", ("acc", "aec", "aec_reduction_percent")
_COUNTERPARTS = {"Static diagnosis": STATIC, "CDPR": DYNAMIC}


def write_dynamic_vs_static(settings: Settings, job: Job) -> None:
    """Write the table; missing evaluations become labelled holes. Raises as :class:`Results` does."""
    sheet(settings, results_folder(settings, job)).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding: both with how much cheaper CDPR is, and the change; then the paper's Table 3."""
    results = Results(settings, folder, dynamic_methods(settings))
    static, dynamic = results.methods
    title = f"{dynamic.label} against {static.label}"
    parts, changes = [], {}
    for decoding in results.decodings:
        (change,) = frame.changes(results, [(dynamic, static, IN_DOMAIN)], decoding)
        less = _reduction(results, decoding)
        changes[decoding] = change, less
        parts += [(f"{decoding.capitalize()} decoding", _levels(results, change, less, decoding)),
                  (f"{title}, {decoding} decoding", _changes(results, change, title, decoding))]  # fmt: skip
    columns = [Column("acc", "Acc. (%)"), Column("aec", "AEC (USD)"),
               Column("aec_reduction_percent", REDUCTION.header, decimals=1)]  # fmt: skip
    labels = {name: results.method(of).label for name, of in _COUNTERPARTS.items()}
    printed = frame.paper_rows(_FILE, columns, lambda row: labels[row["method"]])
    parts.append(frame.paper_table(settings, columns, printed, "dynamic_vs_static"))
    return Sheet(f"Dynamic against static diagnosis ({tier_mark(settings)})", parts, _long(results, changes))


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


def _levels(results: Results, change: frame.Change, less: Estimate | Hole, decoding: str) -> Table:
    """The paper's layout: static diagnosis, CDPR, and how much cheaper it is; with counts and 95% intervals."""
    columns = [frame.METHOD, *frame.COUNTS, *frame.interval_columns((*SHOWN, REDUCTION))]
    cell = Cell(text=less.reason) if isinstance(less, Hole) else frame.interval_cell(REDUCTION, less, change.runs)

    def more(method: Method, summary: Summary) -> frame.Cells:
        return frame.counts(method, summary) | ({REDUCTION.name: cell} if method.name == DYNAMIC else {})

    rows = frame.method_rows(results, SHOWN, decoding, (STATIC, DYNAMIC), more)
    notes = [
        "AEC reduction: 1 - AEC of CDPR / AEC of static diagnosis; both are resampled together.",
        "Static diagnosis: the policy before reinforcement learning reads the whole record in one turn; its cost is "
        "that of every examination of the record, each billing group charged once. Best in bold.",
    ]
    text = f"Dynamic against static diagnosis. {frame.in_domain_caption(results.settings, decoding)}"
    return Table(columns, [_best_alone(row) for row in rows], text, [*results.divergences(), *notes],
                 f"tab:dynamic_vs_static_{decoding}")  # fmt: skip


def _best_alone(row: Row) -> Row:
    """Of two rows the second best is the worst: only the best is marked, as in the paper."""
    cells = {key: replace(cell, mark="") if isinstance(cell, Cell) and cell.mark == "second" else cell
             for key, cell in row.cells.items()}  # fmt: skip
    return replace(row, cells=cells)


def _changes(results: Results, change: frame.Change, title: str, decoding: str) -> Table:
    """CDPR minus static diagnosis on the same cases. Holm's family: the tests of the seeds."""
    columns = [Column("cases", "N", align="l"), *frame.interval_columns(COMPARED, "Δ "),
               *frame.mcnemar_columns("only CDPR : only static right")]  # fmt: skip
    notes = [f"{frame.PAIRED_INTERVALS} McNemar: exact, each seed of CDPR against the one run of static diagnosis."]
    if isinstance(change.comparison, Comparison):
        notes.insert(0, change.reading(COMPARED))
    text = f"{title}: first minus second on the same cases, {decoding} decoding ({tier_mark(results.settings)})."
    rows = frame.change_rows([change], columns, COMPARED)
    return Table(columns, rows, text, notes, f"tab:dynamic_minus_static_{decoding}")


def _long(results: Results, changes: dict[str, tuple[frame.Change, Estimate | Hole]]) -> Table:
    """One line per decoding and method (accuracy and reduction as shares); ``change_*`` is CDPR minus static,
    ``paper_*`` what the paper prints."""
    metrics = [metric.name for metric in COMPARED]
    paper = {_COUNTERPARTS[row["method"]]: printed for row, printed in frame.paper_numbers(_FILE, _PRINTED)}
    lines = []
    for decoding, (change, less) in changes.items():
        for method in results.methods:
            cells = frame.line(results, method, IN_DOMAIN, decoding) | paper.get(method.name, {})
            # A row that is a hole itself shows no change either.
            if method.name == DYNAMIC and "k" in cells:
                cells |= change.numbers(COMPARED)
                cells |= {} if isinstance(less, Hole) else frame.numbers(REDUCTION.name, less)
            lines.append(cells)
    names = ("tier", "cost_unit_usd", "decoding", "method", "label", "status", "seeds", "k", "n")
    estimates = (*metrics, REDUCTION.name, *(f"change_{metric}" for metric in metrics))
    return frame.long_table(lines, names, estimates, [f"paper_{name}" for name in _PRINTED])


def _reduction(results: Results, decoding: str) -> Estimate | Hole:
    static, dynamic = (results.evaluations(method, IN_DOMAIN, decoding) for method in results.methods)
    for hole in (static, dynamic):
        if isinstance(hole, Hole):
            return hole
    return reduction(static, dynamic, results.settings.evaluation.bootstrap, results.settings.evaluation.seed)
