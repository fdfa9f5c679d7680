"""Figures of accuracy against cost: the main agents with their names beside their points, and every agent."""

import itertools
from collections.abc import Iterable, Sequence
from math import cos, hypot, pi, sin

import numpy as np

from ..job import Job
from ..settings import Settings, labels_of
from . import style
from .methods import DATASETS, IN_DOMAIN, OURS, REFERENCE, notices, pictured_methods
from .results import Results
from .table import Row


def labelled_agents(settings: Settings) -> set[str]:
    """Return the names of the agents whose labels are written beside their points: the policy before training, all
    variants of the main table, and value of information, which knows the model of the synthetic hospital."""
    return {"warm_start", "value_of_information", *labels_of(settings, "main_table")}


def plot_accuracy_cost(settings: Settings, job: Job) -> None:
    """Plot accuracy (%) against average cost per case (USD) of the agents of :func:`labelled_agents`, on in-domain
    cases with the main decoding and 95% intervals. Agents without evaluations are named as missing. Raises as
    :class:`Results` does."""
    results = Results(settings, job.inputs["results"], pictured_methods(settings))
    rows = _measured_rows(results, IN_DOMAIN)
    with style.drawing(7.2, 4.4, job.out) as figure:
        panel = figure.subplots()
        _draw_labelled(panel, settings, rows)
        title = style.panel_title(settings, IN_DOMAIN, rows, separator=" ")
        # This figure is often shown alone, so its title says what "MIMIC-IV, synthetic" means.
        data = DATASETS[IN_DOMAIN]
        title = title.replace(f"{data}, synthetic", f"synthetic, in {data}'s format")
        panel.set_title(f"Accuracy against cost: {title}")
        panel.set_ylabel("accuracy (%), higher is better →")
        panel.set_xlabel("← lower is better, average cost of the examinations per case (USD)")
        style.write_notes(figure, settings, _notes(results, [IN_DOMAIN]))
        figure.draw_without_rendering()  # computes the final layout, in which names are placed
        _write_names(panel, settings, rows)


def plot_every_agent(settings: Settings, job: Job) -> None:
    """Plot accuracy (%) against average cost (USD) of the agents of :func:`labelled_agents` on the other data sets, a
    panel each; below them every agent on in-domain cases, on an axis that is linear up to 10 USD and logarithmic
    beyond. Raises as :class:`Results` does."""
    results = Results(settings, job.inputs["results"], pictured_methods(settings))
    others = [dataset for dataset in DATASETS if dataset != IN_DOMAIN]
    layout = [others, ["every"] * len(others)]  # two rows of panels; the one below is as wide as all those above
    with style.drawing(7.2, 6.4, job.out) as figure:
        panels = figure.subplot_mosaic(layout)
        _draw_every(panels["every"], settings, _measured_rows(results, IN_DOMAIN, every=True))
        style.draw_legend_above(figure, panels["every"], 3, columnspacing=1.5)
        rows = {dataset: _measured_rows(results, dataset) for dataset in others}
        for dataset in others:
            _draw_labelled(panels[dataset], settings, rows[dataset])
            panels[dataset].set_title(style.panel_title(settings, dataset, rows[dataset]))
            panels[dataset].set_ylabel("accuracy (%)")
            panels[dataset].set_xlabel("average cost per case (USD)")
        style.write_notes(figure, settings, _notes(results, DATASETS))
        figure.draw_without_rendering()  # computes the final layout, in which names are placed
        for dataset in others:
            _write_names(panels[dataset], settings, rows[dataset])


def _measured_rows(results: Results, dataset: str, every: bool = False) -> list[Row]:
    """Return the results of the agents of :func:`labelled_agents`, or of ``every`` agent, that were measured on a data
    set with the main decoding, as rows."""
    names = labelled_agents(results.settings)
    rows = [results.summary(method, dataset, results.decodings[0]) for method in results.methods
            if every or method.name in names]  # fmt: skip
    return [row for row in rows if "reason" not in row]


def _notes(results: Results, datasets: Iterable[str]) -> list[str]:
    """Return the notes below a figure of these data sets: licences, missing evaluations, diverged trainings, judges and
    decoding."""
    decoding = results.decodings[0]
    pairs = itertools.product(datasets, results.methods)
    missing = [f"{method.label} ({DATASETS[dataset]})" for dataset, method in pairs
               if results.summary(method, dataset, decoding).get("missing")]  # fmt: skip
    drawn = f"{decoding} decoding; bars: 95% intervals"
    return [*notices(results.settings), style.missing_note(sorted(missing)), *results.notes(), drawn]


def _draw_point(panel: style.Axes, settings: Settings, row: Row, size: float) -> None:
    """Draw an agent as a marker with thin bars for the 95% intervals of its cost and accuracy. ``row`` has its results
    (:meth:`Results.summary`). ``size`` is that of the marker in typographic points. The marker is hollow where the
    agent knows the hospital's model."""
    look = style.look_of(settings, row["method"])
    cost, accuracy = row["aec"], 100 * row["accuracy"]
    # How far the bars reach below and above the point.
    cost_bar = [[cost - row["aec_low"]], [row["aec_high"] - cost]]
    accuracy_bar = [[accuracy - 100 * row["accuracy_low"]], [100 * row["accuracy_high"] - accuracy]]
    panel.errorbar(
        cost, accuracy, xerr=cost_bar, yerr=accuracy_bar, marker=look.marker, linestyle="", color=look.colour,
        ecolor=(look.colour, 0.5), elinewidth=0.6, markersize=size, markeredgewidth=0.9,
        markerfacecolor="white" if row["group"] == REFERENCE else look.colour, label=row["label"], zorder=3,
    )  # fmt: skip


def _draw_labelled(panel: style.Axes, settings: Settings, rows: Sequence[Row]) -> None:
    """Draw agents as points on a linear axis of costs, and set the limits of both axes; without agents, write why the
    panel is empty."""
    for row in rows:
        _draw_point(panel, settings, row, 7)
    if not rows:
        style.write_in_empty_panel(panel, "missing: no evaluations")
        return
    # The axis of costs has room for a quarter more than the upper end of every interval. Intervals of few seeds can be
    # very long: they are cut off at 1.8 times the mean.
    right_end = max(min(1.25 * row["aec_high"], 1.8 * row["aec"]) for row in rows)
    panel.set_xlim(0, right_end or 1)  # 1 USD where no agent pays anything
    lowest = min(100 * row["accuracy_low"] for row in rows)
    highest = max(100 * row["accuracy_high"] for row in rows)
    panel.set_ylim(max(0.0, lowest) - 4, min(100.0, highest) + 4)  # 4 points more, so that no marker is cut off


def _draw_every(panel: style.Axes, settings: Settings, rows: Sequence[Row]) -> None:
    """Draw all agents, with title and axis labels. The axis of costs is linear up to 10 USD, so that it has a zero for
    agents that pay nothing, and logarithmic beyond."""
    for row in rows:
        is_star = style.look_of(settings, row["method"]).marker == "*"
        _draw_point(panel, settings, row, 7 if is_star else 4.5)  # a star looks smaller than other markers of its size
    if not rows:
        style.write_in_empty_panel(panel, "missing: no evaluations")
    low, high = panel.get_ylim()
    panel.set_ylim(max(low, -5), min(high, 105))  # accuracies are in 0..100: longer intervals are cut off
    panel.set_title(f"Every agent, {style.panel_title(settings, IN_DOMAIN, rows, separator=' ')}")
    panel.set_ylabel("accuracy (%)")
    highest_cost = max((row["aec_high"] for row in rows), default=0.0)
    panel.set_xscale("symlog", linthresh=10, linscale=0.6)
    panel.set_xticks([0, 5, 10, 20, 50, 200, 1000, 5000])
    panel.minorticks_off()
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlim(-1.0, max(100.0, highest_cost * 1.25))
    panel.set_xlabel("average cost per case (USD; linear up to 10, logarithmic beyond)")


def _write_names(panel: style.Axes, settings: Settings, rows: Sequence[Row]) -> None:
    """Write the name of each agent beside its point, where it covers no other name or point. A thin line leads to a
    name that is not close to its point. Names are placed one after another, those of the cheapest agents first."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    rows = sorted(rows, key=lambda row: (row["aec"], row["accuracy"]))
    # Positions are found in pixels, since the size of a text is given in pixels.
    to_pixels, to_data = panel.transData, panel.transData.inverted()
    bounds, scale = panel.get_window_extent(), panel.get_figure().dpi / 72  # pixels per typographic point
    points = [to_pixels.transform((row["aec"], 100 * row["accuracy"])) for row in rows]
    occupied = [Bbox([point, point]).padded(5 * scale) for point in points]  # the markers, and then every placed name
    for point, row in zip(points, rows, strict=True):
        name = row["label"] + (" (knows the hospital)" if row["group"] == REFERENCE else "")
        text = panel.text(row["aec"], 100 * row["accuracy"], name, ha="center", va="center", fontsize=7.5, zorder=5,
                          color=style.look_of(settings, row["method"]).colour,
                          fontweight="bold" if row["method"] == OURS else "normal")  # fmt: skip
        text.set_in_layout(False)  # a name does not change the size of the panels
        text.set_path_effects([withStroke(linewidth=2, foreground="white")])
        half_size = text.get_window_extent().size / 2
        centre = _find_free_centre(point, half_size, occupied, bounds, 6 * scale)
        # A pixel more: text has another size, by a fraction of a pixel, when the figure is saved.
        occupied.append(Bbox([centre - half_size, centre + half_size]).padded(1))
        text.set_position(to_data.transform(centre))
        distance = np.maximum(0, abs(centre - point) - half_size)  # from the point to the box of the text, [x, y]
        if hypot(*distance) > 9 * scale:
            ends = to_data.transform([point, centre])
            (line,) = panel.plot(*ends.T, linewidth=0.5, color=style.GREY, zorder=2, scalex=False, scaley=False)
            line.set_in_layout(False)


def _find_free_centre(
    point: np.ndarray, half_size: np.ndarray, occupied: Sequence[style.Bbox], bounds: style.Bbox, gap: float
) -> np.ndarray:
    """Find a position for a text beside a ``point`` [x, y]. All arguments are in pixels. ``half_size`` is half the
    width and height of the text, ``bounds`` is the panel, ``occupied`` are the boxes of points and of other texts, and
    ``gap`` is the least distance from the point.

    Returns the centre of the text, [x, y]: the first one, on ellipses around the point that become wider and wider, at
    which the text is in the panel and covers no occupied box. Where there is none, it is to the right of the point.
    """
    from matplotlib.transforms import Bbox

    # Ellipses widen by 4 pixels at a time, up to the diagonal of the panel; each is tried in 24 directions.
    for widening in range(0, int(hypot(*bounds.size)), 4):
        for angle in np.linspace(0, 2 * pi, 24, endpoint=False):
            centre = point + (half_size + gap + widening) * (cos(angle), sin(angle))
            box = Bbox([centre - half_size, centre + half_size])
            is_inside = (bounds.min <= box.min).all() and (box.max <= bounds.max).all()
            if is_inside and not box.count_overlaps(occupied):
                return centre
    return point + np.array([half_size[0] + gap, 0.0])
