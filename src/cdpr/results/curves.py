"""Training curves: ``training/{run}/metrics.jsonl`` of all seeds of a variant on common steps."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .methods import Method

AXES = ("step", "seconds", "tokens")


class CurveError(ValueError):
    """A metrics file that cannot be used; the message names file, line and field."""


@dataclass(frozen=True)
class Curves:
    """Curves of one method. ``values[metric]`` and ``axes[axis]`` are [seeds, points], all seeds on the same
    steps, NaN after the last measurement of a run that diverged; ``missing`` names the metrics files that are not
    there or hold no measurement, ``diverged`` the steps at which runs broke off, also of runs without a measurement."""

    method: Method
    runs: tuple[str, ...]
    axes: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    missing: tuple[str, ...]
    diverged: dict[str, int]

    def mean(self, metric: str) -> np.ndarray:
        """Mean over the seeds that are still there [points]."""
        return np.nanmean(self.values[metric], axis=0)

    def band(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest seed that is still there at each point."""
        return np.nanmin(self.values[metric], axis=0), np.nanmax(self.values[metric], axis=0)

    def x(self, axis: str) -> np.ndarray:
        """Where the points lie on ``step``, ``seconds`` or ``tokens``, mean over the seeds still there [points]."""
        return np.nanmean(self.axes[axis], axis=0)

    def pieces(self) -> Iterator[Curves]:
        """The curve cut where seeds end, each piece with the seeds that last to its end: a mean over other seeds is
        another line, and on the axes of time and tokens it would jump."""
        there = ~np.isnan(self.axes["step"])
        last = there.shape[1] - 1
        ends = [at for at in range(last) if (there[:, at] != there[:, at + 1]).any()]
        for start, end in zip([0, *ends], [*ends, last], strict=True):
            seeds, points = there[:, end], slice(start, end + 1)
            axes, values = ({n: table[seeds, points] for n, table in of.items()} for of in (self.axes, self.values))
            yield replace(self, axes=axes, values=values)

    def ends(self, axis: str, metric: str) -> list[tuple[float, float]]:
        """Last measurement of every diverged run, as (axis, metric)."""
        ends = []
        for seed in (seed for seed, run in enumerate(self.runs) if run in self.diverged):
            last = np.flatnonzero(~np.isnan(self.axes["step"][seed]))[-1:]
            ends += [(float(self.axes[axis][seed, at]), float(self.values[metric][seed, at])) for at in last]
        return ends


def read_curves(results: str | Path, method: Method, metrics: Sequence[str], prefix: str = "validation/") -> Curves:
    """Curves of all seeds that have a metrics file.

    Seeds are brought to the steps that any of them has within the range of all, by linear interpolation. Nothing is
    extrapolated: a seed that is still running shortens the curve; one that diverged only ends itself. Raises
    :class:`CurveError`.
    """
    broken = {run: step for run in method.runs if (step := diverged_at(results, run)) is not None}
    runs, missing, tables = [], [], []
    for run in method.runs:
        path = Path(results) / "training" / run / "metrics.jsonl"
        rows = _rows(path, metrics, prefix) if path.exists() else []
        if rows:
            runs.append(run)
            tables.append(np.array(rows))
        elif run not in broken:
            missing.append(path.relative_to(results).as_posix())
    names = [*AXES, *metrics]
    if not tables:
        empty = {name: np.zeros((0, 0)) for name in names}
        return Curves(method, (), empty, empty, tuple(missing), broken)
    lasts = [table[-1, 0] for run, table in zip(runs, tables, strict=True) if run not in broken]
    first, last = max(t[0, 0] for t in tables), min(lasts, default=max(t[-1, 0] for t in tables))
    steps = np.array(sorted({s for t in tables for s in t[:, 0] if first <= s <= last}))
    common = {
        name: np.stack([np.interp(steps, table[:, 0], table[:, column], right=np.nan) for table in tables])
        for column, name in enumerate(names)
    }
    return Curves(
        method, tuple(runs), {a: common[a] for a in AXES}, {m: common[m] for m in metrics}, tuple(missing), broken
    )


def diverged_at(results: str | Path, run: str) -> int | None:
    """The step at which a training run broke off because a reward or gradient was not finite, if it did.

    Raises :class:`CurveError` for a last line that is cut or tells no step.
    """
    path = Path(results) / "training" / run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    last = _parse(path, len(lines), lines[-1]) if lines else None
    if not isinstance(last, dict) or not last.get("diverged"):
        return None
    step = last.get("step")
    if isinstance(step, bool) or not isinstance(step, int):
        raise CurveError(f"{path}:{len(lines)}: field 'step': expected the step that diverged, got {step!r}")
    return step


def final_verdicts(results: str | Path, runs: Sequence[str]) -> np.ndarray:
    """Verdicts [runs, validation cases] of the last validation of trainings: 1 right, 0 wrong or failed.

    Raises :class:`CurveError` for a run without them, and for runs that were validated on other numbers of cases.
    """
    rows = []
    for run in runs:
        path = Path(results) / "training" / run / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        parsed = (_parse(path, number, line) for number, line in enumerate(lines, 1))
        last = [row["validation/verdicts"] for row in parsed if isinstance(row, dict) and "validation/verdicts" in row]
        if not last:
            raise CurveError(f"{path}: no field 'validation/verdicts': train the run again")
        rows.append([verdict == "1" for verdict in last[-1]])
    if len({len(row) for row in rows}) > 1:
        raise CurveError(f"{', '.join(runs)}: validated on different numbers of cases; train them again")
    return np.array(rows, dtype=float)


def _parse(path: Path, number: int, line: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        place = f"{path}:{number}: not JSON at column {error.colno}"
        raise CurveError(f"{place} ({error.msg}); train the run again") from error


def _rows(path: Path, metrics: Sequence[str], prefix: str) -> list[list[float]]:
    """Rows that hold a measurement, as numbers in the order step, seconds, tokens, metrics."""
    rows: list[list[float]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        row = _parse(path, number, line)
        if not isinstance(row, dict) or not any(f"{prefix}{metric}" in row for metric in metrics):
            continue
        numbers = []
        for name in (*AXES, *(f"{prefix}{metric}" for metric in metrics)):
            value = row.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise CurveError(f"{path}:{number}: field {name!r}: expected a finite number, got {value!r}")
            numbers.append(float(value))
        if rows and numbers[0] <= rows[-1][0]:
            raise CurveError(f"{path}:{number}: field 'step': {row['step']} does not follow {rows[-1][0]:g}")
        rows.append(numbers)
    return rows
