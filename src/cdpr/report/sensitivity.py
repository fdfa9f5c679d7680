"""One setting swept at a time: accuracy by value, its effect on cost, and the number of seeds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path

import numpy as np

from ..files import write_text
from ..job import Job
from ..settings import Settings, Sweep, job_of, sweeps, value_at
from . import style
from .comparisons import ACCURACY, favour
from .methods import IN_DOMAIN, LEAST_SEEDS, OURS, trained
from .results import Results
from .table import Row, interval, number, to_csv

# Label of a metric's axis. Below the accuracy is the cost; for a weight of the utility, what it puts a price on.
LABELS = {"accuracy": "accuracy (%)", "aec": "USD", "aen": "examinations", "n_na": "unavailable"}
_PRICES = {"utility.lambda_test": "aen", "utility.lambda_na": "n_na"}
_COLUMNS = ("tier", "decoding", "sweep", "symbol", "value", "default", "variant", "seeds", "k", "n", "accuracy", "low",
            "high", "aen", "aec", "n_na", "utility", "difference", "difference_low", "difference_high",
            "status")  # fmt: skip
COLUMNS = 3


@dataclass(frozen=True)
class Panel:
    """A sweep with its points in order: rows of the results, in-domain with the main decoding; ``at`` is the method of
    one value, with one run per seed."""

    sweep: Sweep
    points: Sequence[Row]

    @property
    def measured(self) -> list[Row]:
        """Points with results."""
        return [point for point in self.points if "accuracy" in point]

    @property
    def best(self) -> list[Row]:
        """Points with the highest accuracy, several when they tie, none when nothing was measured."""
        highest = max((point["accuracy"] for point in self.measured), default=0.0)
        return [point for point in self.measured if point["accuracy"] == highest]

    @property
    def most_useful(self) -> Row | None:
        """The point with the highest mean utility: training maximises that, so it need not be the most accurate one."""
        return max((p for p in self.points if "utility" in p), key=itemgetter("utility"), default=None)

    @property
    def default(self) -> Row:
        """The point that the configuration has."""
        return next(point for point in self.points if point["default"] == "yes")


def read_panels(settings: Settings, folder: Path, where: str, every: bool = False) -> tuple[Results, list[Panel]]:
    """Read the sweeps of a figure, the chosen points or ``every`` one. Raises as :class:`Results` does."""
    planned = sweeps(settings, where, every)
    variants = [variant for points in planned.values() for variant in points.values()]
    methods = {variant: replace(trained(settings, job_of(settings, variant)), name=variant) for variant in variants}
    results = Results(settings, folder, list(methods.values()))
    panels = []
    for name, points in planned.items():
        sweep = settings.experiments.sweeps[name]
        own = value_at(settings, sweep.setting)
        panels.append(Panel(sweep, [
            results.summary(methods[variant], IN_DOMAIN, results.decodings[0]) | {
                "sweep": name, "symbol": sweep.symbol, "variant": variant, "at": methods[variant],
                "value": f"{value:g}" if isinstance(value, float) else str(value).lower(),
                "default": "yes" if value == own else "no",
            }
            for value, variant in points.items()
        ]))  # fmt: skip
    return results, panels


def draw_sweeps(settings: Settings, job: Job, where: str, every: bool = False) -> None:
    """Draw a panel per sweep of two points or more, and write the numbers of all as CSV.

    Accuracy (%) by value with 95% intervals over seeds and cases, values evenly spaced, below each its number of
    seeds; below it the cost (or what the swept weight puts a price on). The default is marked, and a peak where one
    is shown. Raises as :func:`read_panels`.
    """
    results, every_panel = read_panels(settings, job.inputs["results"], where, every)
    panels = [panel for panel in every_panel if len(panel.points) > 1]
    rows = max(1, -(-len(panels) // COLUMNS))
    with style.drawing(7.2, 0.75 + 2.3 * rows, job.out) as figure:
        grid = figure.subplots(2 * rows, COLUMNS, height_ratios=[2.1, 1.0] * rows, squeeze=False)
        pairs = list(zip(grid[::2].flat, grid[1::2].flat, strict=True))
        for axes in (axes for pair in pairs[len(panels) :] for axes in pair):
            axes.set_axis_off()
        pairs = pairs[: len(panels)]
        for pair, panel in zip(pairs, panels, strict=True):
            _draw_panel(*pair, results, panel)
        _share_scales(pairs, panels)
        drawn = {
            label: handle for pair in pairs for handle, label in zip(*pair[0].get_legend_handles_labels(), strict=True)
        }
        figure.legend(drawn.values(), drawn, loc="outside upper center", ncols=5, fontsize=7, columnspacing=1.4)
        unswept = ", ".join(panel.sweep.symbol for panel in every_panel if panel not in panels)
        left_out = f"not swept in the {settings.tier}: {unswept} (snakemake sensitivity_all)" if unswept else ""
        style.foot(figure, settings, [left_out, *_notes(results, panels)])
    write_text(job.out["csv"], to_csv(sweep_rows(results, every_panel), _COLUMNS))


# The paper's figure, a panel for each of its six settings; the same with every point of the experiments; and a panel
# for each setting that the paper leaves open, with every point.
plot_sensitivity = partial(draw_sweeps, where="sensitivity")
plot_sensitivity_all = partial(draw_sweeps, where="sensitivity", every=True)
plot_further_sensitivity = partial(draw_sweeps, where="further_sensitivity", every=True)


def sweep_rows(results: Results, panels: Sequence[Panel]) -> list[Row]:
    """Return one row per point. Accuracies are shares; ``difference`` is accuracy minus the default's on the same cases
    and seeds. ``status`` names the runs behind these figures that diverged."""
    rows = []
    for panel in panels:
        for point in panel.points:
            change = {} if point is panel.default else compare(results, point, panel.default)
            ends = {f"difference{end}": change.get(f"accuracy{end}") for end in ("", "_low", "_high")}
            rows.append(point | {"low": point.get("accuracy_low"), "high": point.get("accuracy_high")} | ends)
    return rows


def compare(results: Results, first: Row, second: Row) -> Row:
    """Compute first point minus the second, paired by case and by the seeds that both have."""
    return results.change(first["at"], second["at"], IN_DOMAIN, results.decodings[0])


def verdict(results: Results, panel: Panel) -> tuple[str, bool]:
    """Two lines, the highest value and how far it is above the default (of the default itself: above the next that is
    not as good), and whether that shows a peak; what is not measured is no part of it."""
    best, measured = panel.best, panel.measured
    if len(measured) < 2:
        if not measured:
            return "nothing measured\n", False
        return f"only {measured[0]['value']} measured: {_percent(measured[0])}\n", False
    first = panel.default if panel.default in best else best[0]
    among = "" if len(measured) == len(panel.points) else f" of {len(measured)} measured:"
    text = f"highest{among} {' and '.join(point['value'] for point in best)}, {_percent(first)}"
    others = [point for point in measured if point not in best] or [point for point in measured if point is not first]
    other = max(others, key=itemgetter("accuracy")) if first is panel.default else panel.default
    change = compare(results, first, other)
    if "reason" in change:
        return f"{text}\ndefault {panel.default['value']}: missing", False
    if few := [p["value"] for p in measured if len(p["at"].runs) < LEAST_SEEDS[p is panel.default]]:
        return f"{text}\nopen: too few seeds at {', '.join(few)}", False
    clear = favour(change, ACCURACY) == "better"
    over = f"over {'default' if other is panel.default else 'next'} {other['value']}: "
    over += interval(*(100 * change[f"accuracy{end}"] for end in ("", "_low", "_high")), signed=True)
    return f"{text}\n{over}{'' if clear else ', open'}", clear


def _percent(point: Row) -> str:
    return f"{number(100 * point['accuracy'], 1)}%"


def _draw_panel(above: style.Axes, below: style.Axes, results: Results, panel: Panel) -> None:
    """Draw a sweep: accuracy above, and the metric that its setting puts a price on below."""
    _draw_metric(above, panel, "accuracy", 100.0, style.look_of(results.settings, OURS).colour)
    _draw_metric(below, panel, _metric_below(panel), 1.0, style.GREY)
    words, peak = verdict(results, panel)
    best = [(at, 100 * point["accuracy"]) for at, point in enumerate(panel.points) if peak and point in panel.best]
    if best:
        above.plot(*zip(*best, strict=True), linestyle="", marker="o", markersize=10, markerfacecolor="none",
                   markeredgecolor=style.VERMILION, markeredgewidth=1.2, zorder=4,
                   label="peak of accuracy")  # fmt: skip
    if star := panel.most_useful:
        above.plot(panel.points.index(star), 100 * star["accuracy"], linestyle="", marker="*", markersize=11, zorder=4,
                   color=style.VERMILION, markeredgecolor="white", label="highest mean utility")  # fmt: skip
    for axes in (above, below):
        axes.set_xlim(-0.5, len(panel.points) - 0.5)
        axes.set_xticks(range(len(panel.points)))
        axes.grid(False, axis="x")
    above.tick_params(labelbottom=False)
    below.set_xticklabels([f"{point['value']}\n×{len(point['at'].runs)}" for point in panel.points])
    below.get_xticklabels()[panel.points.index(panel.default)].set_fontweight("bold")
    # λ_test with its index set low; what is no symbol with an index stays.
    below.set_xlabel(re.sub(r"^(.)_([^\W\d_]+)$", r"$\1_{\\mathrm{\2}}$", panel.sweep.symbol), labelpad=1)
    above.set_title(panel.sweep.label, loc="left", fontsize=8, fontweight="bold", pad=20)
    words = f"{style.made_up(results.settings)}: {words}".strip(", :")
    text = above.text(0.0, 1.03, words, transform=above.transAxes, fontsize=6.5, va="bottom", linespacing=1.15)
    # The layout keeps room above a panel for its title; words wider than the panel must not make it narrower.
    text.set_in_layout(False)


def _metric_below(panel: Panel) -> str:
    return _PRICES.get(panel.sweep.setting, "aec")


def _draw_metric(axes: style.Axes, panel: Panel, metric: str, factor: float, colour: str) -> None:
    """Draw a metric by value with its intervals, the default as a diamond; a cross where it is missing."""
    names = [f"{metric}{end}" for end in ("", "_low", "_high")]
    mean, low, high = factor * np.array([[point.get(name, np.nan) for name in names] for point in panel.points]).T
    axes.errorbar(range(len(mean)), mean, yerr=np.maximum([mean - low, high - mean], 0), color=colour, linewidth=1.2,
                  elinewidth=0.8, capsize=2, marker="o", markersize=4.5, markerfacecolor="white", zorder=2,
                  label="CDPR, one setting changed")  # fmt: skip
    default = panel.points.index(panel.default)
    axes.plot(default, mean[default], "D", markersize=5, color=colour, zorder=3, label="default")
    for at in np.flatnonzero(np.isnan(mean)):
        across = axes.get_xaxis_transform()
        axes.plot(at, 0.06, "x", color=style.BLACK, markersize=4, transform=across, label="missing")
        if metric == "accuracy":
            axes.text(at, 0.13, "missing", transform=across, rotation=90, fontsize=6.5, ha="center", va="bottom")


def _share_scales(pairs: Sequence[tuple[style.Axes, style.Axes]], panels: Sequence[Panel]) -> None:
    """Give each metric one scale in the whole figure; its label is where the panel on the left has another metric."""
    kinds = [
        {"accuracy": above, _metric_below(panel): below} for (above, below), panel in zip(pairs, panels, strict=True)
    ]
    is_measured = any(panel.measured for panel in panels)
    for metric in {metric for kind in kinds for metric in kind}:
        same = [(at, kind[metric]) for at, kind in enumerate(kinds) if metric in kind]
        limits = [axes.get_ylim() for at, axes in same if panels[at].measured] or [(0.0, 1.0)]
        low, high = min(low for low, _ in limits), max(high for _, high in limits)
        for at, axes in same:
            axes.set_ylim(*((low, high) if metric == "accuracy" else (0.0, 1.1 * high)))
            axes.tick_params(left=is_measured, labelleft=is_measured)
            if at % COLUMNS and metric in kinds[at - 1]:
                axes.tick_params(labelleft=False)
            else:
                axes.set_ylabel(LABELS[metric])


def _notes(results: Results, panels: Sequence[Panel]) -> list[str]:
    settings = results.settings
    points = [point for panel in panels for point in panel.points]
    lost = [point["variant"] for point in points if "accuracy" not in point]
    cases = max((point.get("n", 0) for point in points), default=0)
    broken = dict.fromkeys(end for panel in panels for p in panel.measured for end in results.diverged(*p["at"].runs))
    return [
        style.missing_note(lost),
        *style.folded([f"{'; '.join(broken)}: evaluated with the weights before"] if broken else []),
        *style.folded(results.judging()),
        f"{settings.evaluation.decodings[0]} decoding, {f'{cases} ' if cases else ''}in-domain test cases; "
        "bars and brackets: 95% intervals over seeds and cases; values evenly spaced",
        "below a value: × number of training seeds; differences of accuracy in points",
    ]
