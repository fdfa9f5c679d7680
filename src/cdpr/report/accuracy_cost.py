"""Accuracy against cost: a figure of the agents, and a table and a figure of training rules compared at the same cost.

With each rule several policies are trained, which differ in the weight of a right diagnosis: they are the points of one
curve (variants with the same label). A position between two points stands for a mixture, which lets one policy diagnose
some patients and the other policy the rest. Every curve begins at the agent that diagnoses at once and orders nothing.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from ..evaluation.metrics import METRICS, estimate
from ..job import Job
from ..settings import Settings
from . import style
from .methods import DATASETS, IN_DOMAIN, OURS, REFERENCE, Method, domain, list_methods, notices, with_common_seeds
from .results import NotMeasured, Results
from .table import Row, Sheet

# The figure of the agents

_BAR = 15.0  # how much farther, in typographic points, a name is written to cover one bar less


def plot_accuracy_cost(settings: Settings, job: Job) -> None:
    """Plot accuracy (%) against average cost per case (USD) of the agents that ``methods.yaml`` lists for it, on
    in-domain cases with the main decoding: a named marker each, with bars for the 95% intervals of both, hollow where
    the agent knows the hospital's model. Agents without evaluations are named as missing. Raises as :class:`Results`
    does."""
    results = Results(settings, job.inputs["results"], list_methods(settings, "accuracy_cost"))
    decoding = results.decodings[0]
    summaries = [results.summary(method, IN_DOMAIN, decoding) for method in results.methods]
    rows = [row for row in summaries if "reason" not in row]
    with style.drawing(7.2, 4.4, job.out) as figure:
        panel = figure.subplots()
        for row in rows:
            hollow = {"markerfacecolor": "white"} if row["group"] == REFERENCE else {}
            style.draw_points(panel, [row], "aec", "accuracy", style.look_of(settings, row["method"]), **hollow)
        # This figure is often shown alone, so its title says what "MIMIC-IV, synthetic" means.
        title, data = style.panel_title(settings, IN_DOMAIN, rows), DATASETS[IN_DOMAIN]
        title = title.replace(f"{data}, synthetic", f"synthetic, in {data}'s format")
        panel.set(title=f"Accuracy against cost: {title}", ylabel="accuracy (%), higher is better →",
                  xlabel="average cost of the examinations per case (USD), ← lower is better")  # fmt: skip
        # Intervals of few seeds can be very long: they are cut off at 1.8 times the mean cost.
        panel.set_xlim(0, max([1.0, *(min(1.15 * row["aec_high"], 1.8 * row["aec"]) for row in rows)]))
        if rows:
            # Accuracies are in 0..100, and intervals of few seeds can be longer. The margin is for the markers.
            panel.set_ylim(max(0.0, panel.dataLim.y0) - 4, min(100.0, panel.dataLim.y1) + 4)
        else:
            style.write_in_empty_panel(panel, "missing: no evaluations")
        missing = sorted(f"{row['label']} ({data})" for row in summaries if row.get("missing"))
        most = max((row["seeds"] for row in rows), default=0)
        few = [f"{row['label']}: {row['seeds']} seeds" for row in rows if 1 < row["seeds"] < most]
        notes = [*notices(settings), style.missing_note(missing), *results.notes(), *few]
        style.write_notes(figure, settings, [*notes, f"{decoding} decoding; bars: 95% intervals over seeds and cases"])
        figure.draw_without_rendering()  # computes the final layout, in which names are placed
        _write_names(panel, settings, rows)


def _write_names(panel: style.Axes, settings: Settings, rows: Sequence[Row]) -> None:
    """Write the name of each agent near its point, where it covers no other name and no point, and few of the bars. A
    thin line joins both. The cheapest agents are first to get their place."""
    from matplotlib.patheffects import withStroke

    scale = panel.get_figure().dpi / 72  # pixels per typographic point; all positions are [x, y] in pixels
    rows = sorted(rows, key=lambda row: (row["aec"], row["accuracy"]))
    points = panel.transData.transform(np.reshape([(row["aec"], 100 * row["accuracy"]) for row in rows], (-1, 2)))
    segments = [bar.get_segments()[0] for container in panel.containers for bar in container.lines[2]]
    corners = np.array([[-1.0], [1.0]])  # of a box: lower left, upper right
    occupied = points[:, None] + 5 * scale * corners  # by the markers, then also by names
    bars = np.array([panel.transData.transform(segment) + corners for segment in segments])
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    distances = np.arange(6 * scale, panel.bbox.width, 4).repeat(len(angles))
    directions = np.tile(directions, (len(distances) // len(angles), 1))
    for point, row in zip(points, rows, strict=True):
        name = panel.annotate(
            row["label"] + (" (reference: knows the hospital)" if row["group"] == REFERENCE else ""),
            (row["aec"], 100 * row["accuracy"]), (0, 0), textcoords="offset points", ha="center", va="center",
            fontsize=7.5, fontweight="bold" if row["method"] == OURS else "normal", zorder=5,
            color=style.look_of(settings, row["method"]).colour, path_effects=[withStroke(linewidth=2, foreground="w")],
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": style.GREY, "shrinkA": 0},
        )  # fmt: skip
        name.set_in_layout(False)  # a name does not change the size of the panel
        half = name.get_window_extent().size / 2
        centres = point + (half + distances[:, None]) * directions
        places = centres[:, None] + half * corners
        outside = (places[:, 0] < panel.bbox.p0).any(axis=1) | (places[:, 1] > panel.bbox.p1).any(axis=1)
        costs = distances + _BAR * scale * _count_overlaps(places, bars)
        costs[outside | (_count_overlaps(places, occupied) > 0)] = np.inf
        best = costs.argmin()
        name.set_position((centres[best] - point) / scale)
        # A pixel more: text has another size, by a fraction of a pixel, when the figure is saved.
        occupied = np.concatenate([occupied, [places[best] + corners]])


def _count_overlaps(places: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Count the ``boxes`` that each of the ``places`` overlaps: both are arrays of [number, lower left and upper right
    corner, x and y], in pixels."""
    (low, high), (box_low, box_high) = places.swapaxes(0, 1)[:, :, None], boxes.swapaxes(0, 1)
    return ((low < box_high) & (high > box_low)).all(axis=2).sum(axis=1)


# Training rules at matched cost

# The agent that diagnoses at once, where every curve begins; and the variant whose reward is the outcome alone.
START, OUTCOME_ALONE = "immediate", "grpo"
AREA_USD = (20.0, 60.0)  # curves are compared by their mean accuracy between these costs


class Frontiers(Results):
    """The curves of all training rules; ``curves`` maps the label of each to the methods that are its points.

    The samples of a curve are an array [1 + resamples, points, 2] of accuracy (a fraction) and cost (USD): first the
    means, then bootstrap means. A resample has the same cases for all curves, so curves can be compared sample by
    sample. Raises as :class:`Results`.
    """

    def __init__(self, settings: Settings, folder: Path):
        super().__init__(settings, folder, list_methods(settings, "frontier"))
        # Every method but the one at which all curves begin is a point of the curve with its label.
        self.curves: dict[str, list[Method]] = {}
        for method in self.methods:
            if method.name != START:
                self.curves.setdefault(method.label, []).append(method)
        self.curve_samples = cache(self._compute_samples)  # each curve is compared several times

    def _compute_samples(self, label: str, dataset: str, decoding: str) -> np.ndarray:
        """Return the samples of a curve, whose first point is the agent that diagnoses at once. For every point only
        the seeds that all points share are used. Raises NotMeasured where a run of the curve is missing."""
        curve = self.curves[label]
        # Raises NotMeasured for every missing run, also of seeds that `with_common_seeds` would drop.
        for method in curve:
            self.rows(method, dataset, decoding)
        points = with_common_seeds([self.method(START), *curve])
        samples = self.samples(points, dataset, decoding)  # [1 + resamples, points, all metrics]
        return samples[:, :, [list(METRICS).index(name) for name in ("accuracy", "aec")]]

    def variant_samples(self, variant: str, dataset: str, decoding: str) -> np.ndarray:
        """Return the samples [1 + resamples, 2] of accuracy and cost of one variant, a point of the curve with its
        label. Raises NotMeasured where a run of the curve is missing."""
        label = self.method(variant).label
        names = [START, *(method.name for method in self.curves[label])]  # of the points, in their order
        return self.curve_samples(label, dataset, decoding)[:, names.index(variant)]


def accuracy_at(samples: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the accuracy of a curve at given costs. ``samples`` [samples, points, 2] are accuracy and cost of its
    points. ``costs`` [samples] has one cost for each sample, [samples, costs] several. The result has its shape.

    It is interpolated between the points. Beyond the dearest point it stays that point's accuracy, since money that is
    left over buys nothing; below the cheapest one, the agent that orders nothing, it stays that of this agent.
    """
    accuracies = []
    for cost, points in zip(costs, samples, strict=True):
        accuracy_of_points, cost_of_points = points[points[:, 1].argsort(kind="stable")].T  # the cheapest first
        accuracies.append(np.interp(cost, cost_of_points, accuracy_of_points))
    return np.array(accuracies)


def area(samples: np.ndarray) -> np.ndarray:
    """Return the mean accuracy of a curve over the costs from 20 to 60 USD (:data:`AREA_USD`), an array [samples]: for
    each of its ``samples`` [samples, points, 2] of accuracy and cost, the area under the curve divided by its width."""
    costs = np.linspace(*AREA_USD, 41)  # one per dollar
    accuracies = accuracy_at(samples, np.tile(costs, (len(samples), 1)))
    return np.trapezoid(accuracies, costs, axis=1) / (costs[-1] - costs[0])


def compare_curve(frontiers: Frontiers, label: str, dataset: str, decoding: str) -> Row:
    """Return the comparison of one curve with CDPR and GRPO on a data set as the row of a table. Its values, each with
    an interval, are fractions:

    - ``matched``: the curve's accuracy at CDPR's cost; ``over_cdpr``: this accuracy minus CDPR's.
    - ``half``: its accuracy at half of GRPO's cost; ``over_grpo``: this accuracy minus GRPO's at its full cost.
    - ``area``: its mean accuracy over a range of costs (:func:`area`); ``over_area``: this mean minus that of CDPR's
      curve.

    Where something was not measured, the row has only the ``reason``.
    """
    try:
        curve = frontiers.curve_samples(label, dataset, decoding)
        our_curve = frontiers.curve_samples(frontiers.method(OURS).label, dataset, decoding)
        ours = frontiers.variant_samples(OURS, dataset, decoding)
        grpo = frontiers.variant_samples(OUTCOME_ALONE, dataset, decoding)
    except NotMeasured as error:
        return {"reason": error.reason}
    (our_accuracy, our_cost), (grpo_accuracy, grpo_cost) = ours.T, grpo.T
    matched, half, curve_area = accuracy_at(curve, our_cost), accuracy_at(curve, grpo_cost / 2), area(curve)
    figures = {
        "matched": matched, "over_cdpr": matched - our_accuracy, "half": half, "over_grpo": half - grpo_accuracy,
        "area": curve_area, "over_area": curve_area - area(our_curve),
    }  # fmt: skip
    row: Row = {"seeds": min(len(method.runs) for method in frontiers.curves[label])}
    for name, values in figures.items():
        row |= estimate(name, [values[0]], values[1:])  # the mean over all seeds, then the bootstrap values
    return row


def sheet_frontier(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of all training rules at matched cost on every data set, from the results in
    ``folder``. The CSV also has every point of every curve. Raises as :class:`Results` does."""
    frontiers = Frontiers(settings, folder)
    sheet = Sheet(settings, "frontier", remarks=frontiers.notes(), cheap=AREA_USD[0], dear=AREA_USD[1])
    for decoding in frontiers.decodings:
        rows = []
        for dataset, dataset_label in DATASETS.items():
            for label, points in frontiers.curves.items():
                names = {"decoding": decoding, "dataset": dataset, "rule": label}
                sheet.rows += [frontiers.summary(method, dataset, decoding) | names | {"variant": method.name}
                               for method in points]  # fmt: skip
                row = names | {"label": label, "heading": f"{dataset_label} ({domain(dataset)})"}
                row |= compare_curve(frontiers, label, dataset, decoding)
                rows.append(row)
                if "reason" not in row:
                    sheet.rows.append(row)
        sheet.add("levels", rows, decoding)
    return sheet


def plot_frontier(settings: Settings, job: Job) -> None:
    """Plot accuracy (%) against cost (USD), a panel per data set (columns) and decoding (rows). A training rule is a
    curve with a point per weight of a right diagnosis, each with 95% intervals over seeds and cases. Dotted lines mark
    CDPR's cost and half of GRPO's."""
    frontiers = Frontiers(settings, job.inputs["results"])
    rows = len(frontiers.decodings)
    with style.drawing(7.2, 0.9 + 2.5 * rows, job.out) as figure:
        grid = figure.subplots(rows, len(DATASETS), sharey=True, squeeze=False)
        for panels, decoding in zip(grid, frontiers.decodings, strict=True):
            for panel, dataset in zip(panels, DATASETS, strict=True):
                _draw_frontiers(panel, frontiers, dataset, decoding)
                panel.set_title(style.panel_title(settings, dataset, separator="\n") + f", {decoding}")
            panels[0].set_ylabel("accuracy (%)")
        for panel in grid[-1]:
            panel.set_xlabel("average cost per case (USD)")
        style.draw_legend_above(figure, grid[0, 0], 4, columnspacing=1.5)
        bars = "bars: 95% intervals over seeds and cases; dotted: the cost of CDPR, and half that of GRPO"
        style.write_notes(figure, settings, [bars, *frontiers.notes()])


def _draw_frontiers(panel: style.Axes, frontiers: Frontiers, dataset: str, decoding: str) -> None:
    """Draw in ``panel`` all curves that were measured on a data set, without the agent at which they begin. Dotted
    lines mark CDPR's cost and half of GRPO's."""
    highest_cost = 1.0
    for label, curve in frontiers.curves.items():
        try:
            samples = frontiers.curve_samples(label, dataset, decoding)
        except NotMeasured:
            continue
        # Without the first point, which all curves share. Each point has an array [1 + resamples, 2].
        points = [estimate("accuracy", [point[0, 0]], point[1:, 0]) | estimate("aec", [point[0, 1]], point[1:, 1])
                  for point in samples.swapaxes(0, 1)[1:]]  # fmt: skip
        points.sort(key=lambda point: point["aec"])
        look = style.look_of(frontiers.settings, curve[0].name)
        style.draw_points(panel, points, "aec", "accuracy", look, label=label, linestyle=look.line, linewidth=1.2)
        highest_cost = max(highest_cost, points[-1]["aec"])
    panel.set_xlim(0, 1.2 * highest_cost)  # of the points: intervals of few seeds can be very long, and are cut off
    for variant, share in ((OURS, 1.0), (OUTCOME_ALONE, 0.5)):
        try:
            cost = frontiers.variant_samples(variant, dataset, decoding)[0, 1]  # the mean cost
        except NotMeasured:
            continue
        colour = style.look_of(frontiers.settings, variant).colour
        panel.axvline(share * cost, linestyle=":", linewidth=0.8, color=colour)
