"""Figures of accuracy against cost: the main agents with their names beside their points, and every agent."""

from collections.abc import Collection, Sequence

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
    with style.drawing(7.2, 4.4, job.out) as figure:
        panel = figure.subplots()
        rows = _draw_agents(panel, results, IN_DOMAIN, labelled_agents(settings))
        # This figure is often shown alone, so its title says what "MIMIC-IV, synthetic" means.
        title, data = style.panel_title(settings, IN_DOMAIN, rows), DATASETS[IN_DOMAIN]
        title = title.replace(f"{data}, synthetic", f"synthetic, in {data}'s format")
        panel.set(title=f"Accuracy against cost: {title}", ylabel="accuracy (%), higher is better →",
                  xlabel="← lower is better, average cost of the examinations per case (USD)")  # fmt: skip
        # Intervals of few seeds can be very long: they are cut off at 1.8 times the mean cost.
        panel.set_xlim(0, max([1.0, *(min(1.25 * row["aec_high"], 1.8 * row["aec"]) for row in rows)]))
        style.write_notes(figure, settings, _notes(results, [IN_DOMAIN]))
        figure.draw_without_rendering()  # computes the final layout, in which names are placed
        _write_names(panel, settings, rows)


def plot_every_agent(settings: Settings, job: Job) -> None:
    """Plot accuracy (%) against average cost (USD) of every agent, a panel per data set, on an axis that is linear up
    to 10 USD, so that it has a zero for agents that pay nothing, and logarithmic beyond. Raises as :class:`Results`
    does."""
    results = Results(settings, job.inputs["results"], pictured_methods(settings))
    every = [method.name for method in results.methods]
    with style.drawing(7.2, 8.2, job.out) as figure:
        panels = figure.subplots(len(DATASETS), sharex=True)
        for panel, dataset in zip(panels, DATASETS, strict=True):
            rows = _draw_agents(panel, results, dataset, every)
            panel.set(title=style.panel_title(settings, dataset, rows), ylabel="accuracy (%)")
        panels[-1].set_xscale("symlog", linthresh=10, linscale=0.6)
        panels[-1].set_xticks([0, 5, 10, 20, 50, 200, 1000, 5000])
        panels[-1].minorticks_off()
        panels[-1].xaxis.set_major_formatter("{x:g}")
        panels[-1].set(xlim=(-1.0, None), xlabel="average cost per case (USD; linear up to 10, logarithmic beyond)")
        style.draw_legend_above(figure, panels[0], 3, columnspacing=1.5)
        style.write_notes(figure, settings, _notes(results, list(DATASETS)))


def _draw_agents(panel: style.Axes, results: Results, dataset: str, names: Collection[str]) -> list[Row]:
    """Draw the agents of these ``names`` that were measured on a data set with the main decoding, each as a marker with
    bars for the 95% intervals of its cost and accuracy; hollow where the agent knows the hospital's model. Returns
    their results as rows; without any, the panel says why it is empty."""
    rows = [results.summary(method, dataset, results.decodings[0]) for method in results.methods
            if method.name in names]  # fmt: skip
    rows = [row for row in rows if "reason" not in row]
    for row in rows:
        look = style.look_of(results.settings, row["method"])
        hollow = {"markerfacecolor": "white"} if row["group"] == REFERENCE else {}
        style.draw_points(panel, [row], "aec", "accuracy", look, label=row["label"], **hollow)
    if rows:
        # Accuracies are in 0..100, and intervals of few seeds can be longer. The margin is for the markers.
        panel.set_ylim(max(0.0, panel.dataLim.y0) - 4, min(100.0, panel.dataLim.y1) + 4)
    else:
        style.write_in_empty_panel(panel, "missing: no evaluations")
    return rows


def _notes(results: Results, datasets: Sequence[str]) -> list[str]:
    """Return the notes below a figure of these data sets: licences, missing evaluations, diverged trainings, judges and
    decoding."""
    decoding = results.decodings[0]
    missing = [f"{method.label} ({DATASETS[dataset]})" for dataset in datasets for method in results.methods
               if results.summary(method, dataset, decoding).get("missing")]  # fmt: skip
    drawn = f"{decoding} decoding; bars: 95% intervals"
    return [*notices(results.settings), style.missing_note(sorted(missing)), *results.notes(), drawn]


def _write_names(panel: style.Axes, settings: Settings, rows: Sequence[Row]) -> None:
    """Write the name of each agent where it covers no other name or point: on ellipses around its point, the smallest
    first. A thin line joins both. The cheapest agents are first to get their place."""
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox

    scale = panel.get_figure().dpi / 72  # pixels per typographic point; all positions are [x, y] in pixels
    rows = sorted(rows, key=lambda row: (row["aec"], row["accuracy"]))
    points = [panel.transData.transform((row["aec"], 100 * row["accuracy"])) for row in rows]
    occupied = [Bbox([point - 5 * scale, point + 5 * scale]) for point in points]  # by the markers, then also by names
    directions = [np.array([np.cos(angle), np.sin(angle)]) for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False)]
    distances = np.arange(6 * scale, panel.bbox.width, 4)
    for point, row in zip(points, rows, strict=True):
        name = panel.annotate(
            row["label"] + (" (knows the hospital)" if row["group"] == REFERENCE else ""),
            (row["aec"], 100 * row["accuracy"]), (0, 0), textcoords="offset points", ha="center", va="center",
            fontsize=7.5, fontweight="bold" if row["method"] == OURS else "normal", zorder=5,
            color=style.look_of(settings, row["method"]).colour, path_effects=[withStroke(linewidth=2, foreground="w")],
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": style.GREY, "shrinkA": 0},
        )  # fmt: skip
        name.set_in_layout(False)  # a name does not change the size of the panel
        half = name.get_window_extent().size / 2
        centres = [point + (half + distance) * direction for distance in distances for direction in directions]
        places = [Bbox([centre - half, centre + half]) for centre in centres]
        inside = (place for place in places if place.x0 >= panel.bbox.x0 and place.x1 <= panel.bbox.x1
                  and place.y0 >= panel.bbox.y0 and place.y1 <= panel.bbox.y1)  # fmt: skip
        place = next((place for place in inside if not place.count_overlaps(occupied)), places[0])  # the first free one
        name.set_position(((place.p0 + place.p1) / 2 - point) / scale)
        # A pixel more: text has another size, by a fraction of a pixel, when the figure is saved.
        occupied.append(place.padded(1))
