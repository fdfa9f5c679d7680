"""Accuracy against cost: six agents with their names beside their points, and every agent."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from math import cos, hypot, pi, sin

import numpy as np

from ..job import Job
from ..settings import Settings, labels_of
from . import style
from .methods import DATASETS, IN_DOMAIN, OURS, Method, pictured_methods
from .results import Results
from .sources import notices
from .table import Row

Measured = Mapping[Method, Row]


def named(settings: Settings) -> set[str]:
    """Return the agents with names: the policy before training, all variants of the main table, and value of
    information, which knows the model of the synthetic hospital."""
    return {"warm_start", "value_of_information", *labels_of(settings, "main_table")}


def plot_accuracy_cost(settings: Settings, job: Job) -> None:
    """Plot accuracy against average cost per case of the agents of :func:`named` on in-domain cases, main decoding,
    with 95% intervals. Agents without evaluations are named as missing. Raises as :class:`Results` does."""
    measured, notes = _measure(settings, job, [IN_DOMAIN])
    chosen = {method: row for method, row in measured[IN_DOMAIN].items() if method.name in named(settings)}
    with style.drawing(7.2, 4.4, job.out) as figure:
        panel = figure.subplots()
        _draw_named(panel, settings, chosen)
        cases = style.cases_of(settings, IN_DOMAIN, chosen.values())
        panel.set_title("Accuracy against cost: " + " ".join(cases.splitlines()).replace(
            f"{DATASETS[IN_DOMAIN]}, synthetic", f"synthetic, in {DATASETS[IN_DOMAIN]}'s format"))  # fmt: skip
        panel.set_ylabel("accuracy (%), higher is better →")
        panel.set_xlabel("← lower is better, average cost of the examinations per case (USD)")
        style.foot(figure, settings, notes)
        figure.draw_without_rendering()  # names are placed in the final layout
        _name_points(panel, settings, chosen)


def plot_every_agent(settings: Settings, job: Job) -> None:
    """Plot the agents of :func:`named` on the other data sets; below them every agent on in-domain cases, on an axis
    that is linear up to 10 USD and logarithmic beyond, with the best reference policies as a dotted line. Raises as
    :class:`Results` does."""
    measured, notes = _measure(settings, job, DATASETS)
    others = [dataset for dataset in DATASETS if dataset != IN_DOMAIN]
    layout = [others, ["every"] * len(others), ["legend"] * len(others)]
    with style.drawing(7.2, 6.4, job.out) as figure:
        panels = figure.subplot_mosaic(layout, height_ratios=[1.1, 1.1, 0.5])
        all_agents, legend = panels.pop("every"), panels.pop("legend")
        _draw_every(all_agents, settings, measured[IN_DOMAIN])
        legend.set_axis_off()
        handles, labels = all_agents.get_legend_handles_labels()
        if handles:
            legend.legend(handles, labels, loc="center", ncols=3, fontsize=7, columnspacing=1.5)
        chosen = {d: {m: row for m, row in measured[d].items() if m.name in named(settings)} for d in panels}
        for dataset, panel in panels.items():
            _draw_named(panel, settings, chosen[dataset])
            panel.set_title(style.cases_of(settings, dataset, chosen[dataset].values()))
            panel.set_ylabel("accuracy (%)")
            panel.set_xlabel("average cost per case (USD)")
        style.foot(figure, settings, [*notes, "dotted: best reference policies"])
        figure.draw_without_rendering()
        for dataset, panel in panels.items():
            _name_points(panel, settings, chosen[dataset])


def _measure(settings: Settings, job: Job, datasets: Iterable[str]) -> tuple[dict[str, Measured], list[str]]:
    """Return, by data set, the agents that were measured there; and the text below a figure of them."""
    methods = [method for method in pictured_methods(settings) if method.runs]
    results, decoding = Results(settings, job.inputs["results"], methods), settings.evaluation.decodings[0]
    rows = {d: {method: results.summary(method, d, decoding) for method in methods} for d in datasets}
    missing = sorted(f"{m.label} ({DATASETS[d]})" for d in rows for m, row in rows[d].items() if row.get("missing"))
    notes = [*notices(settings), *style.folded([style.missing_note(missing)]), *style.folded(results.remarks())]
    return ({d: {m: row for m, row in by_method.items() if "reason" not in row} for d, by_method in rows.items()},
            [*notes, f"{decoding} decoding; bars: 95% intervals"])  # fmt: skip


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the (cost, accuracy) points that no other point beats in both, by rising cost."""
    best: list[tuple[float, float]] = []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not best or accuracy > best[-1][1]:
            best.append((cost, accuracy))
    return best


def _point(row: Row) -> tuple[float, float]:
    """Return mean cost (USD) and accuracy (%)."""
    return row["aec"], 100 * row["accuracy"]


def _draw_point(panel: style.Axes, settings: Settings, method: Method, row: Row, size: float) -> None:
    """Draw a marker with thin intervals; one without fill knows the hospital."""
    (cost, accuracy), look = _point(row), style.look_of(settings, method.name)
    panel.errorbar(
        cost, accuracy, xerr=[[cost - row["aec_low"]], [row["aec_high"] - cost]],
        yerr=[[accuracy - 100 * row["accuracy_low"]], [100 * row["accuracy_high"] - accuracy]], marker=look.marker,
        linestyle="", color=look.colour, ecolor=(look.colour, 0.5), elinewidth=0.6, markersize=size,
        markeredgewidth=0.9,
        markerfacecolor="white" if method.knows_hospital else look.colour, label=method.label, zorder=3,
    )  # fmt: skip


def _draw_named(panel: style.Axes, settings: Settings, chosen: Measured) -> None:
    for method, row in chosen.items():
        _draw_point(panel, settings, method, row, 7)
    if not chosen:
        style.empty(panel, "missing: no evaluations")
    # Intervals of few seeds reach beyond what can be: they do not set the scale.
    panel.set_xlim(0, max((min(1.25 * row["aec_high"], 1.8 * row["aec"]) for row in chosen.values()), default=0.0) or 1)
    heights = [100 * row[f"accuracy{end}"] for row in chosen.values() for end in ("_low", "_high")]
    panel.set_ylim(max(0.0, min(heights, default=0.0)) - 4, min(100.0, max(heights, default=100.0)) + 4)


def _draw_every(panel: style.Axes, settings: Settings, measured: Measured) -> None:
    line = frontier([_point(row) for method, row in measured.items() if method.knows_hospital])
    if line:
        line.append((1e6, line[-1][1]))  # dearer than the dearest policy: no gain; the axis ends before
        panel.plot(*zip(*line, strict=True), color=style.BLACK, linewidth=0.9, linestyle=":", zorder=1,
                   drawstyle="steps-post", label="best reference policies", scalex=False, scaley=False)  # fmt: skip
    for method, row in measured.items():
        _draw_point(panel, settings, method, row, 7 if style.look_of(settings, method.name).marker == "*" else 4.5)
    if not measured:
        style.empty(panel, "missing: no evaluations")
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, -5), min(high, 105))
    panel.set_title(f"Every agent, {style.cases_of(settings, IN_DOMAIN, measured.values(), ' ')}")
    panel.set_ylabel("accuracy (%)")
    highest = max((row["aec_high"] for row in measured.values()), default=0.0)
    # Linear up to 10 USD, where free workups are, and logarithmic beyond.
    panel.set_xscale("symlog", linthresh=10, linscale=0.6)
    panel.set_xticks([0, 5, 10, 20, 50, 200, 1000, 5000])
    panel.minorticks_off()
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlim(-1.0, max(100.0, highest * 1.25))
    panel.set_xlabel("average cost per case (USD; linear up to 10, logarithmic beyond)")


# Names beside points


def _name_points(panel: style.Axes, settings: Settings, chosen: Measured) -> None:
    """Write the name of each agent beside its point, with a thin line to it where there is no room close by."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    inverse, scale = panel.transData.inverted(), panel.get_figure().dpi / 72
    points = {method: tuple(panel.transData.transform(_point(row))) for method, row in chosen.items()}
    bounds = panel.get_window_extent()
    obstacles = [Bbox([point, point]).padded(5 * scale) for point in points.values()]
    for method, point in sorted(points.items(), key=lambda item: item[1]):
        label = f"{method.label} (knows the hospital)" if method.knows_hospital else method.label
        text = panel.text(*inverse.transform(point), label, ha="center", va="center", fontsize=7.5,
                          color=style.look_of(settings, method.name).colour, zorder=5,
                          fontweight="bold" if method.name == OURS else "normal")  # fmt: skip
        text.set_in_layout(False)
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
        half = text.get_window_extent().size / 2
        centre = free_centre(np.array(point), half, obstacles, bounds, 6 * scale)
        obstacles.append(Bbox([centre - half, centre + half]))
        text.set_position(inverse.transform(centre))
        if hypot(*np.maximum(0, abs(centre - point) - half)) > 9 * scale:
            line = panel.plot(*zip(inverse.transform(point), inverse.transform(centre), strict=True), linewidth=0.5,
                              color=style.GREY, zorder=2, scalex=False, scaley=False)  # fmt: skip
            line[0].set_in_layout(False)


def free_centre(
    point: np.ndarray, half: np.ndarray, obstacles: Sequence[style.Bbox], bounds: style.Bbox, gap: float
) -> np.ndarray:
    """Find the centre [2] of a box whose half size is ``half`` [2]: on widening rings around ``point`` the first
    position that is at least ``gap`` from it, inside ``bounds`` and off all ``obstacles``; to the right of the point
    where there is none."""
    from matplotlib.transforms import Bbox

    for ring, turn in itertools.product(range(0, 4 * int(hypot(*bounds.size) / 4) + 1, 4), range(24)):
        angle = 2 * pi * turn / 24
        centre = point + (half + gap + ring) * (cos(angle), sin(angle))
        inside = (bounds.min <= centre - half).all() and (centre + half <= bounds.max).all()
        if inside and not Bbox([centre - half, centre + half]).count_overlaps(obstacles):
            return centre
    return point + np.array([half[0] + gap, 0.0])
