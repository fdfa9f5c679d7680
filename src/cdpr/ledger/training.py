"""Training times, tokens and final validation accuracy, seed by seed; intervals are Student's over seeds, for training
has no cases to resample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..results.curves import Curves
from ..results.results import Hole
from .measure import Evidence
from .schema import Axis, Lightweight, Plateau, Slower

# What is compared, its unit, its decimals and what to know of it.
_AXES: dict[Axis, tuple[str, str, int, str]] = {
    "seconds": ("training time", "s", 1, "; wall-clock seconds of jobs that may have run side by side"),
    "tokens": ("tokens generated in training", "tokens", 0, ""),
}


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
    """Seconds or tokens of ``of`` minus those of ``than``; with ``nearer_to``, of their distances from it."""
    names = [claim.of, claim.than, *([claim.nearer_to] if claim.nearer_to else [])]
    curves = evidence.training(names)
    if isinstance(curves, Hole):
        return curves
    times = [_spent(curve, claim.by, claim.share) for curve in curves]
    if any(np.any(at <= 0) for at in times):
        return Hole(f"validation accuracy is at {100 * (claim.share or 1):g}% of its final value from the start: times "
                    "to it tell nothing")  # fmt: skip
    first, second, *reference = times
    if reference:
        first, second = abs(first - reference[0]), abs(second - reference[0])
    until = "to the last iteration" if claim.share is None else f"to {100 * claim.share:g}% of the final accuracy"
    what, unit, decimals, caveat = _AXES[claim.by]
    told = " against ".join(
        f"{curve.method.label} {at.mean():.{decimals}f}" for curve, at in zip(curves, times, strict=True)
    )
    return _by_seed(first - second, unit, f"{what} {until}, {told} {unit}{caveat}", curves)


def compare_probes(claim: Lightweight, evidence: Evidence) -> BySeed | Hole:
    """Tokens of probes over tokens of continuations, each summed over the training of ``of``."""
    parts = ("probe_tokens", "continuation_tokens")
    curve = evidence.credit(claim.of, parts)
    if isinstance(curve, Hole):
        return curve
    probes, continuations = (curve.values[part].sum(axis=1) for part in parts)
    if np.any(continuations == 0):
        return Hole("no continuations were generated: there is nothing to hold probes against")
    told = f"tokens generated in training, probes {probes.mean():.0f} against continuations {continuations.mean():.0f}"
    return _by_seed(probes / continuations, "ratio", f"{told}, to be below {claim.times:g} times", [curve])


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


def _spent(curve: Curves, axis: Axis, share: float | None) -> np.ndarray:
    """Training seconds or tokens by seed [seeds] until the accuracy first reaches a share of its final value."""
    spent, accuracy = curve.axes[axis], curve.values["accuracy"]
    if share is None:
        return spent[:, -1]
    reached = (accuracy >= share * accuracy[:, -1:]).argmax(axis=1)
    return spent[np.arange(len(spent)), reached]


def _by_seed(values: np.ndarray, unit: str, told: str, curves: Sequence[Curves]) -> BySeed:
    runs = tuple(dict.fromkeys(run for curve in curves for run in curve.runs))
    mean = float(values.mean())
    if len(values) < 2:
        return BySeed(mean, None, None, unit, told, runs)
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return BySeed(mean, mean - half, mean + half, unit, told, runs)
