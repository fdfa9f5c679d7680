"""Verdicts on claims about training: time, generated tokens and final validation accuracy.

Intervals of times and tokens are Student's over training seeds, since training has no cases to resample. Those of final
accuracy resample seeds and validation cases.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from ...evaluation.significance import crossed_bootstrap, percentile_interval
from ...settings import Settings
from ..curves import Curves, final_verdicts
from ..methods import IN_DOMAIN
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .verdict import Comparison, Effect, Verdict, judge_comparisons, unique_runs

# Final accuracies of fewer seeds, or of seeds that do not differ, have no interval over trainings.
LEAST_FINAL_SEEDS = 3
# What is spent in training, by what the claim compares: its name, unit, decimals, and a caveat.
_SPENT = {
    "seconds": ("training time", "s", 1, "; of the processor on a CPU (all threads), by the clock on a GPU"),
    "tokens": ("tokens generated in training", "tokens", 0, ""),
}


def judge_training(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare two trainings by time, tokens or final accuracy, or two parts of the tokens of one training. Returns the
    verdict. Raises NotMeasured where results are missing."""
    compare = {"final_accuracy": _compare_final_accuracy, "probes": _compare_probes}.get(claim["by"], _compare_spent)
    comparison = compare(claim, evidence)
    # A ratio (of probes to continuations) is compared with `times`, a difference (all else) with zero.
    support = comparison.measured.minus(claim.get("times", 0.0)).support(claim)
    return judge_comparisons([replace(comparison, support=support)], evidence.why_not_comparable(IN_DOMAIN))


def over_seeds(values: np.ndarray) -> Effect:
    """Return the mean of values [seeds] with Student's 95% interval over seeds; for a single seed the ends of the
    interval are NaN."""
    if len(values) < 2:
        return Effect(float(values.mean()))
    from scipy.special import stdtrit

    mean = float(values.mean())
    half_width = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values)))
    return Effect(mean, mean - half_width, mean + half_width)


def _compare_spent(claim: Claim, evidence: Evidence) -> Comparison:
    """Return the seconds or tokens that the training of the variant ``of`` takes minus those of ``than``, with their
    interval. With ``nearer_to``, it is the distance of ``of`` from this third variant minus the distance of ``than``.

    Raises NotMeasured where results are missing, or where a training reaches the accuracy in question at its start.
    """
    share = claim.get("share", 0.95)
    curves = evidence.curves([claim[name] for name in ("of", "than", "nearer_to") if name in claim], "accuracy")
    spent = [_spent_until(curve, claim["by"], share) for curve in curves]
    if any(np.any(values <= 0) for values in spent):
        raise NotMeasured(f"validation accuracy is at {100 * (share or 1):g}% of its final value from the start: "
                          "times to it tell nothing")  # fmt: skip
    first, second, *nearer_to = spent  # of two or three variants
    if nearer_to:
        first, second = abs(first - nearer_to[0]), abs(second - nearer_to[0])
    until = "to the last iteration" if share is None else f"to {100 * share:g}% of the final accuracy"
    noun, unit, decimals, caveat = _SPENT[claim["by"]]
    text = f"{noun} {until}, {_labelled(curves, spent, decimals)} {unit}{caveat}"
    return Comparison(over_seeds(first - second), text, unit, runs=unique_runs(curves))


def _spent_until(curve: Curves, axis: str, share: float | None) -> np.ndarray:
    """Return the seconds or tokens (``axis``) of training, an array [seeds], until validation accuracy first reaches
    the fraction ``share`` of its final value; until the end where ``share`` is None."""
    spent, accuracy = curve.values[axis], curve.values["accuracy"]
    if share is None:
        return spent[:, -1]
    has_reached = accuracy >= share * accuracy[:, -1:]  # [seeds, points]
    first_point = has_reached.argmax(axis=1)  # for each seed, the first point with True
    return spent[np.arange(len(spent)), first_point]


def _compare_final_accuracy(claim: Claim, evidence: Evidence) -> Comparison:
    """Return the final validation accuracy of ``of`` minus that of ``than``, in percentage points, with its interval.
    Raises NotMeasured where results are missing."""
    curves = evidence.curves([claim["of"], claim["than"]], "accuracy")
    first, second = (final_verdicts(evidence.results.folder, curve.runs) for curve in curves)
    text = f"final validation accuracy, {_labelled(curves, [100 * first, 100 * second], 2)} %"
    return measure_final_accuracy(first - second, evidence.settings, text=text, unit="points", runs=unique_runs(curves))


def measure_final_accuracy(verdicts: np.ndarray, settings: Settings, **fields: Any) -> Comparison:
    """Return the mean of ``verdicts`` [seeds, validation cases] (1 right, 0 wrong, or differences of these), in %, with
    its 95% interval over seeds and cases. ``fields`` are further fields of the returned comparison.

    It supports no conclusion (``void``) with fewer than :data:`LEAST_FINAL_SEEDS` seeds, or where all seeds have the
    same mean.
    """
    value = 100 * float(verdicts.mean())
    if len(verdicts) < LEAST_FINAL_SEEDS:
        return Comparison(Effect(value), void=f"fewer than {LEAST_FINAL_SEEDS} seeds of final accuracy", **fields)
    seeds_differ = np.ptp(verdicts.mean(axis=1)) > 0
    void = "" if seeds_differ else "the seeds end with the same accuracy: their spread is not known"
    one_metric = verdicts[:, :, None]  # [seeds, cases, metrics]
    draws = crossed_bootstrap(one_metric, settings.evaluation.bootstrap, settings.evaluation.seed)[:, 0]
    return Comparison(Effect(value, *percentile_interval(100 * draws)), void=void, **fields)


def _compare_probes(claim: Claim, evidence: Evidence) -> Comparison:
    """Return the ratio of two parts of the tokens that the training of the variant ``of`` generated: those that sample
    next actions (probes) over those that continue episodes. Raises NotMeasured where results are missing, or no episode
    was continued."""
    (curve,) = evidence.curves([claim["of"]], "probe_tokens", "continuation_tokens", prefix="credit/")
    # By seed, over all steps.
    probes, continuations = (curve.values[f"{name}_tokens"].sum(axis=1) for name in ("probe", "continuation"))
    if np.any(continuations == 0):
        raise NotMeasured("no continuations were generated: there is nothing to hold probes against")
    text = (f"tokens generated in training, probes {probes.mean():.0f} against continuations "
            f"{continuations.mean():.0f}, to be {claim['side']} {claim['times']:g} times")  # fmt: skip
    return Comparison(over_seeds(probes / continuations), text, "ratio", runs=curve.runs)


def _labelled(curves: list[Curves], values: list[np.ndarray], decimals: int) -> str:
    """Return the mean of each variant's ``values`` as text: ``CDPR 31.2 against GRPO 25.0``."""
    means = (f"{curve.method.label} {mean.mean():.{decimals}f}" for curve, mean in zip(curves, values, strict=True))
    return " against ".join(means)
