"""Training times and final validation accuracy, seed by seed; intervals are Student's over seeds, for training has no
cases to resample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..curves import Curves
from ..results import Hole
from .measure import Evidence
from .schema import Plateau, Slower


@dataclass(frozen=True)
class BySeed:
    """A mean over seeds with its 95% interval (None for one seed), and in words what was compared."""

    value: float
    low: float | None
    high: float | None
    unit: str
    told: str
    runs: tuple[str, ...]


def compare_times(claim: Slower, evidence: Evidence) -> BySeed | Hole:
    """Seconds of ``of`` minus those of ``than``; with ``nearer_to``, of their distances from it."""
    names = [claim.of, claim.than, *([claim.nearer_to] if claim.nearer_to else [])]
    curves = evidence.training(names)
    if isinstance(curves, Hole):
        return curves
    times = [_seconds(curve, claim.share) for curve in curves]
    if any(np.any(at <= 0) for at in times):
        return Hole(f"validation accuracy is at {100 * (claim.share or 1):g}% of its final value from the start: times "
                    "to it tell nothing")  # fmt: skip
    first, second, *reference = times
    if reference:
        first, second = abs(first - reference[0]), abs(second - reference[0])
    until = "to the last iteration" if claim.share is None else f"to {100 * claim.share:g}% of the final accuracy"
    told = " against ".join(
        f"{curve.method.label} {at.mean():.1f} s" for curve, at in zip(curves, times, strict=True)
    )  # fmt: skip
    return _by_seed(first - second, "s", f"training time {until}, {told}", curves)


def compare_final(claim: Plateau, evidence: Evidence) -> BySeed | Hole:
    """Final validation accuracy of ``of`` minus that of ``than``, in points."""
    curves = evidence.training([claim.of, claim.than])
    if isinstance(curves, Hole):
        return curves
    ends = [100 * curve.values["accuracy"][:, -1] for curve in curves]
    told = " against ".join(f"{c.method.label} {end.mean():.2f}%" for c, end in zip(curves, ends, strict=True))
    return _by_seed(ends[0] - ends[1], "points", f"final validation accuracy, {told}", curves)


def final_accuracy(name: str, evidence: Evidence) -> BySeed | Hole:
    """Final validation accuracy in %."""
    curves = evidence.training([name])
    if isinstance(curves, Hole):
        return curves
    return _by_seed(100 * curves[0].values["accuracy"][:, -1], "%", "final validation accuracy", curves)


def _seconds(curve: Curves, share: float | None) -> np.ndarray:
    """Training seconds by seed [seeds] until the accuracy first reaches a share of its final value."""
    seconds, accuracy = curve.axes["seconds"], curve.values["accuracy"]
    if share is None:
        return seconds[:, -1]
    reached = (accuracy >= share * accuracy[:, -1:]).argmax(axis=1)
    return seconds[np.arange(len(seconds)), reached]


def _by_seed(values: np.ndarray, unit: str, told: str, curves: Sequence[Curves]) -> BySeed:
    runs = tuple(dict.fromkeys(run for curve in curves for run in curve.runs))
    mean = float(values.mean())
    if len(values) < 2:
        return BySeed(mean, None, None, unit, told, runs)
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return BySeed(mean, mean - half, mean + half, unit, told, runs)
