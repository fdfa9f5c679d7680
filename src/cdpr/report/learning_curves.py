"""Figures of validation metrics during training, a line per variant: by step, by time and by tokens."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..job import Job
from ..settings import Settings, labels_of
from . import style
from .curves import Curves, read_curves
from .methods import variant_method, with_common_seeds
from .provenance import check_training

# The metrics on the validation cases, a panel each: its title, and the factor by which values are multiplied.
PANELS = {
    "accuracy": ("validation accuracy (%)", 100.0), "aen": ("examinations per case", 1.0),
    "aec": ("cost per case (USD)", 1.0), "n_na": ("unavailable requests per case", 1.0), "utility": ("utility", 1.0),
}  # fmt: skip
# The metrics that the figures of training efficiency show.
EFFICIENCY = ("accuracy", "utility", "aec")


class Axis(NamedTuple):
    """The horizontal axis of a figure: its ``name`` among :data:`cdpr.report.curves.AXES`, its ``label``, and its
    ``unit``, by which values are divided (3600 for seconds on an axis in hours)."""

    name: str
    label: str
    unit: float = 1.0


def read_figure_curves(
    settings: Settings, job: Job, figure: str, metrics: Sequence[str], shared: bool = False
) -> list[Curves]:
    """Read the ``metrics`` of the variants that ``figure`` shows, as training curves. With ``shared``, only the seeds
    that all of them have are read. A variant without metrics files has curves without runs.

    Raises TableError for a broken metrics file, and ProvenanceError for trainings of another tier or on different
    cases.
    """
    folder = job.inputs["results"]
    methods = [variant_method(settings, name) for name in labels_of(settings, figure)]
    check_training(settings, folder, [run for method in methods for run in method.runs])
    methods = with_common_seeds(methods) if shared else methods
    return [read_curves(folder, method, metrics) for method in methods]


def read_efficiency_curves(settings: Settings, job: Job) -> list[Curves]:
    """Read the curves of the two figures of training efficiency, all over the same seeds, since the figures compare
    what training takes. Raises as :func:`read_figure_curves`."""
    return read_figure_curves(settings, job, "training_efficiency", EFFICIENCY, shared=True)


def draw_learning_curves(settings: Settings, job: Job, figure: str) -> None:
    """Plot validation accuracy, examinations, cost, unavailable requests and utility of the variants of ``figure`` by
    training step. Lines are means over seeds, bands reach from the lowest to the highest seed. Raises as
    :func:`read_figure_curves`."""
    curves = read_figure_curves(settings, job, figure, list(PANELS))
    _draw_figure(settings, curves, job.out, list(PANELS), Axis("step", "training step"), rows=2)


plot_learning_curves = partial(draw_learning_curves, figure="learning_curves")
# The engines torch and verl side by side.
plot_engines = partial(draw_learning_curves, figure="engines")


def plot_training_efficiency(settings: Settings, job: Job) -> None:
    """Plot accuracy, utility and cost on the validation cases against generated tokens, as in the paper's figure.
    Raises as :func:`read_figure_curves`."""
    axis = Axis("tokens", "generated tokens (millions)", 1e6)
    note = "tokens with probes and continuations"
    _draw_figure(settings, read_efficiency_curves(settings, job), job.out, EFFICIENCY, axis, note=note)


def plot_training_time(settings: Settings, job: Job) -> None:
    """Plot accuracy, utility and cost on the validation cases against the time of training: CPU time on a CPU, elapsed
    time on a GPU. Raises as :func:`read_figure_curves`."""
    curves = read_efficiency_curves(settings, job)
    longest = max((float(curve.mean("seconds").max()) for curve in curves if curve.runs), default=0.0)
    # The axis is in minutes from three minutes on, and in hours from two hours on.
    unit, seconds = "seconds", 1.0
    if longest >= 180:
        unit, seconds = ("hours", 3600.0) if longest >= 7200 else ("minutes", 60.0)
    note = "time on this machine, without validation: of the processor on a CPU (all threads), by the clock on a GPU"
    axis = Axis("seconds", f"training time ({unit})", seconds)
    _draw_figure(settings, curves, job.out, EFFICIENCY, axis, note=note)


def _draw_figure(
    settings: Settings, curves: Sequence[Curves], out: Mapping[str, Path], metrics: Sequence[str], axis: Axis,
    rows: int = 1, note: str = "",
) -> None:  # fmt: skip
    """Draw a figure of ``curves`` with a panel per metric, three in each of the ``rows``, and write it to the paths
    ``out``. ``note`` is a further note below the figure. The legend is in the unused panel, or above all panels where
    every panel is used."""
    with style.drawing(7.2, 2.4 + rows, out) as figure:
        panels = figure.subplots(rows, 3).ravel()
        for panel, metric in zip(panels, metrics, strict=False):
            _draw_curves(panel, settings, curves, metric, axis)
            title, _ = PANELS[metric]
            panel.set_title(title + style.synthetic_suffix(settings))
            panel.set_xlabel(axis.label, fontsize=7.5)
        lines = _legend_lines(settings, curves)
        if len(panels) == len(metrics):
            figure.legend(handles=lines, loc="outside upper center", ncols=2, handlelength=3)
        for unused in panels[len(metrics) :]:
            unused.legend(handles=lines, loc="center", handlelength=3, fontsize=7)
            unused.set_axis_off()
        style.write_notes(figure, settings, [*_notes(curves), note])


def _draw_curves(panel: style.Axes, settings: Settings, curves: Sequence[Curves], metric: str, axis: Axis) -> None:
    """Draw one metric of all variants in ``panel``: the mean over seeds, a band from the lowest to the highest seed,
    and an x at the last validation of a run that diverged."""
    _, factor = PANELS[metric]
    for position, curve in enumerate(curves):
        look = style.look_of(settings, curve.method.name, position)
        for segment in curve.split_where_seeds_end() if curve.runs else ():  # nothing to draw without runs
            x = segment.mean(axis.name) / axis.unit
            low, high = segment.band(metric)
            panel.fill_between(x, low * factor, high * factor, color=look.colour, alpha=0.15, linewidth=0)
            # About ten markers on a segment. The legend has lines of its own; ``label`` only identifies this one.
            panel.plot(x, segment.mean(metric) * factor, color=look.colour, linestyle=look.line, marker=look.marker,
                       markersize=3.5, markevery=max(1, len(x) // 10), label=curve.method.label)  # fmt: skip
        for x_end, value in curve.divergence_points(axis.name, metric):
            panel.plot(x_end / axis.unit, value * factor, linestyle="", marker="x", markersize=5, markeredgewidth=1.3,
                       color=look.colour, zorder=4, clip_on=False)  # fmt: skip
    panel.set_xlim(left=0)
    if not any(curve.runs for curve in curves):
        style.write_in_empty_panel(panel, "missing: no training metrics")


def _legend_lines(settings: Settings, curves: Sequence[Curves]) -> list[style.Artist]:
    """Return the lines of a legend, one per variant. The label says how many of its seeds have curves, ``CDPR (2/3
    seeds)``, or why none has: ``CDPR (missing)``, or ``CDPR (diverged)`` where all diverged before their first
    validation."""
    from matplotlib.lines import Line2D

    lines = []
    for position, curve in enumerate(curves):
        why_none = "missing" if curve.missing else "diverged"
        seeds = f"{len(curve.runs)}/{len(curve.method.runs)} seeds" if curve.runs else why_none
        look = style.look_of(settings, curve.method.name, position)
        line: dict[str, Any] = {"color": look.colour, "linestyle": look.line, "marker": look.marker, "markersize": 4}
        lines.append(Line2D([], [], **line, label=f"{curve.method.label} ({seeds})"))
    return lines


def _notes(curves: Sequence[Curves]) -> list[str]:
    """Return the notes below a figure: which runs are missing, which diverged, and what lines and bands are."""
    missing = [Path(file).parent.name for curve in curves for file in curve.missing]
    notes = [style.missing_note(missing)]
    diverged = ", ".join(f"{run} at step {step}" for curve in curves for run, step in curve.diverged.items())
    if diverged:
        notes.append(f"diverged (x: last validation; line and band continue with the other seeds): {diverged}")
    several_seeds = any(len(curve.runs) > 1 for curve in curves)
    return [*notes, "line: mean over seeds" + ("; band: lowest to highest seed" if several_seeds else "")]
