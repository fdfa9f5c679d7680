"""Learning curves by training step, and how figures draw the curves of several variants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..job import Job
from ..results.curves import Curves, read_curves
from ..results.methods import trained
from ..results.provenance import check_training
from ..results.results import results_folder
from ..settings import Settings, labels_of
from . import style

# Metric of a panel: label of its axis and factor for printing.
PANELS = {
    "accuracy": ("validation accuracy (%)", 100.0), "aen": ("AEN", 1.0), "aec": ("AEC (USD)", 1.0),
    "n_na": ("N_na per case", 1.0), "utility": ("utility", 1.0),
}  # fmt: skip
LEARNT = tuple(PANELS)


def plot_learning_curves(settings: Settings, job: Job) -> None:
    """Validation accuracy, AEN, AEC, N_na and utility by training step, a line per variant: mean over seeds, band from
    the lowest to the highest. Raises as :func:`curves_of`."""
    curves = curves_of(settings, results_folder(settings, job), labels_of(settings, "learning_curves"), LEARNT)
    draw_learning_curves(settings, curves, job.out)


def curves_of(settings: Settings, folder: Path, variants: Iterable[str], metrics: Sequence[str]) -> list[Curves]:
    """Training curves of variants. One without metrics has no runs; a figure names it as missing.

    Raises CurveError for a broken metrics file, ProvenanceError for training of another tier or on different cases.
    """
    methods = [trained(settings, name) for name in variants]
    check_training(settings, folder, list(dict.fromkeys(run for method in methods for run in method.runs)))
    return [read_curves(folder, method, metrics) for method in methods]


def draw_learning_curves(settings: Settings, curves: Sequence[Curves], out: Mapping[str, Path], note: str = "") -> None:
    """A panel per metric of :data:`LEARNT` by training step, with a ``note`` below, as ``png`` and ``pdf``."""
    with style.drawing(7.2, 4.4, out) as figure:
        panels = figure.subplots(2, 3).ravel()
        for panel, metric in zip(panels, LEARNT, strict=False):
            draw_curves(panel, settings, curves, metric, "step", 1.0)
            panel.set_title(PANELS[metric][0])
            panel.set_xlabel("training step")
        panels[-1].legend(handles=handles(settings, curves), loc="center", handlelength=3)
        panels[-1].set_axis_off()
        curve_foot(figure, settings, curves, note)


def draw_curves(
    panel: style.Axes, settings: Settings, curves: Sequence[Curves], metric: str, axis: str, unit: float
) -> None:
    """One metric of all variants; the end of a run that diverged is a small x."""
    factor = PANELS[metric][1]
    for position, curve in enumerate(curves):
        if not curve.runs:
            continue
        look = style.look_of(settings, curve.method.name, position)
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
        style.empty(panel, "missing: no training metrics")


def handles(settings: Settings, curves: Sequence[Curves]) -> list:
    """What a legend says of each line: its name, and how many seeds stand behind it."""
    from matplotlib.lines import Line2D

    lines = []
    for position, curve in enumerate(curves):
        look = style.look_of(settings, curve.method.name, position)
        seeds = f"{len(curve.runs)} seed{'s' if len(curve.runs) != 1 else ''}"
        if len(curve.runs) < len(curve.method.runs):
            none = "missing" if curve.missing else "diverged"
            seeds = f"{len(curve.runs)} of {len(curve.method.runs)} seeds" if curve.runs else none
        lines.append(Line2D([], [], color=look.colour, linestyle=look.line, marker=look.marker, markersize=4,
                              label=f"{curve.method.label} ({seeds})"))  # fmt: skip
    return lines


def curve_foot(
    figure: style.Figure, settings: Settings, curves: Sequence[Curves], more: str = "", band: bool = True
) -> None:
    """Say below a figure what is missing, what diverged, what lines and bands are, and ``more``."""
    lost = [Path(name).parent.name for curve in curves for name in curve.missing]
    broken = [f"{run} at step {at}" for curve in curves for run, at in curve.diverged.items()]
    ends = f"diverged (x: last validation; line and band go on with the other seeds): {', '.join(broken)}"
    note = "line: mean over seeds" + ("; band: lowest to highest seed" if band else "")
    lines = [style.missing_note(lost), *style.folded([ends] if broken else []), note, more]
    style.foot(figure, settings, lines)
