"""Frontiers of accuracy against cost: each rule trained with several weights of a right diagnosis, compared at matched
cost.

Variants of one label are points of one curve. A point between two neighbours is a hospital that
diagnoses some patients by the one policy and the others by the other; one below the cheapest diagnoses some at once.
"""

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..evaluation.metrics import by_run, estimate
from ..job import Job
from ..settings import Settings
from . import comparisons, layout, style
from .methods import DATASETS, OURS, Method, domain, frontier_methods
from .results import NotMeasured, Results
from .table import Row, Sheet

START, OUTCOME_ALONE = "immediate", "grpo"
AREA_USD = (20.0, 60.0)  # where the area below a frontier is taken, as a mean
_POINTS = 100.0
_COMPARED = ("matched", "over_cdpr", "half", "over_grpo", "area", "over_area")
Places = tuple[str, str]
"""Data set and decoding."""


class Frontiers:
    """The curves of all rules. Raises as :class:`Results`."""

    def __init__(self, settings: Settings, folder: Path):
        self.settings = settings
        methods = frontier_methods(settings)
        self.results = Results(settings, folder, methods)
        self.start = self.results.method(START)
        self.curves: dict[str, list[Method]] = {}
        for method in methods:
            if method is not self.start:
                self.curves.setdefault(method.label, []).append(method)
        self.draws = cache(self._draws)

    def label(self, name: str) -> str:
        """Return the curve to which a variant belongs."""
        return self.results.method(name).label

    def _draws(self, label: str, at: Places) -> np.ndarray:
        """Compute mean accuracy and cost (USD) of each point of a curve, the start first: [1 + resamples, points, 2].
        The first row is that of the data; rows of the same number resample the same cases. Raises NotMeasured."""
        points = [self.start, *self.curves[label]]
        values = by_run(pd.concat([self.results.rows(m, *at) for m in points]), ["correct", "cost_usd"])
        seeds = min(len(method.runs) for method in points[1:])
        # Nothing is trained in the start: its one run is there for every seed.
        runs = [[values[run] for run in (method.runs * seeds)[:seeds]] for method in points]
        table = np.concatenate([np.stack(of_point) for of_point in runs], axis=2)
        draws = self.results.resampled(table, at[0])
        return np.concatenate([table.mean(axis=(0, 1))[None], draws]).reshape(len(draws) + 1, -1, 2)

    def own(self, name: str, at: Places) -> np.ndarray:
        """Return accuracy and cost of one variant [1 + resamples, 2]. Raises NotMeasured."""
        label = self.label(name)
        position = 1 + [method.name for method in self.curves[label]].index(name)
        return self.draws(label, at)[:, position]


def accuracy_at(draws: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Interpolate the accuracy of each draw of a curve [draws, points, 2] at its own cost [draws]; beyond the dearest
    point it is that point's: money that is left over buys nothing."""
    order = np.argsort(draws[:, :, 1], axis=1, kind="stable")
    accuracy, cost = (np.take_along_axis(draws[:, :, k], order, axis=1) for k in (0, 1))
    return np.array([np.interp(c, xs, ys) for c, xs, ys in zip(costs, cost, accuracy, strict=True)])


def area(draws: np.ndarray) -> np.ndarray:
    """Average the accuracy of each draw between the costs :data:`AREA_USD`."""
    grid = np.linspace(*AREA_USD, 41)
    along = [accuracy_at(draws, np.full(len(draws), cost)) for cost in grid]
    return np.trapezoid(along, grid, axis=0) / (grid[-1] - grid[0])


def compare(frontiers: Frontiers, label: str, at: Places) -> Row:
    """Compute, for a curve, accuracy at the cost of CDPR and its difference to CDPR, accuracy at half the cost of GRPO
    and its difference to GRPO, the area and its difference to that of CDPR's curve; or the ``reason`` why not."""
    try:
        curve, ours, outcome = frontiers.draws(label, at), frontiers.own(OURS, at), frontiers.own(OUTCOME_ALONE, at)
        base = frontiers.draws(frontiers.label(OURS), at)
    except NotMeasured as error:
        return {"reason": error.reason}
    matched, half, below = accuracy_at(curve, ours[:, 1]), accuracy_at(curve, outcome[:, 1] / 2), area(curve)
    figures = (matched, matched - ours[:, 0], half, half - outcome[:, 0], below, below - area(base))
    row: Row = {"seeds": min(len(method.runs) for method in frontiers.curves[label])}
    for name, draws in zip(_COMPARED, figures, strict=True):
        row |= estimate(name, [draws[0]], draws[1:])
    return row


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make a table per decoding of the rules at matched cost on every data set; as plain numbers also every point of
    every curve."""
    frontiers = Frontiers(settings, folder)
    parts, lines = [], []
    for decoding in frontiers.results.decodings:
        rows = []
        for dataset in DATASETS:
            for label, methods in frontiers.curves.items():
                head = {"decoding": decoding, "dataset": dataset, "rule": label}
                lines += [frontiers.results.summary(m, dataset, decoding) | head | {"variant": m.name} for m in methods]
                heading = f"{DATASETS[dataset]} ({domain(dataset)})"
                rows.append(
                    head | {"label": label, "heading": heading} | compare(frontiers, label, (dataset, decoding))
                )
                lines += [rows[-1]] if "reason" not in rows[-1] else []
        words: dict[str, Any] = {"remarks": frontiers.results.remarks(), "cheap": AREA_USD[0], "dear": AREA_USD[1]}
        parts.append(layout.part(settings, "frontier.levels", rows, decoding, **words))
    return layout.declared_sheet(settings, "frontier", parts, lines)


write_frontier = comparisons.writer(sheet)


def plot_frontier(settings: Settings, job: Job) -> None:
    """Plot accuracy against cost: a panel per data set (columns) and decoding (rows); each rule a curve with 95%
    intervals over seeds and cases. Marked are CDPR's own cost and half of GRPO's."""
    frontiers = Frontiers(settings, job.inputs["results"])
    decodings = frontiers.results.decodings
    with style.drawing(7.2, 0.9 + 2.5 * len(decodings), job.out) as figure:
        grid = figure.subplots(len(decodings), len(DATASETS), sharey=True, squeeze=False)
        for row, decoding in zip(grid, decodings, strict=True):
            for panel, dataset in zip(row, DATASETS, strict=True):
                _draw(panel, frontiers, (dataset, decoding))
                panel.set_title(f"{style.cases_of(settings, dataset)}, {decoding}")
            row[0].set_ylabel("accuracy (%)")
        for panel in grid[-1]:
            panel.set_xlabel("average cost per case (USD)")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=7, columnspacing=1.5)
        style.foot(figure, settings, ["bars: 95% intervals over seeds and cases; dotted: the cost of CDPR, and half "
                                      "that of GRPO", *style.folded(frontiers.results.remarks())])  # fmt: skip


def _draw(panel: style.Axes, frontiers: Frontiers, at: Places) -> None:
    dearest: float = 1.0
    for label, methods in frontiers.curves.items():
        try:
            draws = frontiers.draws(label, at)
        except NotMeasured:
            continue
        look = style.look_of(frontiers.settings, methods[0].name)
        mean, (low, high) = draws[0, 1:], np.quantile(draws[1:, 1:], [0.025, 0.975], axis=0)
        order = np.argsort(mean[:, 1])
        x, y = mean[order, 1], _POINTS * mean[order, 0]
        panel.errorbar(
            x, y, xerr=[x - low[order, 1], high[order, 1] - x],
            yerr=[y - _POINTS * low[order, 0], _POINTS * high[order, 0] - y], color=look.colour, marker=look.marker,
            linestyle=look.line, linewidth=1.2, markersize=5, elinewidth=0.7, label=label,
        )  # fmt: skip
        dearest = max(dearest, float(x.max()))
    panel.set_xlim(0, 1.2 * dearest)  # intervals of few seeds reach beyond what can be
    for name, share in ((OURS, 1.0), (OUTCOME_ALONE, 0.5)):
        with suppress(NotMeasured):
            panel.axvline(share * frontiers.own(name, at)[0, 1], linestyle=":", linewidth=0.8,
                          color=style.look_of(frontiers.settings, name).colour)  # fmt: skip
