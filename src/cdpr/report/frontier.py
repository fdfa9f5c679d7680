"""Frontiers of accuracy against cost: each rule trained with several weights of a right diagnosis, compared at matched
cost.

Variants of one label are points of one curve. A point between two neighbours is a hospital that diagnoses some patients
by the one policy and the others by the other; one below the cheapest diagnoses some at once.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation.metrics import METRICS, estimate
from ..job import Job
from ..settings import Settings
from . import comparisons, layout, style
from .methods import DATASETS, OURS, Method, domain, frontier_methods
from .results import NotMeasured, Results
from .table import Row, Sheet

START, OUTCOME_ALONE = "immediate", "grpo"
AREA_USD = (20.0, 60.0)  # costs between which the mean accuracy of a curve is its area


class Frontiers:
    """The curves of all rules; ``curves`` are the methods of each by its label. Raises as :class:`Results`.

    Draws of a curve are an array [1 + resamples, points, 2] of accuracy (share) and cost (USD): first the means, then
    bootstrap means. Draws of the same number resample the same cases, so curves can be compared draw by draw.
    """

    def __init__(self, settings: Settings, folder: Path):
        self.settings = settings
        self.results = Results(settings, folder, frontier_methods(settings))
        self.start = self.results.method(START)
        self.curves: dict[str, list[Method]] = {}
        for method in self.results.methods:
            if method is not self.start:
                self.curves.setdefault(method.label, []).append(method)
        self.draws = cache(self._compute_draws)

    def _compute_draws(self, label: str, dataset: str, decoding: str) -> np.ndarray:
        """Return the draws of a curve, the start as its first point. Raises NotMeasured."""
        curve = self.curves[label]
        for method in curve:
            self.results.rows(method, dataset, decoding)  # raises for every missing run
        seeds = min(len(method.runs) for method in curve)
        points = [self.start, *(replace(method, runs=method.runs[:seeds]) for method in curve)]
        samples = self.results.samples(points, dataset, decoding)
        return samples[:, :, [list(METRICS).index(name) for name in ("accuracy", "aec")]]

    def label(self, variant: str) -> str:
        """Return the label of the curve to which a variant belongs."""
        return self.results.method(variant).label

    def variant_draws(self, variant: str, dataset: str, decoding: str) -> np.ndarray:
        """Return the draws [1 + resamples, 2] of one point, without its curve. Raises NotMeasured."""
        label = self.label(variant)
        names = [START, *(method.name for method in self.curves[label])]
        return self.draws(label, dataset, decoding)[:, names.index(variant)]


def accuracy_at(draws: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Interpolate the accuracy [draws] of each draw of a curve [draws, points, 2] at its own cost [draws]; beyond the
    dearest point it is that point's: money that is left over buys nothing."""
    order = np.argsort(draws[:, :, 1], axis=1, kind="stable")
    accuracy, cost = (np.take_along_axis(draws[:, :, k], order, axis=1) for k in (0, 1))
    return np.array([np.interp(c, xs, ys) for c, xs, ys in zip(costs, cost, accuracy, strict=True)])


def area(draws: np.ndarray) -> np.ndarray:
    """Return the mean accuracy over the costs :data:`AREA_USD`, [draws], of the draws of a curve [draws, points, 2]
    (accuracy and cost): the area under each, divided by its width."""
    grid = np.linspace(*AREA_USD, 41)
    along = [accuracy_at(draws, np.full(len(draws), cost)) for cost in grid]
    return np.trapezoid(along, grid, axis=0) / (grid[-1] - grid[0])


def compare_curve(frontiers: Frontiers, label: str, dataset: str, decoding: str) -> Row:
    """Return the row of a curve; every figure has its interval.

    ``matched`` is the accuracy at CDPR's cost, ``over_cdpr`` that minus CDPR's accuracy; ``half`` is the accuracy at
    half of GRPO's cost, ``over_grpo`` that minus GRPO's accuracy at its full cost; ``area`` is that of :func:`area`,
    ``over_area`` that minus the area of CDPR's curve. Where a part was not measured, the row has only a ``reason``.
    """
    try:
        curve = frontiers.draws(label, dataset, decoding)
        our_curve = frontiers.draws(frontiers.label(OURS), dataset, decoding)
        ours = frontiers.variant_draws(OURS, dataset, decoding)
        grpo = frontiers.variant_draws(OUTCOME_ALONE, dataset, decoding)
    except NotMeasured as error:
        return {"reason": error.reason}
    matched, half, curve_area = accuracy_at(curve, ours[:, 1]), accuracy_at(curve, grpo[:, 1] / 2), area(curve)
    figures = {
        "matched": matched, "over_cdpr": matched - ours[:, 0], "half": half, "over_grpo": half - grpo[:, 0],
        "area": curve_area, "over_area": curve_area - area(our_curve),
    }  # fmt: skip
    row: Row = {"seeds": min(len(method.runs) for method in frontiers.curves[label])}
    for name, draws in figures.items():
        row |= estimate(name, [draws[0]], draws[1:])
    return row


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of the rules at matched cost on every data set. The CSV also has every point of every
    curve. Raises as :class:`Results` does."""
    frontiers = Frontiers(settings, folder)
    results = frontiers.results
    words: dict[str, Any] = {"remarks": results.notes(), "cheap": AREA_USD[0], "dear": AREA_USD[1]}
    parts, csv_rows = [], []
    for decoding in results.decodings:
        rows = []
        for dataset, dataset_label in DATASETS.items():
            for label, methods in frontiers.curves.items():
                names = {"decoding": decoding, "dataset": dataset, "rule": label}
                csv_rows += [results.summary(method, dataset, decoding) | names | {"variant": method.name}
                             for method in methods]  # fmt: skip
                row = names | {"label": label, "heading": f"{dataset_label} ({domain(dataset)})"}
                row |= compare_curve(frontiers, label, dataset, decoding)
                rows.append(row)
                if "reason" not in row:
                    csv_rows.append(row)
        parts.append(layout.part(settings, "frontier.levels", rows, decoding, **words))
    return layout.declared_sheet(settings, "frontier", parts, csv_rows)


write_frontier = comparisons.writer(sheet)


def plot_frontier(settings: Settings, job: Job) -> None:
    """Plot accuracy against cost: a panel per data set (columns) and decoding (rows), a curve per
    training rule with a point per weight of a right diagnosis, each with 95% intervals over seeds and cases. Dotted
    lines mark CDPR's cost and half of GRPO's."""
    frontiers = Frontiers(settings, job.inputs["results"])
    decodings = frontiers.results.decodings
    with style.drawing(7.2, 0.9 + 2.5 * len(decodings), job.out) as figure:
        grid = figure.subplots(len(decodings), len(DATASETS), sharey=True, squeeze=False)
        for panels, decoding in zip(grid, decodings, strict=True):
            for panel, dataset in zip(panels, DATASETS, strict=True):
                _draw_curves(panel, frontiers, dataset, decoding)
                panel.set_title(f"{style.panel_title(settings, dataset)}, {decoding}")
            panels[0].set_ylabel("accuracy (%)")
        for panel in grid[-1]:
            panel.set_xlabel("average cost per case (USD)")
        style.draw_legend_above(figure, grid[0, 0], 4, columnspacing=1.5)
        bars = "bars: 95% intervals over seeds and cases; dotted: the cost of CDPR, and half that of GRPO"
        style.write_notes(figure, settings, [bars, *frontiers.results.notes()])


def _draw_curves(panel: style.Axes, frontiers: Frontiers, dataset: str, decoding: str) -> None:
    """Draw all curves that were measured on a data set, without their start; CDPR's cost and half of GRPO's dotted."""
    dearest = 1.0
    for label, methods in frontiers.curves.items():
        try:
            points = frontiers.draws(label, dataset, decoding)[:, 1:] * (100, 1)  # accuracy in %
        except NotMeasured:
            continue
        points = points[:, np.argsort(points[0, :, 1])]
        low, high = np.quantile(points[1:], [0.025, 0.975], axis=0)
        accuracy, cost = points[0].T
        below, above = (points[0] - low).T, (high - points[0]).T
        look = style.look_of(frontiers.settings, methods[0].name)
        panel.errorbar(cost, accuracy, xerr=[below[1], above[1]], yerr=[below[0], above[0]], color=look.colour,
                       marker=look.marker, linestyle=look.line, linewidth=1.2, markersize=5, elinewidth=0.7,
                       label=label)  # fmt: skip
        dearest = max(dearest, float(cost.max()))
    panel.set_xlim(0, 1.2 * dearest)  # intervals of few seeds reach beyond what can be
    for variant, share in ((OURS, 1.0), (OUTCOME_ALONE, 0.5)):
        try:
            cost = frontiers.variant_draws(variant, dataset, decoding)[0, 1]
        except NotMeasured:
            continue
        colour = style.look_of(frontiers.settings, variant).colour
        panel.axvline(share * cost, linestyle=":", linewidth=0.8, color=colour)
