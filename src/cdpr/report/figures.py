"""Figures about training and about accuracy against cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..results.curves import Curves, read_curves
from ..results.methods import DATASETS, IN_DOMAIN, REFERENCE, Method, main_methods, trained
from ..results.provenance import check_training
from ..results.results import Hole, Results
from ..results.sources import notices
from ..settings import Settings, shown
from . import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Metric of a panel: label of its axis and factor for printing.
PANELS = {
    "accuracy": ("validation accuracy (%)", 100.0), "utility": ("utility", 1.0), "aec": ("AEC (USD)", 1.0),
    "aen": ("AEN", 1.0), "n_na": ("N_na per case", 1.0),
}  # fmt: skip
LEARNT = ("accuracy", "aen", "aec", "n_na", "utility")
Point = tuple[Method, float, float, tuple[float, float], tuple[float, float]]


def plot_training_efficiency(
    settings: Settings, results_dir: str | Path, out_stem: str | Path, variants: Sequence[str] | None = None
) -> list[Path]:
    """Accuracy on the validation split (with utility and AEC below) against training wall-clock and against
    generated tokens, as ``out_stem`` + ``.png`` and ``.pdf``. One line per variant: mean over seeds, band from the
    lowest to the highest. Counterpart of the paper's figure "Training efficiency comparison".

    ``variants`` (default: those that the experiments file names) are the lines. A variant without metrics is named in
    the figure as missing; the end of a run that diverged is a small x. Raises CurveError for a broken metrics file,
    ProvenanceError for training runs of another tier or on different cases.
    """
    metrics = ("accuracy", "utility", "aec")
    curves = _curves(settings, results_dir, metrics, variants or shown(settings, "training_efficiency"))
    with style.drawing():
        figure = style.new_figure(7.2, 6.4)
        grid = figure.subplots(3, 2, sharex="col", sharey="row", height_ratios=[2.2, 1, 1])
        time_unit, seconds = _time_unit(curves)
        units: list[tuple[str, str, float]] = [
            ("seconds", f"training time ({time_unit})", seconds),
            ("tokens", "generated tokens (millions)", 1e6),
        ]
        for row, metric in enumerate(metrics):
            for column, (axis, label, unit) in enumerate(units):
                _draw_curves(grid[row, column], curves, metric, axis, unit)
                grid[row, column].label_outer()
                if row == len(metrics) - 1:
                    grid[row, column].set_xlabel(label, fontsize=7.5)
            grid[row, 0].set_ylabel(PANELS[metric][0])
        figure.legend(handles=_handles(curves), loc="outside upper center", ncols=2, handlelength=3)
        counted = "\ntime without validation; tokens with probes and continuations"
        _curve_foot(figure, settings, curves, counted)
        return style.save(figure, out_stem)


def plot_learning_curves(
    settings: Settings, results_dir: str | Path, out_stem: str | Path, variants: Sequence[str] | None = None,
    note: str = "",
) -> list[Path]:  # fmt: skip
    """Validation accuracy, AEN, AEC, N_na and utility by training step, with a ``note`` below; see
    :func:`plot_training_efficiency`."""
    curves = _curves(settings, results_dir, LEARNT, variants or shown(settings, "learning_curves"))
    with style.drawing():
        figure = style.new_figure(7.2, 4.4)
        panels = figure.subplots(2, 3).ravel()
        for panel, metric in zip(panels, LEARNT, strict=False):
            _draw_curves(panel, curves, metric, "step", 1.0)
            panel.set_title(PANELS[metric][0])
            panel.set_xlabel("training step")
        panels[-1].legend(handles=_handles(curves), loc="center", handlelength=3)
        panels[-1].set_axis_off()
        _curve_foot(figure, settings, curves, note and f"\n{note}")
        return style.save(figure, out_stem)


def plot_accuracy_cost(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Accuracy against average cost per case: in-domain large, out-of-domain small.

    One point per agent with 95% intervals (main decoding); the line is the best accuracy that a reference policy
    reaches for at most that cost. Costs are linear up to 10 USD and logarithmic beyond. Agents without evaluations
    are named as missing. Raises ProvenanceError and EvaluationError as the main table does.
    """
    methods = [method for method in main_methods(settings) if method.runs]
    results = Results(settings, results_dir, methods)
    decoding = settings.evaluation.decodings[0]
    with style.drawing():
        figure = style.new_figure(7.2, 5.0)
        layout = [[IN_DOMAIN, d] for d in DATASETS if d != IN_DOMAIN] + [["legend", "legend"]]
        panels = figure.subplot_mosaic(layout, width_ratios=[1.75, 1], height_ratios=[1, 1, 0.28])
        legend = panels.pop("legend")
        missing: set[str] = set()
        highest = 0.0
        for dataset, panel in panels.items():
            points, holes = _points(results, methods, dataset, decoding)
            missing |= {f"{label} ({DATASETS[dataset]})" for label in holes}
            highest = max([highest, *(point[3][1] for point in points)])
            _draw_points(panel, points)
            domain = "in-domain" if dataset == IN_DOMAIN else "OOD"
            cases = max((results.summary(p[0], dataset, decoding).cases for p in points), default=0)
            panel.set_title(f"{DATASETS[dataset]} ({domain}, N = {cases})")
            panel.set_ylabel("accuracy (%)")
        for panel in panels.values():
            cost_axis(panel, highest)
        handles, labels = panels[IN_DOMAIN].get_legend_handles_labels()
        legend.set_axis_off()
        if handles:
            legend.legend(handles, labels, loc="center", ncols=4, fontsize=7, columnspacing=1.5)
        said = f"{decoding} decoding; bars: 95% intervals over cases"
        foot(figure, settings, [*notices(settings), missing_note(sorted(missing)).strip(),
                                *folded(results.divergences()), said])  # fmt: skip
        return style.save(figure, out_stem)


def _curves(
    settings: Settings, results_dir: str | Path, metrics: Sequence[str], variants: Iterable[str]
) -> list[Curves]:
    methods = [trained(settings, name) for name in variants]
    check_training(settings, Path(results_dir), list(dict.fromkeys(run for method in methods for run in method.runs)))
    return [read_curves(results_dir, method, metrics) for method in methods]


def _draw_curves(panel: Axes, curves: Sequence[Curves], metric: str, axis: str, unit: float) -> None:
    factor = PANELS[metric][1]
    for position, curve in enumerate(curves):
        if not curve.runs:
            continue
        look = style.look_of(curve.method.name, position)
        for piece in curve.pieces():
            x, (low, high) = piece.x(axis) / unit, piece.band(metric)
            panel.fill_between(x, low * factor, high * factor, color=look.colour, alpha=0.15, linewidth=0)
            panel.plot(x, piece.mean(metric) * factor, color=look.colour, linestyle=look.line, marker=look.marker,
                       markersize=3.5, markevery=max(1, len(x) // 10), label=curve.method.label)  # fmt: skip
        for at, value in curve.ends(axis, metric):
            panel.plot(at / unit, value * factor, linestyle="", marker="x", markersize=5, markeredgewidth=1.3,
                       color=look.colour, zorder=4, clip_on=False)  # fmt: skip
    panel.set_xlim(left=0)
    if not any(curve.runs for curve in curves):
        panel.text(0.5, 0.5, "missing: no training metrics", transform=panel.transAxes, ha="center", color=style.GREY)


def _handles(curves: Sequence[Curves]) -> list:
    """What a legend says of each line: its name, and how many seeds stand behind it."""
    from matplotlib.lines import Line2D

    handles = []
    for position, curve in enumerate(curves):
        look = style.look_of(curve.method.name, position)
        seeds = f"{len(curve.runs)} seed{'s' if len(curve.runs) != 1 else ''}"
        if len(curve.runs) < len(curve.method.runs):
            none = "missing" if curve.missing else "diverged"
            seeds = f"{len(curve.runs)} of {len(curve.method.runs)} seeds" if curve.runs else none
        handles.append(Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, markersize=4,
                              label=f"{curve.method.label} ({seeds})"))  # fmt: skip
    return handles


def _curve_foot(figure: Figure, settings: Settings, curves: Sequence[Curves], more: str = "") -> None:
    lost = [Path(name).parent.name for curve in curves for name in curve.missing]
    broken = [f"{run} at step {at}" for curve in curves for run, at in curve.diverged.items()]
    said = "line: mean over seeds; band: lowest to highest seed" + more
    ends = f"diverged (x: last validation; line and band go on with the other seeds): {', '.join(broken)}"
    foot(figure, settings, [missing_note(lost).strip(), *folded([ends] if broken else []), *said.splitlines()])


def foot(figure: Figure, settings: Settings, lines: Iterable[str]) -> None:
    """Mark the tier and set notes below a figure, a line each (empty ones are left out), with room for all."""
    notes = [line for line in lines if line]
    style.mark_tier(figure, settings, "\n".join(notes))
    room = (0.1 + 0.125 * max(1, len(notes))) / figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, room, 1, 1 - room))  # type: ignore[union-attr]


def folded(notes: Iterable[str]) -> list[str]:
    """Notes in lines that a figure has room for."""
    return [line for note in notes for line in wrap(note, 140)]


def missing_note(names: Sequence[str]) -> str:
    """A line that names what is missing; nothing where nothing is."""
    shown = [*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else names
    return f"\nmissing: {', '.join(shown)}" if names else ""


def _time_unit(curves: Sequence[Curves]) -> tuple[str, float]:
    longest = max((float(curve.x("seconds").max()) for curve in curves if curve.runs), default=0.0)
    if longest >= 7200:
        return "hours", 3600.0
    return ("minutes", 60.0) if longest >= 180 else ("seconds", 1.0)


def _points(results: Results, methods: Sequence[Method], dataset: str, decoding: str) -> tuple[list[Point], list[str]]:
    """Cost, accuracy and their intervals per agent, and the labels of those that should be there and are not."""
    points: list[Point] = []
    holes = []
    for method in methods:
        found = results.summary(method, dataset, decoding)
        if isinstance(found, Hole):
            holes += [method.label] if found.missing else []
            continue
        cost, right = found.estimates["aec"], found.estimates["accuracy"]
        points.append((method, cost.mean, 100 * right.mean, (cost.low, cost.high), (100 * right.low, 100 * right.high)))
    return points, holes


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, accuracy) points that no other beats in both, by rising cost."""
    best, kept = -np.inf, []
    for cost, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if accuracy > best:
            best = accuracy
            kept.append((cost, accuracy))
    return kept


def _draw_points(panel: Axes, points: Sequence[Point]) -> None:
    line = frontier([(cost, accuracy) for method, cost, accuracy, *_ in points if method.group == REFERENCE])
    if line:
        line.append((1e6, line[-1][1]))  # dearer than the dearest policy: no gain; the axis ends before
        panel.plot(*zip(*line, strict=True), color=style.BLACK, linewidth=0.9, linestyle=":", zorder=1,
                   drawstyle="steps-post", label="reference frontier")  # fmt: skip
    for method, cost, accuracy, across, up in points:
        look = style.look_of(method.name)
        known = method.group == REFERENCE
        bars = [[[cost - across[0]], [across[1] - cost]], [[accuracy - up[0]], [up[1] - accuracy]]]
        size = 8 if look.marker == "*" else 5.5
        panel.errorbar(
            cost, accuracy, xerr=bars[0], yerr=bars[1], fmt=look.marker, color=look.colour, markersize=size,
            markerfacecolor="white" if known else look.colour, markeredgewidth=0.9, elinewidth=0.8,
            label=method.label, zorder=2 if known else 3,
        )  # fmt: skip
    if not points:
        panel.text(0.5, 0.5, "missing: no evaluations", transform=panel.transAxes, ha="center", color=style.GREY)


def cost_axis(panel: Axes, highest: float, label: str = "average cost per case (USD)") -> None:
    """An axis of USD up to ``highest``: linear up to 10, where free work-ups are, and logarithmic beyond."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    show: Callable[[float, Any], str] = lambda value, _: f"{value:g}"  # noqa: E731
    panel.set_xscale("symlog", linthresh=10, linscale=0.6)
    panel.xaxis.set_major_locator(FixedLocator([0, 5, 10, 20, 50, 200, 1000, 5000]))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(show))
    panel.set_xlim(-1.0, max(100.0, highest * 1.25))
    panel.set_xlabel(label)
