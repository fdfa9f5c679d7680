"""One setting swept at a time: accuracy by value, what it does to cost, and how far seeds alone move both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Estimate, Summary
from ..files import write_text
from ..job import Job
from ..results.frame import Cells, line, long_table
from ..results.methods import IN_DOMAIN, OURS, Method, trained
from ..results.results import Hole, Results, results_folder
from ..results.table import Table, number, to_csv
from ..settings import Settings, Sweep, job_of, seeds_of, sweeps, value_at
from . import style

# Label of a metric's axis. Below the accuracy stands the cost; for a weight of the utility, what it puts a price on.
LABELS = {"accuracy": "accuracy (%)", "aec": "AEC (USD)", "aen": "AEN", "n_na": r"$N_{\mathrm{na}}$"}
_PRICES = {"utility.lambda_test": "aen", "utility.lambda_na": "n_na"}
_NUMBERS = ("accuracy", "low", "high", "aen", "aec", "n_na", "utility", "difference", "difference_low",
            "difference_high", "seed_low", "seed_high")  # fmt: skip
_LIGHT = "#dcdcdc"
COLUMNS = 3


@dataclass(frozen=True, eq=False)
class Point:
    """One value of a sweep. ``method`` holds the runs of the seeds that all points share, ``found`` what they did
    in-domain with the main decoding."""

    value: object
    method: Method
    default: bool
    found: Summary | Hole

    @property
    def accuracy(self) -> float | None:
        """Share of right diagnoses, None where it was not measured."""
        return None if isinstance(self.found, Hole) else self.found.estimates["accuracy"].mean

    @property
    def shown(self) -> str:
        """The value as text."""
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value).lower()


@dataclass(frozen=True, eq=False)
class Panel:
    """A sweep with its points in order. ``default_seeds`` is the default trained with all its seeds: the range of
    their means is what a difference must exceed to be more than noise between trainings."""

    name: str
    sweep: Sweep
    seeds: tuple[int, ...]
    points: tuple[Point, ...]
    default_seeds: Summary | Hole

    @property
    def measured(self) -> list[Point]:
        """Points with results."""
        return [point for point in self.points if point.accuracy is not None]

    @property
    def best(self) -> list[Point]:
        """Points with the highest accuracy, several when they tie, none when nothing was measured."""
        highest = max((point.accuracy or 0.0 for point in self.measured), default=0.0)
        return [point for point in self.measured if point.accuracy == highest]

    def spread(self, metric: str) -> tuple[float, float] | None:
        """Lowest and highest mean of a metric among the default's seeds; None for fewer than two seeds."""
        if isinstance(self.default_seeds, Hole) or len(self.default_seeds.runs) < 2:
            return None
        means = self.default_seeds.estimates[metric].by_seed
        return min(means), max(means)


def read_panels(settings: Settings, folder: Path, where: str) -> tuple[Results, list[Panel]]:
    """The sweeps of a figure, measured in-domain with the main decoding; a missing point holds a Hole. Raises as
    :class:`Results` does."""
    planned = []
    for name, variants in sweeps(settings, where).items():
        sweep = settings.experiments.sweeps[name]
        own = value_at(settings, sweep.setting)
        seeds = tuple(s for s in settings.seeds if all(s in seeds_of(settings, v) for v in variants.values()))
        points = {
            value: replace(trained(settings, v), runs=tuple(f"{job_of(settings, v)}-seed{seed}" for seed in seeds))
            for value, v in variants.items()
        }
        # The default point with every seed that its job is trained with.
        planned.append((name, sweep, own, seeds, points, trained(settings, job_of(settings, variants[own]))))
    results = Results(settings, folder, [m for *_, points, repeated in planned for m in (*points.values(), repeated)])

    def found(method: Method) -> Summary | Hole:
        return results.summary(method, IN_DOMAIN, settings.evaluation.decodings[0])

    panels = [
        Panel(name, sweep, seeds, tuple(Point(value, method, value == own, found(method)) for value, method in
                                        points.items()), found(repeated))
        for name, sweep, own, seeds, points, repeated in planned
    ]  # fmt: skip
    return results, panels


def plot_sensitivity(settings: Settings, job: Job) -> None:
    """The paper's figure: a panel for each of its six settings. See :func:`draw_sweeps`."""
    draw_sweeps(settings, job, "sensitivity")


def plot_further_sensitivity(settings: Settings, job: Job) -> None:
    """A panel for each setting that the paper leaves open. See :func:`draw_sweeps`."""
    draw_sweeps(settings, job, "further_sensitivity")


def draw_sweeps(settings: Settings, job: Job, where: str) -> None:
    """A panel per sweep, and its numbers as CSV.

    Accuracy (%) by value with 95% intervals over cases, values evenly spaced; below it the cost (or what the swept
    weight puts a price on). The default is marked and so is the measured best, wherever it is. Only seeds that all
    points of a sweep share are compared. Raises as :func:`read_panels`.
    """
    results, panels = read_panels(settings, results_folder(settings, job), where)
    rows = max(1, -(-len(panels) // COLUMNS))
    with style.drawing(7.2, 0.75 + 2.3 * rows, job.out) as figure:
        grid = figure.subplots(2 * rows, COLUMNS, height_ratios=[2.1, 1.0] * rows, squeeze=False)
        pairs = [(grid[2 * row, column], grid[2 * row + 1, column]) for row in range(rows) for column in range(COLUMNS)]
        for axes in (axes for pair in pairs[len(panels) :] for axes in pair):
            axes.set_axis_off()
        for (above, below), panel in zip(pairs, panels, strict=False):
            _draw_panel(above, below, results, panel)
        _share_scales(pairs, panels)
        figure.legend(
            handles=_legend(settings, panels), loc="outside upper center", ncols=5, fontsize=7, columnspacing=1.4
        )
        style.foot(figure, settings, _notes(results, panels))
    write_text(job.out["csv"], to_csv(sweep_table(results, panels)))


def sweep_table(results: Results, panels: Sequence[Panel]) -> Table:
    """One line per point. Accuracies are shares; ``difference`` is accuracy minus the default's on the same cases and
    seeds; ``seed_low`` and ``seed_high`` (on the default's line) are the range of the default's seeds. ``status``
    names the runs behind these figures that diverged."""
    names = ("tier", "decoding", "sweep", "symbol", "value", "default", "variant", "seeds", "k", "n", *_NUMBERS)
    return long_table([_line(results, panel, point) for panel in panels for point in panel.points], (*names, "status"))


def _line(results: Results, panel: Panel, point: Point) -> Cells:
    cells = line(results, point.method, IN_DOMAIN, results.decodings[0]) | {
        "sweep": panel.name, "symbol": panel.sweep.symbol, "value": point.shown, "variant": point.method.name,
        "default": "yes" if point.default else "no",
    }  # fmt: skip
    spread = panel.spread("accuracy") if point.default else None
    cells |= dict(zip(("seed_low", "seed_high"), spread, strict=True)) if spread else {}
    if isinstance(point.found, Hole):
        return cells
    cells |= {"low": cells["accuracy_low"], "high": cells["accuracy_high"],
              "status": results.status(_behind(panel, point))}  # fmt: skip
    default = next(p for p in panel.points if p.default)
    difference = None if point.default else difference_of(results, point, default)
    if difference is not None:
        cells |= {"difference": difference.mean, "difference_low": difference.low, "difference_high": difference.high}
    return cells


def _behind(panel: Panel, point: Point) -> Method:
    """The point with all runs behind its figures: of the default also those that its range is of."""
    repeated = panel.default_seeds.runs if point.default and panel.spread("accuracy") else ()
    return replace(point.method, runs=tuple(dict.fromkeys((*point.method.runs, *repeated))))


def difference_of(results: Results, first: Point, second: Point) -> Estimate | None:
    """Accuracy of the first point minus the second's, paired by case and seed; None where one is missing."""
    found = results.compare(first.method, second.method, IN_DOMAIN, results.decodings[0])
    return None if isinstance(found, Hole) else found.differences["accuracy"]


def verdict(results: Results, panel: Panel) -> str:
    """Two lines: the measured best value, and how far it is above the default (of the default itself: above the next
    that is not as good); what is not measured is no part of it."""
    best, measured = panel.best, panel.measured
    if len(measured) < 2:
        return f"only {measured[0].shown} measured: {_percent(measured[0])}\n" if measured else "nothing measured\n"
    first = next((point for point in best if point.default), best[0])
    of = "" if len(measured) == len(panel.points) else f" of {len(measured)} measured:"
    text = f"best{of} {' and '.join(point.shown for point in best)}, {_percent(first)}"
    default = next(point for point in panel.points if point.default)
    others = [point for point in measured if point not in best] or [point for point in measured if point is not first]
    other = max(others, key=lambda point: point.accuracy or 0.0) if first is default else default
    difference = difference_of(results, first, other)
    if difference is None:
        return f"{text}\ndefault {default.shown}: missing"
    mean, low, high = (number(100 * at, 1, signed=True) for at in (difference.mean, difference.low, difference.high))
    return f"{text}\nover {'default' if other.default else 'next best'} {other.shown}: {mean} [{low}, {high}]"


def _percent(point: Point) -> str:
    return f"{number(100 * (point.accuracy or 0.0), 1)}%"


def _draw_panel(above: style.Axes, below: style.Axes, results: Results, panel: Panel) -> None:
    _draw_metric(above, panel, "accuracy", 100.0, style.look_of(results.settings, OURS).colour)
    _draw_metric(below, panel, below_of(panel), 1.0, style.GREY)
    if len(panel.measured) > 1:
        best = [(place, 100 * point.accuracy) for place, point in enumerate(panel.points) if point in panel.best]
        above.plot(*zip(*best, strict=True), linestyle="", marker="o", markersize=10, markerfacecolor="none",
                   markeredgecolor=style.VERMILION, markeredgewidth=1.2, zorder=4)  # fmt: skip
    for axes in (above, below):
        axes.set_xlim(-0.5, len(panel.points) - 0.5)
        axes.set_xticks(range(len(panel.points)))
        axes.grid(False, axis="x")
    above.tick_params(labelbottom=False)
    below.set_xticklabels([point.shown for point in panel.points])
    for label, point in zip(below.get_xticklabels(), panel.points, strict=True):
        label.set_fontweight("bold" if point.default else "normal")
    below.set_xlabel(_as_formula(panel.sweep.symbol), labelpad=1)
    above.set_title(panel.sweep.label, loc="left", fontsize=8, fontweight="bold", pad=20)
    words = above.text(0.0, 1.03, verdict(results, panel), transform=above.transAxes, fontsize=6.5, va="bottom",
                       linespacing=1.15)  # fmt: skip
    # The layout keeps room above a panel for its title; words wider than the panel must not make it narrower.
    words.set_in_layout(False)


def _as_formula(symbol: str) -> str:
    """``λ_test`` with its index set low; what is no symbol with an index stays."""
    head, _, index = symbol.partition("_")
    return f"${head}_{{\\mathrm{{{index}}}}}$" if len(head) == 1 and index.isalpha() else symbol


def below_of(panel: Panel) -> str:
    """The metric below the accuracy."""
    return _PRICES.get(panel.sweep.setting, "aec")


def _draw_metric(axes: style.Axes, panel: Panel, metric: str, factor: float, colour: str) -> None:
    spread = panel.spread(metric)
    if spread:
        low, high = (factor * value for value in spread)
        axes.axhspan(low, high, color=_LIGHT, linewidth=0, zorder=0.5)
        # A band of no height is still there to be seen.
        axes.plot([0, 1], [low, low], color=_LIGHT, linewidth=1, zorder=0.5, transform=axes.get_yaxis_transform())
    table = np.full((3, len(panel.points)), np.nan)
    for place, point in enumerate(panel.points):
        if isinstance(point.found, Hole):
            axes.plot(place, 0.06, marker="x", color=style.BLACK, markersize=4, transform=axes.get_xaxis_transform())
            if metric == "accuracy":
                axes.text(place, 0.13, "missing", transform=axes.get_xaxis_transform(), rotation=90, fontsize=6.5,
                          ha="center", va="bottom")  # fmt: skip
            continue
        at = point.found.estimates[metric]
        table[:, place] = factor * np.array([at.mean, at.mean - at.low, at.high - at.mean])
    places = np.arange(len(panel.points))
    seen = ~np.isnan(table[0])
    axes.plot(places, table[0], color=colour, linewidth=1.2, zorder=2)
    axes.errorbar(places[seen], table[0][seen], yerr=np.maximum(table[1:, seen], 0), fmt="none", ecolor=colour,
                  elinewidth=0.8, capsize=2, zorder=2)  # fmt: skip
    for default, marker, size in ((False, "o", 4.5), (True, "D", 5.0)):
        here = [place for place, point in enumerate(panel.points) if point.default == default and seen[place]]
        axes.plot(here, table[0][here], linestyle="", marker=marker, markersize=size, color=colour,
                  markerfacecolor=colour if default else "white", zorder=3)  # fmt: skip


def _share_scales(pairs: Sequence[tuple[style.Axes, style.Axes]], panels: Sequence[Panel]) -> None:
    """One scale per metric in the whole figure, so that panels can be compared; labels where the scale changes."""
    if not any(panel.measured for panel in panels):
        for axes in (axes for pair in pairs for axes in pair):
            axes.set_yticks([])
        return
    drawn = zip(pairs, panels, strict=False)
    kinds = [{"accuracy": above, below_of(panel): below} for (above, below), panel in drawn]
    for metric in {metric for panel in kinds for metric in panel}:
        same = [(place, panel[metric]) for place, panel in enumerate(kinds) if metric in panel]
        limits = [axes.get_ylim() for place, axes in same if panels[place].measured] or [(0.0, 1.0)]
        low = min(at[0] for at in limits) if metric == "accuracy" else 0.0
        high = max(at[1] for at in limits)
        for place, axes in same:
            axes.set_ylim(low, high if metric == "accuracy" else 1.1 * high)
            if place % COLUMNS and metric in kinds[place - 1]:
                axes.tick_params(labelleft=False)
            else:
                axes.set_ylabel(LABELS[metric])


def _legend(settings: Settings, panels: Sequence[Panel]) -> list:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colour = style.look_of(settings, OURS).colour
    ring = {"markersize": 8, "markerfacecolor": "none", "markeredgecolor": style.VERMILION}
    handles: list = [
        Line2D([], [], color=colour, linewidth=1.2, marker="o", markersize=4.5, markerfacecolor="white",
               label="CDPR, one setting changed"),
        Line2D([], [], color=colour, linestyle="", marker="D", markersize=5, label="default"),
        Line2D([], [], linestyle="", marker="o", **ring, label="best measured"),
    ]  # fmt: skip
    if any(panel.spread("accuracy") for panel in panels):
        handles.append(Patch(color=_LIGHT, label="seeds of the default"))
    if any(len(panel.measured) < len(panel.points) for panel in panels):
        handles.append(Line2D([], [], color=style.BLACK, linestyle="", marker="x", markersize=4, label="missing"))
    return handles


def _notes(results: Results, panels: Sequence[Panel]) -> list[str]:
    settings = results.settings
    found = [point for panel in panels for point in panel.points]
    lost = [point.method.name for point in found if isinstance(point.found, Hole)]
    cases = max((point.found.cases for point in found if isinstance(point.found, Summary)), default=0)
    seeds = sorted({panel.seeds for panel in panels})
    shown = " or ".join(", ".join(map(str, chosen)) for chosen in seeds)
    repeated = [panel.default_seeds for panel in panels]
    counts = {len(at.runs) for at in repeated if isinstance(at, Summary)}
    band = "the default's seeds are missing" if any(isinstance(at, Hole) for at in repeated) else "no band: one seed"
    if max(counts, default=1) > 1:
        band = f"grey: lowest to highest of the default's {max(counts)} seeds"
    behind = [_behind(panel, point) for panel in panels for point in panel.measured]
    broken = dict.fromkeys(end for method in behind for end in results.diverged(*method.runs))
    return [
        style.missing_note(lost),
        *style.folded([f"{'; '.join(broken)}: evaluated with the weights before"] if broken else []),
        f"{settings.evaluation.decodings[0]} decoding, {f'{cases} ' if cases else ''}in-domain test cases; "
        "bars and brackets: 95% intervals over cases; values evenly spaced",
        f"points: seed{'s' if ',' in shown else ''} {shown}; {band}",
    ]
