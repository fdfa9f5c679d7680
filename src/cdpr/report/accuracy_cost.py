"""The figure of accuracy against cost: few agents with their names beside their points, and every agent below."""

from collections.abc import Mapping, Sequence
from math import cos, hypot, pi, sin

import numpy as np

from ..job import Job
from ..results.methods import DATASETS, IN_DOMAIN, Method, domain, pictured_methods
from ..results.results import Results
from ..results.sources import notices
from ..results.table import Row
from ..settings import Settings, labels_of
from . import style
from .cost_figures import cost_axis


def named(settings: Settings) -> set[str]:
    """The agents of the upper panels: the policy before training, and all variants of the main table."""
    return {"warm_start", *labels_of(settings, "main_table")}


def plot_accuracy_cost(settings: Settings, job: Job) -> None:
    """Accuracy against average cost per case, 95% intervals, main decoding.

    Above a panel per data set with the agents of :func:`named` alone, on a linear axis of cost; below every agent on
    in-domain cases, on an axis that is linear up to 10 USD and logarithmic beyond. The dotted line joins the best
    reference policies. Agents without evaluations are named as missing. Raises as :class:`Results` does.
    """
    methods = [method for method in pictured_methods(settings) if method.runs]
    results = Results(settings, job.inputs["results"], methods)
    decoding = settings.evaluation.decodings[0]
    at = {d: {method: results.summary(method, d, decoding) for method in methods} for d in DATASETS}
    measured = {d: {m: row for m, row in rows.items() if "hole" not in row} for d, rows in at.items()}
    missing = sorted(f"{method.label} ({DATASETS[dataset]})" for dataset, rows in at.items()
                     for method, row in rows.items() if row.get("missing"))  # fmt: skip
    with style.drawing(7.2, 7.4, job.out) as figure:
        others = [dataset for dataset in DATASETS if dataset != IN_DOMAIN]
        layout = [*([IN_DOMAIN, dataset] for dataset in others), ["every", "every"], ["legend", "legend"]]
        heights = [*[1.0] * len(others), 1.1, 0.45]
        panels = figure.subplot_mosaic(layout, width_ratios=[1.5, 1], height_ratios=heights)
        _draw_every(panels.pop("every"), panels.pop("legend"), settings, measured[IN_DOMAIN])
        for dataset, panel in panels.items():
            _draw_named(panel, settings, measured[dataset])
            cases = max((row["n"] for row in measured[dataset].values()), default=0)
            panel.set_title(f"{DATASETS[dataset]} ({domain(dataset)}, N = {cases})")
        note = f"{decoding} decoding; bars: 95% intervals; dotted: best reference policies"
        style.foot(figure, settings, [*notices(settings), *style.folded([style.missing_note(missing)]),
                                      *style.folded(results.remarks()), note])  # fmt: skip
        figure.draw_without_rendering()  # labels are placed in the final layout
        for dataset, panel in panels.items():
            _name_points(panel, settings, measured[dataset])


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, accuracy) points that no other beats in both, by rising cost."""
    best: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or accuracy > best[-1][1]:
            best.append((cost, accuracy))
    return best


def _point(row: Row) -> tuple[float, float]:
    """Mean cost (USD) and accuracy (%)."""
    return row["aec"], 100 * row["accuracy"]


def _draw_frontier(panel: style.Axes, measured: Mapping[Method, Row]) -> list[tuple[float, float]]:
    """Draw the frontier of the reference policies; it does not set the panel's scale. Returns its points, (USD, %)."""
    line = frontier([_point(summary) for method, summary in measured.items() if method.knows_hospital])
    if line:
        line.append((1e6, line[-1][1]))  # dearer than the dearest policy: no gain; the axis ends before
        panel.plot(*zip(*line, strict=True), color=style.BLACK, linewidth=0.9, linestyle=":", zorder=1,
                   drawstyle="steps-post", label="best reference policies", scalex=False, scaley=False)  # fmt: skip
    return line


def _draw_point(panel: style.Axes, settings: Settings, method: Method, row: Row, size: float) -> None:
    """A marker with thin intervals; one without fill knows the hospital."""
    (cost, accuracy), look = _point(row), style.look_of(settings, method.name)
    panel.errorbar(
        cost, accuracy, xerr=[[cost - row["aec_low"]], [row["aec_high"] - cost]],
        yerr=[[accuracy - 100 * row["accuracy_low"]], [100 * row["accuracy_high"] - accuracy]], marker=look.marker,
        linestyle="", color=look.colour, ecolor=(look.colour, 0.5), elinewidth=0.6, markersize=size,
        markeredgewidth=0.9,
        markerfacecolor="white" if method.knows_hospital else look.colour, label=method.label, zorder=3,
    )  # fmt: skip


def _draw_named(panel: style.Axes, settings: Settings, measured: Mapping[Method, Row]) -> None:
    shown = {method: summary for method, summary in measured.items() if method.name in named(settings)}
    for method, summary in shown.items():
        _draw_point(panel, settings, method, summary, 6)
    if not shown:
        style.empty(panel, "missing: no evaluations")
    # Intervals of few seeds reach beyond what can be: they do not set the scale.
    dearest = max((min(1.25 * row["aec_high"], 1.8 * row["aec"]) for row in shown.values()), default=0.0) or 1.0
    within = [accuracy for cost, accuracy in _draw_frontier(panel, measured) if cost <= dearest]
    heights = [100 * row[f"accuracy{end}"] for row in shown.values() for end in ("_low", "_high")]
    panel.set_xlim(0, dearest)
    # What the references reach at most belongs to the picture; what they reach for nothing would squeeze the points.
    low, high = max(0.0, min(heights, default=0.0)), min(100.0, max([*heights, *within], default=100.0))
    panel.set_ylim(low - 6, high + 6)  # room for names and the arrow
    panel.set_xlabel("average cost per case (USD)")
    panel.set_ylabel("accuracy (%)")
    panel.annotate("better", (0.02, 0.97), (0.13, 0.83), "axes fraction", fontsize=7, color=style.GREY, ha="center",
                   arrowprops={"arrowstyle": "->", "color": style.GREY, "linewidth": 0.9})  # fmt: skip


def _draw_every(panel: style.Axes, legend: style.Axes, settings: Settings, measured: Mapping[Method, Row]) -> None:
    _draw_frontier(panel, measured)
    for method, summary in measured.items():
        _draw_point(panel, settings, method, summary, 7 if style.look_of(settings, method.name).marker == "*" else 4.5)
    if not measured:
        style.empty(panel, "missing: no evaluations")
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, -5), min(high, 105))
    panel.set_title(f"Every agent, {DATASETS[IN_DOMAIN]}")
    panel.set_ylabel("accuracy (%)")
    highest = max((row["aec_high"] for row in measured.values()), default=0.0)
    cost_axis(panel, highest, "average cost per case (USD; linear up to 10, logarithmic beyond)")
    legend.set_axis_off()
    handles, labels = panel.get_legend_handles_labels()
    if handles:
        legend.legend(handles, labels, loc="center", ncols=3, fontsize=7, columnspacing=1.5)


# Names beside points


def _name_points(panel: style.Axes, settings: Settings, measured: Mapping[Method, Row]) -> None:
    """Write the name of each agent beside its point, with a thin line to it where there is no room close by."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    inverse, scale = panel.transData.inverted(), panel.get_figure().dpi / 72
    points = {m: tuple(panel.transData.transform(_point(s))) for m, s in measured.items() if m.name in named(settings)}
    bounds = panel.get_window_extent()
    arrow = Bbox([[0, 0.75], [0.25, 1]]).transformed(panel.transAxes)
    obstacles = [arrow, *(Bbox([point, point]).padded(4.5 * scale) for point in points.values())]
    for method, point in sorted(points.items(), key=lambda item: item[1]):
        own = method.name == "cdpr"
        text = panel.text(*inverse.transform(point), method.label.partition(" (")[0], ha="center", va="center",
                          fontsize=7.5, color=style.look_of(settings, method.name).colour, zorder=5,
                          fontweight="bold" if own else "normal")  # fmt: skip
        text.set_in_layout(False)
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
        obstacles.append(free_place(point, text.get_window_extent(), obstacles, bounds, 6 * scale))
        centre = obstacles[-1].min + obstacles[-1].size / 2
        text.set_position(inverse.transform(centre))
        if _gap(point, obstacles[-1]) > 9 * scale:
            line = panel.plot(*zip(inverse.transform(point), inverse.transform(centre), strict=True), linewidth=0.5,
                              color=style.GREY, zorder=2, scalex=False, scaley=False)  # fmt: skip
            line[0].set_in_layout(False)


def free_place(
    point: tuple[float, float], box: style.Bbox, obstacles: Sequence[style.Bbox], bounds: style.Bbox, gap: float
) -> style.Bbox:
    """The ``box`` moved near ``point``, at least ``gap`` from it, so that it lies within ``bounds`` and meets none of
    the ``obstacles``: the nearest on widening rings; beside the point where there is none."""
    x, y = point
    x_gap, y_gap = box.width / 2 + gap, box.height / 2 + gap
    for ring in range(0, 4 * int(hypot(*bounds.size) / 4) + 1, 4):
        for angle in (2 * pi * turn / 24 for turn in range(24)):
            moved = _centred(box, x + (x_gap + ring) * cos(angle), y + (y_gap + ring) * sin(angle))
            inside = (bounds.min <= moved.min).all() and (moved.max <= bounds.max).all()
            if inside and not moved.count_overlaps(obstacles):
                return moved
    return _centred(box, x + x_gap, y)


def _centred(box: style.Bbox, x: float, y: float) -> style.Bbox:
    return box.translated(x - (box.x0 + box.x1) / 2, y - (box.y0 + box.y1) / 2)


def _gap(point: tuple[float, float], box: style.Bbox) -> float:
    """Distance of a point from a box."""
    return hypot(*np.maximum(0, np.maximum(box.min - point, point - box.max)))
