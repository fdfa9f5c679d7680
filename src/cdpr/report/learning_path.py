"""The way of each method through the plane of accuracy and cost while it trains."""

from __future__ import annotations

from collections.abc import Sequence

from ..job import Job
from ..results.curves import Curves
from ..results.results import results_folder
from ..settings import Settings, labels_of
from . import style
from .learning_curves import curve_foot, curves_of, handles

METRICS = ("accuracy", "aec")


def plot_learning_path(settings: Settings, job: Job) -> None:
    """Accuracy against AEC on the validation cases, a marker per validation, means over seeds; a ring marks the last
    iteration. Paths that lie on each other lead to the same policies, at whatever pace. Raises as
    :func:`~cdpr.report.learning_curves.curves_of`."""
    curves = curves_of(settings, results_folder(settings, job), labels_of(settings, "learning_path"), METRICS)
    with style.drawing(7.2, 4.6, job.out) as figure:
        panel = figure.subplots()
        for position, curve in enumerate(curves):
            _draw_path(panel, settings, curve, position)
        panel.set_xlabel("AEC (USD)")
        panel.set_ylabel("validation accuracy (%)")
        panel.margins(0.08)
        if not any(curve.runs for curve in curves):
            style.empty(panel, "missing: no training metrics")
        figure.legend(handles=handles(settings, curves), loc="outside upper center", ncols=2, handlelength=3)
        note = f"{settings.data.validation_cases} validation cases, no test cases; ring: the last iteration"
        note += f" ({ends})" if (ends := _ends(curves)) else ""
        curve_foot(figure, settings, curves, note, band=False)


def _draw_path(panel: style.Axes, settings: Settings, curve: Curves, position: int) -> None:
    look = style.look_of(settings, curve.method.name, position)
    pieces: Sequence[Curves] = list(curve.pieces()) if curve.runs else []
    for piece in pieces:
        panel.plot(piece.mean("aec"), 100 * piece.mean("accuracy"), color=look.colour, linestyle=look.line,
                   linewidth=1.0, marker=look.marker, markersize=4)  # fmt: skip
    if pieces:
        end = pieces[-1]
        at = (end.mean("aec")[-1], 100 * end.mean("accuracy")[-1])
        panel.plot(*at, linestyle="", marker="o", markersize=9, markerfacecolor="none", color=look.colour)


def _ends(curves: Sequence[Curves]) -> str:
    """The last iterations, one number where all are the same."""
    last = sorted({int(piece.x("step")[-1]) for curve in curves if curve.runs for piece in list(curve.pieces())[-1:]})
    return " to ".join(map(str, last[:1] + last[1:][-1:]))
