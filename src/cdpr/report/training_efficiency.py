"""Training efficiency: accuracy by time and by tokens, counterpart of the paper's figure."""

from __future__ import annotations

from collections.abc import Sequence

from ..job import Job
from ..results.curves import Curves
from ..results.results import results_folder
from ..settings import Settings, labels_of
from . import style
from .learning_curves import PANELS, curve_foot, curves_of, draw_curves, handles

METRICS = ("accuracy", "utility", "aec")


def plot_training_efficiency(settings: Settings, job: Job) -> None:
    """Accuracy on the validation split (with utility and AEC below) against training wall-clock and against
    generated tokens. One line per variant: mean over seeds, band from the lowest to the highest. Raises as
    :func:`~cdpr.report.learning_curves.curves_of`.
    """
    curves = curves_of(settings, results_folder(settings, job), labels_of(settings, "training_efficiency"), METRICS)
    with style.drawing(7.2, 6.4, job.out) as figure:
        grid = figure.subplots(3, 2, sharex="col", sharey="row", height_ratios=[2.2, 1, 1])
        time_unit, seconds = _time_unit(curves)
        units = (("seconds", f"training time ({time_unit})", seconds), ("tokens", "generated tokens (millions)", 1e6))
        for row, metric in enumerate(METRICS):
            for column, (axis, label, unit) in enumerate(units):
                draw_curves(grid[row, column], settings, curves, metric, axis, unit)
                grid[row, column].label_outer()
                if row == len(METRICS) - 1:
                    grid[row, column].set_xlabel(label, fontsize=7.5)
            grid[row, 0].set_ylabel(PANELS[metric][0])
        figure.legend(handles=handles(settings, curves), loc="outside upper center", ncols=2, handlelength=3)
        curve_foot(figure, settings, curves, "time without validation; tokens with probes and continuations")


def _time_unit(curves: Sequence[Curves]) -> tuple[str, float]:
    longest = max((float(curve.x("seconds").max()) for curve in curves if curve.runs), default=0.0)
    if longest >= 7200:
        return "hours", 3600.0
    return ("minutes", 60.0) if longest >= 180 else ("seconds", 1.0)
