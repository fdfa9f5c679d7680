"""Training curves: validation metrics of all seeds of a variant at common training steps, read from
``training/{run}/metrics.jsonl``; and figures with a line per variant: by step, by time and by tokens. ``figures.yaml``
declares the figures."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from ..files import TableError
from ..job import Job
from ..metrics_log import read_history, read_metrics
from ..settings import Settings, labels_of
from . import style
from .methods import Method, variant_method, with_common_seeds
from .provenance import check_training

# What can be on the horizontal axis: training steps, seconds of training without validation, generated tokens.
AXES = ("step", "seconds", "tokens")


@dataclass(frozen=True)
class Curves:
    """The training curves of one method, over its training seeds.

    ``values`` has an array [seeds, points] for each metric and for each axis of :data:`AXES` (step, seconds, tokens). A
    point is a step; all seeds have the same steps. A run that diverged has NaN after its last validation.

    - ``runs``: the names of the seeds in the arrays, in their order.
    - ``missing``: the metrics files that do not exist or have no validation.
    - ``diverged``: the step at which a run diverged, by run. A run that did so before its first validation is here, but
      not in the arrays.
    - ``last_steps``: the last step at which a run in the arrays was validated, by run.
    """

    method: Method
    runs: tuple[str, ...]
    values: dict[str, np.ndarray]
    missing: tuple[str, ...]
    diverged: dict[str, int]
    last_steps: dict[str, float]

    def mean(self, name: str) -> np.ndarray:
        """Return the mean [points] of a metric or axis over the seeds that have a value at the point."""
        return np.nanmean(self.values[name], axis=0)

    def band(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest value of a metric over the seeds, two arrays [points]."""
        return np.nanmin(self.values[metric], axis=0), np.nanmax(self.values[metric], axis=0)

    def split_where_seeds_end(self) -> Iterator[Self]:
        """Yield the curves in consecutive segments; each has only the seeds that last to the end of the segment. So the
        mean in a segment is over the same seeds at all points; a mean over the seeds that are left at each point would
        jump where one ends."""
        has_value = ~np.isnan(self.values["step"])  # [seeds, points]
        last = has_value.shape[1] - 1
        # A segment ends at the last point of a seed.
        ends = [point for point in range(last) if (has_value[:, point] != has_value[:, point + 1]).any()]
        for start, end in pairwise((0, *ends, last)):  # neighbouring segments share a point
            seeds = has_value[:, end]
            yield replace(self, values={name: table[seeds, start : end + 1] for name, table in self.values.items()})

    def divergence_points(self, axis: str, metric: str) -> np.ndarray:
        """Return axis and metric at the last validation of each run that diverged, an array [runs, 2]. Runs without a
        validation are left out."""
        points = []
        for seed, run in enumerate(self.runs):
            validations = np.flatnonzero(~np.isnan(self.values["step"][seed]))
            if run in self.diverged and len(validations):
                points.append([self.values[name][seed, validations[-1]] for name in (axis, metric)])
        return np.array(points).reshape(-1, 2)


def read_curves(results: str | Path, method: Method, metrics: Sequence[str], prefix: str = "validation/") -> Curves:
    """Read ``metrics`` of all seeds of a method. In the metrics files each is named ``<prefix><metric>``, such as
    ``validation/accuracy``. Seeds without a file, or without any of these metrics in it, are left out.

    Seeds may have been validated at different steps. The curves have all these steps within the range that every seed
    covers, and values between the steps of a seed are interpolated linearly, never extrapolated. So a seed that is
    still running shortens the curves of all; one that diverged ends only its own. Raises TableError for a broken
    metrics file.
    """
    diverged = {run: step for run in method.runs if (step := diverged_at(results, run)) is not None}
    measured = {run: _read_measurements(results, run, metrics, prefix) for run in method.runs}
    tables = {run: np.array(rows) for run, rows in measured.items() if rows}  # [points, axes and metrics], step first
    missing = [run for run in method.runs if run not in tables and run not in diverged]
    values = {name: np.zeros((0, 0)) for name in (*AXES, *metrics)}
    last_steps = {run: float(table[-1, 0]) for run, table in tables.items()}
    if tables:
        first = max(table[0, 0] for table in tables.values())
        # The curves end at the earliest last step of a seed that did not diverge; where all diverged, at the latest
        # last step.
        last = min((step for run, step in last_steps.items() if run not in diverged), default=max(last_steps.values()))
        all_steps = np.unique(np.concatenate([table[:, 0] for table in tables.values()]))
        steps = all_steps[(first <= all_steps) & (all_steps <= last)]
        for column, name in enumerate(values):
            # The names are in the order of the tables' columns. One row per seed; NaN after its last step.
            values[name] = np.stack([np.interp(steps, table[:, 0], table[:, column], right=np.nan)
                                     for table in tables.values()])  # fmt: skip
    files = tuple(f"training/{run}/metrics.jsonl" for run in missing)
    return Curves(method, tuple(tables), values, files, diverged, last_steps)


def read_training(results: str | Path, run: str) -> pd.DataFrame:
    """Read the metrics of a training as a frame with a row per step, and the column ``run``. It is empty where there is
    no file. Raises TableError for a line that is not a row of metrics, such as an incomplete last one."""
    return pd.DataFrame([{"run": run, **row} for row in _read_rows(results, run)])


def diverged_at(results: str | Path, run: str) -> int | None:
    """Return the step at which a training run stopped because a reward or gradient was not finite; None where it did
    not. Raises TableError for a broken metrics file."""
    rows = _read_rows(results, run)
    return rows[-1]["step"] if rows and rows[-1].get("diverged") else None


def final_verdicts(results: str | Path, runs: Sequence[str]) -> np.ndarray:
    """Read which validation cases trainings diagnosed correctly at their last validation, an array [runs, cases]: 1 for
    right, 0 for wrong or failed.

    Raises TableError for a run that recorded none, and where runs were validated on different numbers of cases.
    """
    verdicts_by_run = []
    for run in runs:
        verdicts = [row["validation/verdicts"] for row in _read_rows(results, run) if "validation/verdicts" in row]
        if not verdicts:
            raise TableError(f"{_metrics_path(results, run)}: no field 'validation/verdicts': train the run again")
        verdicts_by_run.append([verdict == "1" for verdict in verdicts[-1]])  # a character per case, such as "1101"
    if len({len(verdicts) for verdicts in verdicts_by_run}) > 1:
        raise TableError(f"{', '.join(runs)}: validated on different numbers of cases; train them again")
    return np.array(verdicts_by_run, dtype=float)


def _metrics_path(results: str | Path, run: str) -> Path:
    """Return the path of the file with the metrics of a training."""
    return Path(results) / "training" / run / "metrics.jsonl"


def _read_rows(results: str | Path, run: str) -> list[dict[str, Any]]:
    """Read the metrics of a training, a dict per step, without times; an empty list where there is no file. Raises
    TableError for a line that is not a row of metrics, such as an incomplete last one."""
    return read_metrics(_metrics_path(results, run), whole=True)  # an incomplete last line is an error


def _read_measurements(results: str | Path, run: str, metrics: Sequence[str], prefix: str) -> list[list[float]]:
    """Read the steps of a training that have any of the ``metrics``, each as [step, seconds, tokens, *metrics]. In the
    file the name of a metric begins with ``prefix``.

    Raises TableError where a value is not a finite number, or steps do not increase.
    """
    names = [f"{prefix}{metric}" for metric in metrics]
    path = _metrics_path(results, run)
    measurements: list[list[float]] = []
    for number, row in enumerate(read_history(path, path.with_name("timings.jsonl")), 1):
        if not any(name in row for name in names):
            continue
        for name in (*AXES, *names):
            value: Any = row.get(name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise TableError(f"{path}:{number}: field {name!r}: expected a finite number, got {value!r}")
        if measurements and row["step"] <= measurements[-1][0]:
            raise TableError(f"{path}:{number}: field 'step': {row['step']} does not follow {measurements[-1][0]:g}")
        measurements.append([float(row[name]) for name in (*AXES, *names)])
    return measurements


# Figures


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
        style.write_in_empty_panel(panel, "no validation of these trainings")


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
