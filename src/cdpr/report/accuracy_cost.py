"""Accuracy against cost of every agent, with the frontier of the reference policies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..job import Job
from ..results.methods import DATASETS, IN_DOMAIN, Method, domain, pictured_methods
from ..results.results import Hole, Results, results_folder
from ..results.sources import notices
from ..settings import Settings
from . import style

# An agent with its cost (USD) and its accuracy (%), each with its interval.
Spot = tuple[Method, tuple[float, float, float], tuple[float, float, float]]


def plot_accuracy_cost(settings: Settings, job: Job) -> None:
    """Accuracy against average cost per case: in-domain large, out-of-domain small.

    One point per agent with 95% intervals (main decoding); the line is the best accuracy that a reference policy
    reaches for at most that cost. Costs are linear up to 10 USD and logarithmic beyond. Agents without evaluations
    are named as missing. Raises as :class:`Results` does.
    """
    methods = [method for method in pictured_methods(settings) if method.runs]
    results = Results(settings, results_folder(settings, job), methods)
    decoding = settings.evaluation.decodings[0]
    with style.drawing(7.2, 5.0, job.out) as figure:
        layout = [*style.domains(), ["legend", "legend"]]
        panels = figure.subplot_mosaic(layout, width_ratios=[1.75, 1], height_ratios=[*[1] * (len(layout) - 1), 0.28])
        legend = panels.pop("legend")
        missing: set[str] = set()
        highest = 0.0
        for dataset, panel in panels.items():
            points, holes = _points(results, methods, dataset, decoding)
            missing |= {f"{label} ({DATASETS[dataset]})" for label in holes}
            highest = max([highest, *(cost[2] for _, cost, _ in points)])
            _draw_points(panel, settings, points)
            cases = max((results.summary(p[0], dataset, decoding).cases for p in points), default=0)
            panel.set_title(f"{DATASETS[dataset]} ({domain(dataset)}, N = {cases})")
            panel.set_ylabel("accuracy (%)")
        for panel in panels.values():
            style.cost_axis(panel, highest)
        handles, labels = panels[IN_DOMAIN].get_legend_handles_labels()
        legend.set_axis_off()
        if handles:
            legend.legend(handles, labels, loc="center", ncols=4, fontsize=7, columnspacing=1.5)
        note = f"{decoding} decoding; bars: 95% intervals over seeds and cases"
        style.foot(figure, settings, [*notices(settings), style.missing_note(sorted(missing)),
                                      *style.folded(results.divergences()), note])  # fmt: skip


def _points(results: Results, methods: Sequence[Method], dataset: str, decoding: str) -> tuple[list[Spot], list[str]]:
    """Cost, accuracy and their intervals per agent, and the labels of those that should be there and are not."""
    points: list[Spot] = []
    holes = []
    for method in methods:
        summary = results.summary(method, dataset, decoding)
        if isinstance(summary, Hole):
            holes += [method.label] if summary.missing else []
            continue
        cost, right = summary.estimates["aec"], summary.estimates["accuracy"]
        accuracy = (100 * right.mean, 100 * right.low, 100 * right.high)
        points.append((method, (cost.mean, cost.low, cost.high), accuracy))
    return points, holes


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, accuracy) points that no other beats in both, by rising cost."""
    best, best_points = -np.inf, []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if accuracy > best:
            best = accuracy
            best_points.append((cost, accuracy))
    return best_points


def _draw_points(panel: style.Axes, settings: Settings, points: Sequence[Spot]) -> None:
    line = frontier([(cost[0], accuracy[0]) for method, cost, accuracy in points if method.knows_hospital])
    if line:
        line.append((1e6, line[-1][1]))  # dearer than the dearest policy: no gain; the axis ends before
        panel.plot(*zip(*line, strict=True), color=style.BLACK, linewidth=0.9, linestyle=":", zorder=1,
                   drawstyle="steps-post", label="reference frontier")  # fmt: skip
    for method, (cost, cheapest, dearest), (accuracy, least, most) in points:
        look = style.look_of(settings, method.name)
        known = method.knows_hospital
        size = 8 if look.marker == "*" else 5.5
        panel.errorbar(
            cost, accuracy, xerr=[[cost - cheapest], [dearest - cost]], yerr=[[accuracy - least], [most - accuracy]],
            marker=look.marker, linestyle="", color=look.colour, markersize=size,
            markerfacecolor="white" if known else look.colour, markeredgewidth=0.9, elinewidth=0.8,
            label=method.label, zorder=2 if known else 3,
        )  # fmt: skip
    if not points:
        style.empty(panel, "missing: no evaluations")
