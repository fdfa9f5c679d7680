"""Training curves: ``training/{run}/metrics.jsonl`` of all seeds of a variant on common steps."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from .methods import Method

AXES = ("step", "seconds", "tokens")


class CurveError(ValueError):
    """A metrics file that cannot be used; the message names file, line and field."""


@dataclass(frozen=True)
class Curves:
    """The training curves of one method. ``values`` [seeds, points] of each metric and of each of :data:`AXES` have all
    seeds on the same steps, NaN after the last measurement of a run that diverged; ``missing`` names the metrics files
    that are not there or hold no measurement, ``diverged`` the steps at which runs broke off, also of runs without a
    measurement."""

    method: Method
    runs: tuple[str, ...]
    values: dict[str, np.ndarray]
    missing: tuple[str, ...]
    diverged: dict[str, int]

    def mean(self, name: str) -> np.ndarray:
        """Average a metric, or an axis, over the seeds that have not ended [points]."""
        return np.nanmean(self.values[name], axis=0)

    def band(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest seed at each point."""
        return np.nanmin(self.values[metric], axis=0), np.nanmax(self.values[metric], axis=0)

    def pieces(self) -> Iterator[Self]:
        """Cut the curve where seeds end, each piece with the seeds that last to its end: a mean over other seeds is
        another line, and on the axes of time and tokens it would jump."""
        there = ~np.isnan(self.values["step"])
        last = there.shape[1] - 1
        ends = [at for at in range(last) if (there[:, at] != there[:, at + 1]).any()]
        for start, end in zip([0, *ends], [*ends, last], strict=True):
            seeds, points = there[:, end], slice(start, end + 1)
            yield replace(self, values={name: table[seeds, points] for name, table in self.values.items()})

    def ends(self, axis: str, metric: str) -> list[tuple[float, float]]:
        """List the last measurement of every diverged run, as (axis, metric)."""
        ends = []
        for seed in (seed for seed, run in enumerate(self.runs) if run in self.diverged):
            last = np.flatnonzero(~np.isnan(self.values["step"][seed]))[-1:]
            ends += [(float(self.values[axis][seed, at]), float(self.values[metric][seed, at])) for at in last]
        return ends


def read_curves(results: str | Path, method: Method, metrics: Sequence[str], prefix: str = "validation/") -> Curves:
    """Read the curves of all seeds that have a metrics file.

    Seeds are brought to the steps that any of them has within the range of all, by linear interpolation. Nothing is
    extrapolated: a seed that is still running shortens the curve; one that diverged only ends itself. Raises
    :class:`CurveError`.
    """
    broken = {run: step for run in method.runs if (step := diverged_at(results, run)) is not None}
    tables = {run: np.array(rows) for run in method.runs if (rows := _measured(results, run, metrics, prefix))}
    missing = tuple(f"training/{run}/metrics.jsonl" for run in method.runs if run not in {*tables, *broken})
    curves = {name: np.zeros((0, 0)) for name in (*AXES, *metrics)}
    if tables:
        lasts = [table[-1, 0] for run, table in tables.items() if run not in broken]
        first = max(table[0, 0] for table in tables.values())
        last = min(lasts, default=max(table[-1, 0] for table in tables.values()))
        steps = np.array(sorted({s for table in tables.values() for s in table[:, 0] if first <= s <= last}))
        curves = {
            name: np.stack([np.interp(steps, table[:, 0], table[:, i], right=np.nan) for table in tables.values()])
            for i, name in enumerate(curves)
        }
    return Curves(method, tuple(tables), curves, missing, broken)


def read_training(results: str | Path, run: str) -> pd.DataFrame:
    """Read the metrics of a training, a row per step; no rows without a file. Raises :class:`CurveError`."""
    return pd.DataFrame([{"run": run, **row} for _, row in _lines(results, run)])


def diverged_at(results: str | Path, run: str) -> int | None:
    """Return the step at which a training run stopped because a reward or gradient was not finite, or None.

    Raises :class:`CurveError` for a line that is cut, or a last one that tells no step.
    """
    for location, row in _lines(results, run)[-1:]:
        if row.get("diverged"):
            if type(step := row.get("step")) is not int:
                raise CurveError(f"{location}: field 'step': expected the step that diverged, got {step!r}")
            return step
    return None


def final_verdicts(results: str | Path, runs: Sequence[str]) -> np.ndarray:
    """Read the verdicts [runs, validation cases] of the last validation of trainings: 1 right, 0 wrong or failed.

    Raises :class:`CurveError` for a run without them, and for runs that were validated on other numbers of cases.
    """
    rows = []
    for run in runs:
        verdicts = [row["validation/verdicts"] for _, row in _lines(results, run) if "validation/verdicts" in row]
        if not verdicts:
            path = Path(results) / "training" / run / "metrics.jsonl"
            raise CurveError(f"{path}: no field 'validation/verdicts': train the run again")
        rows.append([verdict == "1" for verdict in verdicts[-1]])
    if len({len(row) for row in rows}) > 1:
        raise CurveError(f"{', '.join(runs)}: validated on different numbers of cases; train them again")
    return np.array(rows, dtype=float)


def _lines(results: str | Path, run: str, name: str = "metrics.jsonl") -> list[tuple[str, dict]]:
    """Read location (``file:line``) and row of every line of a run's metrics; none without a file."""
    path = Path(results) / "training" / run / name
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            rows.append((f"{path}:{number}", json.loads(line)))
        except (ValueError, RecursionError) as error:  # other encodings, brackets without end
            location = f"{path}:{number}: not JSON at column {getattr(error, 'colno', 1)}"
            raise CurveError(f"{location} ({getattr(error, 'msg', error)}); train the run again") from error
    return [(location, row) for location, row in rows if isinstance(row, dict)]


def _measured(results: str | Path, run: str, metrics: Sequence[str], prefix: str) -> list[list[float]]:
    """Read the rows that have a measurement, as numbers in the order step, seconds, tokens, metrics."""
    names, rows = [f"{prefix}{metric}" for metric in metrics], list[list[float]]()
    times = {row.get("step"): row for _, row in _lines(results, run, "timings.jsonl")}
    for location, row in ((location, row | times.get(row.get("step"), {})) for location, row in _lines(results, run)):
        if not any(name in row for name in names):
            continue
        for name in (*AXES, *names):
            value: Any = row.get(name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise CurveError(f"{location}: field {name!r}: expected a finite number, got {value!r}")
        if rows and row["step"] <= rows[-1][0]:
            raise CurveError(f"{location}: field 'step': {row['step']} does not follow {rows[-1][0]:g}")
        rows.append([float(row[name]) for name in (*AXES, *names)])
    return rows
