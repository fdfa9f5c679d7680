"""Figures of validation metrics during training, a line per variant: by step, by time and by tokens. ``figures.yaml``
declares them."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..job import Job
from ..settings import Settings, labels_of
from . import style
from .curves import Curves, read_curves
from .methods import variant_method, with_common_seeds
from .provenance import check_training


def read_figure_curves(settings: Settings, folder: Path, figure: str) -> list[Curves]:
    """Read the training curves of the variants that a figure of ``figures.yaml`` shows, from the results in ``folder``.
    A variant without metrics files has curves without runs.

    Raises TableError for a broken metrics file, and ProvenanceError for trainings of another tier or on different
    cases, and for files that were changed or exchanged.
    """
    declared = style.declared("learning_curves")["figures"][figure]
    methods = [variant_method(settings, name) for name in labels_of(settings, declared["feeds"])]
    check_training(settings, folder, [run for method in methods for run in method.runs])
    methods = with_common_seeds(methods) if declared["shared"] else methods
    return [read_curves(folder, method, declared["panels"]) for method in methods]


def draw_learning_curves(settings: Settings, job: Job, figure: str) -> None:
    """Draw a figure of ``figures.yaml``: a panel per metric on the validation cases, three in each row. Lines are means
    over seeds, bands reach from the lowest to the highest seed. The legend says how many seeds of a variant have
    curves, ``CDPR (2/3 seeds)``, or why none has: ``CDPR (missing)``, or ``CDPR (diverged)`` where all diverged before
    their first validation. Raises as :func:`read_figure_curves`."""
    declared = style.declared("learning_curves")
    drawn, curves = declared["figures"][figure], read_figure_curves(settings, job.inputs["results"], figure)
    with style.drawing(7.2, 2.4 + drawn["rows"], job.out) as page:
        panels = page.subplots(drawn["rows"], 3).ravel()
        for panel, metric in zip(panels, drawn["panels"], strict=False):
            shown = declared["panels"][metric]
            _draw_curves(panel, settings, curves, metric, shown["factor"], drawn)
            panel.set_title(shown["title"] + style.synthetic_suffix(settings))
            panel.set_xlabel(drawn["label"], fontsize=7.5)
        for panel in panels[len(drawn["panels"]) :]:  # unused
            panel.set_axis_off()
        for position, curve in enumerate(curves):
            why_none = "missing" if curve.missing else "diverged"
            seeds = f"{len(curve.runs)}/{len(curve.method.runs)} seeds" if curve.runs else why_none
            panels[0].plot([], [], **_line(settings, curve, position), label=f"{curve.method.label} ({seeds})")
        style.draw_legend_above(page, panels[0], 3, handlelength=3)
        style.write_notes(page, settings, [*_notes(curves), drawn["note"]])


plot_learning_curves = partial(draw_learning_curves, figure="learning_curves")
plot_engines = partial(draw_learning_curves, figure="engines")  # the engines torch and verl side by side
plot_training_efficiency = partial(draw_learning_curves, figure="training_efficiency")
plot_training_time = partial(draw_learning_curves, figure="training_time")


def _draw_curves(
    panel: style.Axes, settings: Settings, curves: Sequence[Curves], metric: str, factor: float,
    drawn: Mapping[str, Any],
) -> None:  # fmt: skip
    """Draw one metric of all variants in ``panel``, times ``factor``: the mean over seeds, a band from the lowest to
    the highest seed, and an x at the last validation of a run that diverged. ``drawn`` declares the figure."""
    axis, unit = drawn["axis"], drawn["unit"]
    for position, curve in enumerate(curves):
        line = _line(settings, curve, position)
        for segment in curve.split_where_seeds_end() if curve.runs else ():  # nothing to draw without runs
            x = segment.mean(axis) / unit
            low, high = segment.band(metric)
            panel.fill_between(x, low * factor, high * factor, color=line["color"], alpha=0.15, linewidth=0)
            # About ten markers on a segment. The underscore keeps a label out of the legend, which has its own lines.
            panel.plot(x, segment.mean(metric) * factor, **line, markevery=max(1, len(x) // 10),
                       label=f"_{curve.method.label}")  # fmt: skip
        for x_end, value in curve.divergence_points(axis, metric):
            panel.plot(x_end / unit, value * factor, linestyle="", marker="x", markersize=5, markeredgewidth=1.3,
                       color=line["color"], zorder=4, clip_on=False)  # fmt: skip
    panel.set_xlim(left=0)
    if not any(curve.runs for curve in curves):
        style.write_in_empty_panel(panel, "missing: no training metrics")


def _line(settings: Settings, curve: Curves, position: int) -> dict[str, Any]:
    """Return the look of a variant's line as arguments of matplotlib's ``plot``. ``position`` is that of its curve."""
    look = style.look_of(settings, curve.method.name, position)
    return {"color": look.colour, "linestyle": look.line, "marker": look.marker, "markersize": 3.5}


def _notes(curves: Sequence[Curves]) -> list[str]:
    """Return the notes below a figure: which runs are missing, which diverged, and what lines and bands are."""
    missing = [Path(file).parent.name for curve in curves for file in curve.missing]
    notes = [style.missing_note(missing)]
    diverged = ", ".join(f"{run} at step {step}" for curve in curves for run, step in curve.diverged.items())
    if diverged:
        notes.append(f"diverged (x: last validation; line and band continue with the other seeds): {diverged}")
    several_seeds = any(len(curve.runs) > 1 for curve in curves)
    return [*notes, "line: mean over seeds" + ("; band: lowest to highest seed" if several_seeds else "")]
