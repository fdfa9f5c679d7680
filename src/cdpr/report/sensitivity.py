"""One setting swept at a time: accuracy by value, the effect of the setting on cost, and the number of seeds."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from ..files import write_text
from ..job import Job
from ..settings import Settings, Sweep, job_of, sweeps, value_at
from . import style
from .comparisons import ACCURACY, outcome_of
from .methods import IN_DOMAIN, LEAST_SEEDS, OURS, variant_method
from .results import Results
from .table import Row, interval, number, to_csv

# Labels of the vertical axes.
LABELS = {"accuracy": "accuracy (%)", "aec": "USD", "aen": "examinations", "n_na": "unavailable"}
# The metric below the accuracy is the cost; for a weight of the utility it is what the weight puts a price on.
_PRICED_METRIC = {"utility.lambda_test": "aen", "utility.lambda_na": "n_na"}
_COLUMNS = ("tier", "decoding", "sweep", "symbol", "value", "default", "variant", "seeds", "k", "n", "accuracy", "low",
            "high", "aen", "aec", "n_na", "utility", "difference", "difference_low", "difference_high",
            "status")  # fmt: skip
PANELS_PER_ROW = 3


@dataclass(frozen=True)
class Panel:
    """A sweep with its points in the order of the values.

    A point is the in-domain row of its variant (:meth:`Results.summary`, main decoding) with its ``value`` as text, its
    ``default`` (``yes`` or ``no``: whether the configuration has this value), and ``point_method``, the method with one
    run per seed.
    """

    sweep: Sweep
    points: Sequence[Row]

    @property
    def measured(self) -> list[Row]:
        """The points with results."""
        return [point for point in self.points if "accuracy" in point]

    @property
    def most_accurate(self) -> list[Row]:
        """The points with the highest accuracy: several when they tie, none when nothing was measured."""
        highest = max((point["accuracy"] for point in self.measured), default=0.0)
        return [point for point in self.measured if point["accuracy"] == highest]

    @property
    def default(self) -> Row:
        """The point of the configuration's own value."""
        return next(point for point in self.points if point["default"] == "yes")

    @property
    def lower_metric(self) -> str:
        """The metric that is drawn below the accuracy."""
        return _PRICED_METRIC.get(self.sweep.setting, "aec")


def read_panels(settings: Settings, folder: Path, figure: str, every: bool = False) -> tuple[Results, list[Panel]]:
    """Read the sweeps of a figure: the points that the settings choose, or ``every`` one. Raises as :class:`Results`
    does."""
    variants = sweeps(settings, figure, every)
    methods = {variant: replace(variant_method(settings, job_of(settings, variant)), name=variant)
               for points in variants.values() for variant in points.values()}  # fmt: skip
    results = Results(settings, folder, list(methods.values()))
    panels = []
    for name, points in variants.items():
        sweep = settings.experiments.sweeps[name]
        default, rows = value_at(settings, sweep.setting), []
        for value, variant in points.items():
            row = results.summary(methods[variant], IN_DOMAIN, results.decodings[0])
            row |= {"sweep": name, "symbol": sweep.symbol, "variant": variant, "point_method": methods[variant]}
            row["value"] = f"{value:g}" if isinstance(value, float) else str(value).lower()
            row["default"] = "yes" if value == default else "no"
            rows.append(row)
        panels.append(Panel(sweep, rows))
    return results, panels


def draw_sweeps(settings: Settings, job: Job, figure: str, every: bool = False) -> None:
    """Draw a panel per sweep with at least two points, and write the numbers of all sweeps as CSV.

    A panel shows accuracy (%) by value with 95% intervals over seeds and cases. Below it is the cost, or what the swept
    weight puts a price on. Values are evenly spaced, each above its number of seeds; the default is marked, and the
    title says where the accuracy is highest. Raises as :func:`read_panels`.
    """
    results, all_panels = read_panels(settings, job.inputs["results"], figure, every)
    panels = [panel for panel in all_panels if len(panel.points) > 1]
    rows = max(1, -(-len(panels) // PANELS_PER_ROW))
    with style.drawing(7.2, 0.75 + 2.3 * rows, job.out) as drawn:
        grid = drawn.subplots(2 * rows, PANELS_PER_ROW, height_ratios=[2.1, 1.0] * rows, squeeze=False)
        upper, lower = grid[::2].ravel(), grid[1::2].ravel()
        for unused in (*upper[len(panels) :], *lower[len(panels) :]):
            unused.set_axis_off()
        handle_by_label: dict[str, style.Artist] = {}
        for panel, above, below in zip(panels, upper, lower, strict=False):
            _draw_panel(above, below, results, panel)
            handles, labels = above.get_legend_handles_labels()
            handle_by_label |= dict(zip(labels, handles, strict=True))
        _share_scales(panels, upper, ["accuracy"] * len(panels))
        _share_scales(panels, lower, [panel.lower_metric for panel in panels])
        drawn.legend(handle_by_label.values(), handle_by_label, loc="outside upper center", ncols=5, fontsize=7,
                     columnspacing=1.4)  # fmt: skip
        style.write_notes(drawn, settings, _notes(results, panels, all_panels))
    write_text(job.out["csv"], to_csv(sweep_rows(results, all_panels), _COLUMNS))


# The paper's figure, a panel for each of its six settings; the same with every point of the experiments; and a panel
# for each setting that the paper leaves open, with every point.
plot_sensitivity = partial(draw_sweeps, figure="sensitivity")
plot_sensitivity_all = partial(draw_sweeps, figure="sensitivity", every=True)
plot_further_sensitivity = partial(draw_sweeps, figure="further_sensitivity", every=True)


def sweep_rows(results: Results, panels: Iterable[Panel]) -> list[Row]:
    """Return the rows of the CSV, one per point. Accuracies are shares; ``difference`` is the accuracy minus that of
    the default, on the same cases and seeds. ``status`` names the runs that diverged."""
    rows = []
    for panel in panels:
        for point in panel.points:
            change = {} if point is panel.default else compare(results, point, panel.default)
            differences = {f"difference{end}": change.get(f"accuracy{end}") for end in ("", "_low", "_high")}
            ends = {"low": point.get("accuracy_low"), "high": point.get("accuracy_high")}
            rows.append(point | ends | differences)
    return rows


def compare(results: Results, first: Row, second: Row) -> Row:
    """Return the row of the first point minus the second, paired by case and by the seeds that both have."""
    return results.change(first["point_method"], second["point_method"], IN_DOMAIN, results.decodings[0])


def describe_peak(results: Results, panel: Panel) -> str:
    """Describe in two lines which value has the highest accuracy, and by how much: ``highest 8, 67.8%`` and ``over
    default 4: +2.50 [0.40, 4.60]``. Where the default is the highest, it is compared with the next best value. A
    difference whose interval does not show it is called open."""
    best, measured = panel.most_accurate, panel.measured
    if not measured:
        return "nothing measured\n"
    if len(measured) == 1:
        return f"only {measured[0]['value']} measured: {_percent(measured[0])}\n"
    among = "" if len(measured) == len(panel.points) else f" of {len(measured)} measured:"
    text = f"highest{among} {' and '.join(point['value'] for point in best)}, {_percent(best[0])}"
    if panel.default in best:
        first, relation = panel.default, "next"
        others = [point for point in measured if point not in best] or [p for p in measured if p is not first]
        other = max(others, key=itemgetter("accuracy"))
    else:
        first, relation, other = best[0], "default", panel.default
    change = compare(results, first, other)
    if "reason" in change:
        return f"{text}\ndefault {panel.default['value']}: missing"
    few_seeds = [point["value"] for point in measured
                 if len(point["point_method"].runs) < LEAST_SEEDS[point is panel.default]]  # fmt: skip
    if few_seeds:
        return f"{text}\nopen: too few seeds at {', '.join(few_seeds)}"
    mean, low, high = (100 * change[f"accuracy{end}"] for end in ("", "_low", "_high"))
    is_open = "" if outcome_of(change, ACCURACY) == "better" else ", open"
    return f"{text}\nover {relation} {other['value']}: {interval(mean, low, high, signed=True)}{is_open}"


def _percent(point: Row) -> str:
    """Return the accuracy of a point as text: ``67.8%``."""
    return f"{number(100 * point['accuracy'], 1)}%"


def _draw_panel(above: style.Axes, below: style.Axes, results: Results, panel: Panel) -> None:
    """Draw a sweep: accuracy above, and the metric that its setting puts a price on below."""
    _draw_metric(above, panel, "accuracy", 100.0, style.look_of(results.settings, OURS).colour)
    _draw_metric(below, panel, panel.lower_metric, 1.0, style.GREY)
    for axes in (above, below):
        axes.set_xlim(-0.5, len(panel.points) - 0.5)
        axes.set_xticks(range(len(panel.points)))
        axes.grid(False, axis="x")
    above.tick_params(labelbottom=False)
    below.set_xticklabels([f"{point['value']}\n×{len(point['point_method'].runs)}" for point in panel.points])
    below.get_xticklabels()[panel.points.index(panel.default)].set_fontweight("bold")
    # λ_test with its index set low; what is no symbol with an index stays.
    below.set_xlabel(re.sub(r"^(.)_([^\W\d_]+)$", r"$\1_{\\mathrm{\2}}$", panel.sweep.symbol), labelpad=1)
    above.set_title(panel.sweep.label, loc="left", fontsize=8, fontweight="bold", pad=20)
    text = f"{style.synthetic_suffix(results.settings)}: {describe_peak(results, panel)}".strip(", :")
    words = above.text(0.0, 1.03, text, transform=above.transAxes, fontsize=6.5, va="bottom", linespacing=1.15)
    # The layout keeps room above a panel for its title; words wider than the panel must not make it narrower.
    words.set_in_layout(False)


def _draw_metric(axes: style.Axes, panel: Panel, metric: str, factor: float, colour: str) -> None:
    """Draw a metric by value with its intervals, the default as a diamond; a cross where it is missing."""
    mean, low, high = (factor * np.array([point.get(f"{metric}{end}", np.nan) for point in panel.points])
                       for end in ("", "_low", "_high"))  # fmt: skip
    axes.errorbar(range(len(mean)), mean, yerr=np.maximum([mean - low, high - mean], 0), color=colour, linewidth=1.2,
                  elinewidth=0.8, capsize=2, marker="o", markersize=4.5, markerfacecolor="white", zorder=2,
                  label="CDPR, one setting changed")  # fmt: skip
    default = panel.points.index(panel.default)
    axes.plot(default, mean[default], "D", markersize=5, color=colour, zorder=3, label="default")
    for position in np.flatnonzero(np.isnan(mean)):
        near_bottom = {"transform": axes.get_xaxis_transform()}
        axes.plot(position, 0.06, "x", color=style.BLACK, markersize=4, label="missing", **near_bottom)


def _share_scales(panels: Sequence[Panel], axes_in_order: Sequence[style.Axes], metrics: Sequence[str]) -> None:
    """Give all axes with the same metric one scale, which is labelled where the panel on the left has another metric or
    there is none."""
    is_measured = any(panel.measured for panel in panels)
    for metric in set(metrics):
        limits = [axes.get_ylim() for axes, panel, name in zip(axes_in_order, panels, metrics, strict=False)
                  if name == metric and panel.measured] or [(0.0, 1.0)]  # fmt: skip
        lows, highs = zip(*limits, strict=True)
        scale = (min(lows), max(highs)) if metric == "accuracy" else (0.0, 1.1 * max(highs))
        for index, axes in enumerate(axes_in_order[: len(panels)]):
            if metrics[index] == metric:
                same_on_left = index % PANELS_PER_ROW > 0 and metrics[index - 1] == metric
                axes.set_ylim(*scale)
                axes.tick_params(left=is_measured, labelleft=is_measured and not same_on_left)
                axes.set_ylabel("" if same_on_left else LABELS[metric])


def _notes(results: Results, panels: Sequence[Panel], all_panels: Sequence[Panel]) -> list[str]:
    """Return the notes below the figure: what is not swept, missing or diverged, who judged, and what is drawn."""
    settings = results.settings
    points = [point for panel in panels for point in panel.points]
    unswept = ", ".join(panel.sweep.symbol for panel in all_panels if panel not in panels)
    missing = [point["variant"] for point in points if "accuracy" not in point]
    measured_runs = dict.fromkeys(run for point in points if "accuracy" in point for run in point["point_method"].runs)
    diverged = "; ".join(results.divergences(measured_runs))
    cases = max((point.get("n", 0) for point in points), default=0)
    return [
        f"not swept in the {settings.tier}: {unswept} (snakemake sensitivity_all)" if unswept else "",
        style.missing_note(missing),
        f"{diverged}: evaluated with the weights before" if diverged else "",
        *results.judging_notes(),
        f"{settings.evaluation.decodings[0]} decoding, {f'{cases} ' if cases else ''}in-domain test cases; "
        "bars and brackets: 95% intervals over seeds and cases; values evenly spaced",
        "below a value: × number of training seeds; differences of accuracy in points",
    ]
