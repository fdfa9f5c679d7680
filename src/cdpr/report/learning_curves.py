"""Curves of training, a line per variant: by step, by time and by tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..job import Job
from ..settings import Settings, labels_of, seeds_of_runs
from . import style
from .curves import Curves, read_curves
from .methods import trained
from .provenance import check_training

# Metric of a panel: label of its axis and factor for printing.
PANELS = {
    "accuracy": ("validation accuracy (%)", 100.0), "aen": ("examinations per case", 1.0),
    "aec": ("cost per case (USD)", 1.0), "n_na": ("unavailable requests per case", 1.0), "utility": ("utility", 1.0),
}  # fmt: skip
LEARNT = tuple(PANELS)
EFFICIENCY = ("accuracy", "utility", "aec")
_TIME = "time on this machine, without validation: of the processor on a CPU (all threads), by the clock on a GPU"


def curves_of(settings: Settings, job: Job, where: str, metrics: Sequence[str], shared: bool = False) -> list[Curves]:
    """Read the training curves of the variants of a figure. One without metrics has no runs; the figure names it as
    missing. ``shared``: each with the seeds alone that all of them have.

    Raises CurveError for a broken metrics file, ProvenanceError for training of another tier or on different cases.
    """
    folder, methods = job.inputs["results"], [trained(settings, name) for name in labels_of(settings, where)]
    check_training(settings, folder, [run for method in methods for run in method.runs])
    if shared and methods:
        common = set.intersection(*(set(seeds_of_runs(method.runs)) for method in methods))
        methods = [replace(m, runs=tuple(run for run in m.runs if common.issuperset(seeds_of_runs([run]))))
                   for m in methods]  # fmt: skip
    return [read_curves(folder, method, metrics) for method in methods]


def draw_learning_curves(settings: Settings, job: Job, where: str) -> None:
    """Plot validation accuracy, AEN, AEC, N_na and utility by training step: mean over seeds, band from the lowest to
    the highest. Raises as :func:`curves_of`."""
    curves = curves_of(settings, job, where, LEARNT)
    _draw_figure(settings, curves, job.out, LEARNT, ("step", "training step", 1.0), (4.4, 2))


plot_learning_curves = partial(draw_learning_curves, where="learning_curves")
# The engines torch and verl side by side.
plot_engines = partial(draw_learning_curves, where="engines")


def plot_training_efficiency(settings: Settings, job: Job) -> None:
    """Plot accuracy, utility and AEC on the validation split against generated tokens. With :func:`plot_training_time`
    the counterpart of the paper's figure; both raise as :func:`curves_of`."""
    axis, note = ("tokens", "generated tokens (millions)", 1e6), "tokens with probes and continuations"
    _draw_figure(settings, efficiency_curves(settings, job), job.out, EFFICIENCY, axis, (3.4, 1), note)


def plot_training_time(settings: Settings, job: Job) -> None:
    """Plot the same against the time of training: CPU time on a CPU, elapsed time on a GPU."""
    curves = efficiency_curves(settings, job)
    longest = max((float(curve.mean("seconds").max()) for curve in curves if curve.runs), default=0.0)
    unit, seconds = ("minutes", 60.0) if longest >= 180 else ("seconds", 1.0)
    unit, seconds = ("hours", 3600.0) if longest >= 7200 else (unit, seconds)
    _draw_figure(
        settings, curves, job.out, EFFICIENCY, ("seconds", f"training time ({unit})", seconds), (3.4, 1), _TIME
    )


def efficiency_curves(settings: Settings, job: Job) -> list[Curves]:
    """Read the curves of the efficiency figures: price and accuracy of a rule are compared over the same seeds. Raises
    as :func:`curves_of`."""
    return curves_of(settings, job, "training_efficiency", EFFICIENCY, shared=True)


def _draw_figure(
    settings: Settings, curves: Sequence[Curves], out: Mapping[str, Path], metrics: Sequence[str],
    axis: tuple[str, str, float], size: tuple[float, int], note: str = "",
) -> None:  # fmt: skip
    """Draw a panel per metric; ``size`` is the height in inches and the number of rows, ``axis`` name, label and unit.
    The legend is in a panel that is left over, or else above all."""
    name, label, unit = axis
    with style.drawing(7.2, size[0], out) as figure:
        panels = figure.subplots(size[1], 3).ravel()
        for panel, metric in zip(panels, metrics, strict=False):
            _draw_curves(panel, settings, curves, metric, name, unit)
            panel.set_title(PANELS[metric][0] + style.made_up(settings))
            panel.set_xlabel(label, fontsize=7.5)
        for panel in panels[len(metrics) :]:
            panel.legend(handles=_handles(settings, curves), loc="center", handlelength=3)
            panel.set_axis_off()
        if len(panels) == len(metrics):
            figure.legend(handles=_handles(settings, curves), loc="outside upper center", ncols=2, handlelength=3)
        _foot(figure, settings, curves, note)


def _draw_curves(
    panel: style.Axes, settings: Settings, curves: Sequence[Curves], metric: str, axis: str, unit: float
) -> None:
    """Draw one metric of all variants; a small x is the end of a run that diverged."""
    factor = PANELS[metric][1]
    for position, curve in enumerate(curves):
        look = style.look_of(settings, curve.method.name, position)
        for piece in curve.pieces() if curve.runs else ():
            x, (low, high) = piece.mean(axis) / unit, piece.band(metric)
            panel.fill_between(x, low * factor, high * factor, color=look.colour, alpha=0.15, linewidth=0)
            panel.plot(x, piece.mean(metric) * factor, color=look.colour, linestyle=look.line, marker=look.marker,
                       markersize=3.5, markevery=max(1, len(x) // 10), label=curve.method.label)  # fmt: skip
        for at, value in curve.ends(axis, metric):
            panel.plot(at / unit, value * factor, linestyle="", marker="x", markersize=5, markeredgewidth=1.3,
                       color=look.colour, zorder=4, clip_on=False)  # fmt: skip
    panel.set_xlim(left=0)
    if not any(curve.runs for curve in curves):
        style.empty(panel, "missing: no training metrics")


def _handles(settings: Settings, curves: Sequence[Curves]) -> list:
    """Make the entries of a legend: the name of each line, and its number of seeds."""
    from matplotlib.lines import Line2D

    lines = []
    for position, curve in enumerate(curves):
        look = style.look_of(settings, curve.method.name, position)
        seeds = f"{len(curve.runs)} seed{'s' if len(curve.runs) != 1 else ''}"
        if len(curve.runs) < len(curve.method.runs):
            none = "missing" if curve.missing else "diverged"
            seeds = f"{len(curve.runs)} of {len(curve.method.runs)} seeds" if curve.runs else none
        line: dict[str, Any] = {"color": look.colour, "linestyle": look.line, "marker": look.marker, "markersize": 4}
        lines.append(Line2D([], [], **line, label=f"{curve.method.label} ({seeds})"))
    return lines


def _foot(figure: style.Figure, settings: Settings, curves: Sequence[Curves], more: str = "") -> None:
    """Say below a figure what is missing, what diverged, what lines and bands are, and ``more``."""
    lost = [Path(name).parent.name for curve in curves for name in curve.missing]
    broken = [f"{run} at step {at}" for curve in curves for run, at in curve.diverged.items()]
    ends = f"diverged (x: last validation; line and band continue with the other seeds): {', '.join(broken)}"
    several = any(len(curve.runs) > 1 for curve in curves)
    note = "line: mean over seeds" + ("; band: lowest to highest seed" if several else "")
    lines = [style.missing_note(lost), *style.folded([ends] if broken else []), note, more]
    style.foot(figure, settings, lines)
