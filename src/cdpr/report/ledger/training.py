"""Comparisons of trainings by time, tokens and final validation accuracy. Intervals of times and tokens are Student's
over seeds, since training has no cases to resample; final accuracy resamples seeds and validation cases, as tables do
test cases."""

import numpy as np

from ...evaluation.significance import crossed_bootstrap, percentile_interval
from ...settings import Settings
from ..curves import Curves, final_verdicts
from ..methods import IN_DOMAIN
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .verdict import Effect, Verdict, verdict_on

# Final accuracies of fewer seeds, or of seeds that do not differ, have no interval over trainings.
LEAST_FINAL_SEEDS = 3
# What is compared, its unit, its decimals and a caveat.
_SPENT = {
    "seconds": ("training time", "s", 1, "; of the processor on a CPU (all threads), by the clock on a GPU"),
    "tokens": ("tokens generated in training", "tokens", 0, ""),
}


def compare_training(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare two trainings by time, tokens or final accuracy, or one training's tokens for probes with its tokens for
    continuations."""
    void = ""
    if claim.by == "final_accuracy":
        curves = evidence.curves([claim.of, claim.than], "accuracy")
        first, second = (final_verdicts(evidence.results.folder, curve.runs) for curve in curves)
        measured, void = final_accuracy(first - second, evidence.settings)
        reading = _against("final validation accuracy", curves, [f"{100 * at.mean():.2f}%" for at in (first, second)])
        unit = "points"
    else:
        values, unit, reading, curves = (_probes if claim.by == "probes" else _spent)(claim, evidence)
        measured = over_seeds(values)
    # How far the claim holds: inside a margin, or beyond a ratio (``times``) or zero on the claimed side.
    effect = measured.inside(claim.within) if claim.within else measured.minus(claim.times or 0.0).toward(claim.side)
    runs = tuple(dict.fromkeys(run for curve in curves for run in curve.runs))
    return verdict_on(effect, measured, reading, evidence.unfit(IN_DOMAIN), void=void, unit=unit, runs=runs)


def over_seeds(values: np.ndarray) -> Effect:
    """Mean over seeds [seeds] with Student's 95% interval; one seed has none."""
    if len(values) < 2:
        return Effect(float(values.mean()))
    from scipy.special import stdtrit

    mean, half = values.mean(), stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return Effect(float(mean), float(mean - half), float(mean + half))


# Each returns one value per seed [seeds], its unit, what was compared in words, and the curves of the training.
_Compared = tuple[np.ndarray, str, str, list[Curves]]


def _spent(claim: Claim, evidence: Evidence) -> _Compared:
    """Seconds or tokens of ``of`` minus those of ``than``; with ``nearer_to``, of their distances from it."""
    curves = evidence.curves(list(filter(None, [claim.of, claim.than, claim.nearer_to])), "accuracy")
    times = [_until(curve, claim.by, claim.share) for curve in curves]
    if any(np.any(at <= 0) for at in times):
        raise NotMeasured(f"validation accuracy is at {100 * (claim.share or 1):g}% of its final value from the start: "
                          "times to it tell nothing")  # fmt: skip
    first, second = times[:2] if len(times) == 2 else (abs(at - times[2]) for at in times[:2])
    until = "to the last iteration" if claim.share is None else f"to {100 * claim.share:g}% of the final accuracy"
    what, unit, decimals, caveat = _SPENT[claim.by]
    reading = _against(f"{what} {until}", curves, [f"{at.mean():.{decimals}f}" for at in times])
    return first - second, unit, f"{reading} {unit}{caveat}", curves


def final_accuracy(table: np.ndarray, settings: Settings) -> tuple[Effect, str]:
    """Mean of verdicts, or of their differences, [seeds, validation cases] in points with its interval over seeds and
    cases; and why it supports nothing: too few seeds, or seeds that do not differ."""
    value = 100 * float(table.mean())
    if len(table) < LEAST_FINAL_SEEDS:
        return Effect(value), f"fewer than {LEAST_FINAL_SEEDS} seeds of final accuracy"
    void = "" if np.ptp(table.mean(axis=1)) else "the seeds end with the same accuracy: their spread is not known"
    draws = 100 * crossed_bootstrap(table[:, :, None], settings.evaluation.bootstrap, settings.evaluation.seed)[:, 0]
    return Effect(value, *percentile_interval(draws)), void


def _probes(claim: Claim, evidence: Evidence) -> _Compared:
    """Tokens of probes over tokens of continuations, each summed over the training of ``of``."""
    (curve,) = curves = evidence.curves([claim.of], "probe_tokens", "continuation_tokens", prefix="credit/")
    probes, continuations = (curve.values[part].sum(axis=1) for part in ("probe_tokens", "continuation_tokens"))
    if np.any(continuations == 0):
        raise NotMeasured("no continuations were generated: there is nothing to hold probes against")
    tokens = f"probes {probes.mean():.0f} against continuations {continuations.mean():.0f}"
    limit = f"to be {claim.side} {claim.times:g} times"
    return probes / continuations, "ratio", f"tokens generated in training, {tokens}, {limit}", curves


def _until(curve: Curves, axis: str, share: float | None) -> np.ndarray:
    """Training seconds or tokens by seed [seeds] until the accuracy first reaches a share of its final value."""
    spent, accuracy = curve.values[axis], curve.values["accuracy"]
    if share is None:
        return spent[:, -1]
    reached = (accuracy >= share * accuracy[:, -1:]).argmax(axis=1)
    return spent[np.arange(len(spent)), reached]


def _against(what: str, curves: list[Curves], values: list[str]) -> str:
    pairs = zip(curves, values, strict=True)
    return f"{what}, " + " against ".join(f"{curve.method.label} {value}" for curve, value in pairs)
