"""Training curves: ``training/{run}/metrics.jsonl`` of all seeds of a variant on common steps."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .methods import Method

AXES = ("step", "seconds", "tokens")


class CurveError(ValueError):
    """A metrics file that cannot be used; the message names file, line and field."""


@dataclass(frozen=True)
class Curves:
    """Curves of one method. ``values[metric]`` and ``axes[axis]`` are [seeds, points], all seeds on the same
    steps; ``missing`` names the metrics files that are not there, ``diverged`` the steps at which runs broke off."""

    method: Method
    runs: tuple[str, ...]
    axes: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    missing: tuple[str, ...]
    diverged: dict[str, int]

    def mean(self, metric: str) -> np.ndarray:
        """Mean over seeds [points]."""
        return self.values[metric].mean(axis=0)

    def band(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest seed at each point."""
        return self.values[metric].min(axis=0), self.values[metric].max(axis=0)

    def x(self, axis: str) -> np.ndarray:
        """Where the points lie on ``step``, ``seconds`` or ``tokens``, mean over seeds [points]."""
        return self.axes[axis].mean(axis=0)


def read_curves(results: str | Path, method: Method, metrics: Sequence[str], prefix: str = "validation/") -> Curves:
    """Curves of all seeds that have a metrics file.

    Seeds are brought to the steps that any of them has within the range of all, by linear interpolation (nothing is
    extrapolated, so a seed that is still running shortens the curve). Raises :class:`CurveError`.
    """
    runs, missing, tables = [], [], []
    for run in method.runs:
        path = Path(results) / "training" / run / "metrics.jsonl"
        rows = _rows(path, metrics, prefix) if path.exists() else []
        if rows:
            runs.append(run)
            tables.append(np.array(rows))
        else:
            missing.append(path.relative_to(results).as_posix())
    names = [*AXES, *metrics]
    if not tables:
        empty = {name: np.zeros((0, 0)) for name in names}
        return Curves(method, (), empty, empty, tuple(missing), {})
    first, last = max(t[0, 0] for t in tables), min(t[-1, 0] for t in tables)
    steps = np.array(sorted({s for t in tables for s in t[:, 0] if first <= s <= last}))
    common = {
        name: np.stack([np.interp(steps, table[:, 0], table[:, column]) for table in tables])
        for column, name in enumerate(names)
    }
    broken = {run: step for run in runs if (step := diverged_at(results, run)) is not None}
    return Curves(method, tuple(runs), {a: common[a] for a in AXES}, {m: common[m] for m in metrics}, tuple(missing),
                  broken)  # fmt: skip


def diverged_at(results: str | Path, run: str) -> int | None:
    """The step at which a training run broke off because a reward or gradient was not finite, if it did."""
    path = Path(results) / "training" / run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    last = json.loads(lines[-1]) if lines and "diverged" in lines[-1] else {}
    return last.get("step") if last.get("diverged") else None


def _rows(path: Path, metrics: Sequence[str], prefix: str) -> list[list[float]]:
    """Rows that hold a measurement, as numbers in the order step, seconds, tokens, metrics."""
    found: list[list[float]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CurveError(f"{path}:{number}: not JSON at column {error.colno} ({error.msg})") from error
        if not isinstance(row, dict) or not any(f"{prefix}{metric}" in row for metric in metrics):
            continue
        numbers = []
        for name in (*AXES, *(f"{prefix}{metric}" for metric in metrics)):
            value = row.get(name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise CurveError(f"{path}:{number}: field {name!r}: expected a finite number, got {value!r}")
            numbers.append(float(value))
        if found and numbers[0] <= found[-1][0]:
            raise CurveError(f"{path}:{number}: field 'step': {row['step']} does not follow {found[-1][0]:g}")
        found.append(numbers)
    return found
