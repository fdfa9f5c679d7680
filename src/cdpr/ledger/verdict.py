"""What the results at hand say of a claim: one short function per kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..evaluation.statistics import percentile_interval, wilson_interval
from ..results.methods import DATASETS
from ..results.results import Hole
from ..settings import sweeps
from . import setup, training
from .measure import FACTOR, Evidence, Sample
from .outcome import DEVIATES, NOT_RUN, REPRODUCED, Effect, Outcome, directional, not_run, signed, within
from .schema import (
    Best,
    Claim,
    Close,
    Figure,
    Greater,
    Hardest,
    Lightweight,
    Metric,
    Peak,
    Plateau,
    Slower,
    printed_number,
)

_DECIMALS = {"utility": 3}


def judge(claim: Claim, evidence: Evidence) -> Outcome:
    """The verdict on a claim, with the runs behind it that diverged. Raises EvaluationError or CurveError for results
    that cannot be used."""
    outcome = _JUDGES[claim.kind](claim, evidence)
    broken = evidence.diverged(outcome.runs)
    return replace(outcome, why=f"{outcome.why}; {broken} (evaluated with the weights before)") if broken else outcome


def _figure(claim: Figure, evidence: Evidence) -> Outcome:
    names = [claim.of, claim.than] if claim.than else [claim.of]
    absent = [one for one in map(evidence.method, names) if isinstance(one, Hole) or not one.runs]
    if absent:
        return not_run(absent[0])
    if unfit := evidence.unfit(claim.on):
        return not_run(unfit)
    found = evidence.sample(names, claim.metric, claim.on)
    if isinstance(found, Hole):
        return not_run(found)
    if other := evidence.other_count(claim.on, *found.cases):
        return not_run(other)
    if not claim.than:  # Wilson's interval where the tables have it
        at = evidence.results.summary(found.methods[0], claim.on, evidence.decoding).estimates[claim.metric]
        scale = FACTOR.get(claim.metric, 1.0)
        value, low, high = at.mean * scale, at.low * scale, at.high * scale
    else:
        statistic = _STATISTICS[claim.statistic]
        value, (low, high) = float(statistic(found.means)), percentile_interval(statistic(found.draws))
    return _printed(claim, value, low, high, _behind(found, claim.metric, claim.statistic))


def _printed(claim: Figure | Plateau, value: float, low: float, high: float, behind: dict[str, Any]) -> Outcome:
    printed, half = printed_number(claim)
    inside = low - half <= printed <= high + half
    why = f"the printed figure lies {'in' if inside else 'outside'} the 95% interval"
    return Outcome(REPRODUCED if inside else DEVIATES, why, value, low, high, clear=True, **behind)


def _greater(claim: Greater, evidence: Evidence) -> Outcome:
    found = evidence.sample([claim.of, claim.than], claim.metric, claim.on)
    if isinstance(found, Hole):
        return not_run(found)
    sign = 1.0 if claim.side == "above" else -1.0
    weights = np.array([sign, -sign * claim.times])
    effect = _effect(found, weights, -claim.margin)
    verdict, why = directional(effect, evidence.unfit(claim.on))
    bound = "" if claim.times == 1 else f", to be {claim.side} {claim.times:g} times"
    bound += f", with a margin of {claim.margin:g}" if claim.margin else ""
    why = f"{_both(found, claim.metric)}{bound}: {why}"
    return _shown(verdict, why, found, claim.metric, effect, "difference" if claim.times == 1 else "ratio")


def _close(claim: Close, evidence: Evidence) -> Outcome:
    found = evidence.sample([claim.of, claim.than], claim.metric, claim.on)
    if isinstance(found, Hole):
        return not_run(found)
    difference = _STATISTICS["difference"]
    value, (low, high) = float(difference(found.means)), percentile_interval(difference(found.draws))
    effect = within(value, low, high, claim.margin)
    verdict, why = directional(effect, evidence.unfit(claim.on))
    why = f"{_both(found, claim.metric)}, to lie within {claim.margin:g}: {why}"
    return _shown(verdict, why, found, claim.metric, effect)


def _best(claim: Best, evidence: Evidence) -> Outcome:
    rivals = [name for name in claim.among or evidence.paper_rows() if name != claim.of]
    return _above_all(claim, claim.of, rivals, "rows", evidence)


def _peak(claim: Peak, evidence: Evidence) -> Outcome:
    points = sweeps(evidence.settings, "sensitivity").get(claim.sweep, {})
    default = next((name for value, name in points.items() if value == claim.value), None)
    if default is None:
        return not_run(f"the sweep {claim.sweep!r} has no point {claim.value:g}")
    rivals = [name for name in points.values() if name != default]
    best = Best(id=claim.id, place=claim.place, says=claim.says, kind="best", of=default, metric="accuracy",
                on="mimic_iv", side="above")  # fmt: skip
    outcome = _above_all(best, default, rivals, "points of our grid", evidence)
    return outcome if outcome.verdict == NOT_RUN else replace(
        outcome, why=f"{outcome.why}; the paper does not print its grid"
    )  # fmt: skip


def _above_all(claim: Best, of: str, rivals: Sequence[str], what: str, evidence: Evidence) -> Outcome:
    """One method against each of the others: all must stand on the claimed side, one clearly on the other refutes.
    What was not run may yet refute it, so that only with all of them a lead is clear."""
    sign = 1.0 if claim.side == "above" else -1.0
    alone = evidence.sample([of], claim.metric, claim.on)
    if isinstance(alone, Hole):
        return not_run(alone)
    found = [evidence.sample([of, name], claim.metric, claim.on) for name in rivals]
    run = [one for one in found if isinstance(one, Sample)]
    if not run:
        return not_run(f"none of the {len(rivals)} other {what} was run")
    effects = [_effect(one, np.array([sign, -sign])) for one in run]
    closest = min(range(len(run)), key=lambda i: effects[i].value)
    clearly = sum(effect.refuted for effect in effects)
    whole = Effect(
        effects[closest].value,
        min(effect.low for effect in effects),  # type: ignore[type-var]
        min(effect.high for effect in effects),  # type: ignore[type-var]
    )
    counted, whole_field = f"{len(run) + 1} of {len(rivals) + 1} {what} were run", len(run) == len(rivals)
    verdict, why = directional(whole, evidence.unfit(claim.on), "" if whole_field else counted)
    before = sum(effect.value > 0 for effect in effects)
    told = [f"ahead of {before} of {len(run)}"] + ([f"clearly behind {clearly}"] if clearly else [])
    told += [f"closest: {_both(run[closest], claim.metric)}", why, "" if counted in why else counted]
    text = "; ".join(part for part in told if part)
    shown = _shown(verdict, text, run[closest], claim.metric, whole)
    everyone = tuple(dict.fromkeys(name for one in run for method in one.methods for name in method.runs))
    return replace(
        shown, clear=shown.clear and (whole_field or whole.refuted), runs=everyone,
        scope="" if whole_field else f"of the {len(run) + 1} {what} run",
    )  # fmt: skip


def _hardest(claim: Hardest, evidence: Evidence) -> Outcome:
    """Different cases, resampled independently, so the difference is not paired."""
    found = {on: evidence.sample([claim.of], "accuracy", on) for on in (claim.on, *DATASETS)}
    holes = [one for one in found.values() if isinstance(one, Hole)]
    if holes:
        return not_run(holes[0])
    here = found.pop(claim.on)
    effects = {}
    for on, there in found.items():
        low, high = percentile_interval(there.draws[:, 0] - here.draws[:, 0])
        effects[on] = Effect(float(there.means[0] - here.means[0]), low, high)
    on = min(effects, key=lambda name: effects[name].value)
    whole = Effect(effects[on].value, min(e.low for e in effects.values()), min(e.high for e in effects.values()))
    verdict, why = directional(whole, evidence.unfit("average"))
    why = f"next: {DATASETS[on]} {found[on].means[0]:.2f} against {DATASETS[claim.on]} {here.means[0]:.2f}: {why}"
    behind = _behind(here, "accuracy") | {"unit": "points"}
    at = effects[on]
    return Outcome(verdict, why, at.value, at.low, at.high, clear=whole.clear, **behind)


def _slower(claim: Slower, evidence: Evidence) -> Outcome:
    found = training.compare_times(claim, evidence)
    return _over_seeds(found, evidence, lambda value, low, high: signed(value, low, high, claim.side))


def _plateau(claim: Plateau, evidence: Evidence) -> Outcome:
    if not claim.than:
        if unfit := evidence.unfit("mimic_iv"):
            return not_run(unfit)
        found = training.final_accuracy(claim.of, evidence)
        if isinstance(found, Hole):
            return not_run(found)
        cases = evidence.settings.data.validation_cases
        low, high = wilson_interval(round(found.value * cases / 100), cases)
        return _printed(claim, found.value, 100 * low, 100 * high, {"runs": found.runs, "seeds": _seeds(found.runs),
                                                                    "unit": found.unit, "n": cases})  # fmt: skip
    found = training.compare_final(claim, evidence)
    if claim.margin is None:
        return _over_seeds(found, evidence, lambda value, low, high: signed(value, low, high, claim.side))
    margin = claim.margin
    return _over_seeds(found, evidence, lambda value, low, high: within(value, low, high, margin))


def _lightweight(claim: Lightweight, evidence: Evidence) -> Outcome:
    found = training.compare_probes(claim, evidence)
    return _over_seeds(found, evidence, lambda value, low, high: signed(
        value - claim.times, None if low is None else low - claim.times, None if high is None else high - claim.times,
        "below",
    ))  # fmt: skip


def _over_seeds(found: training.BySeed | Hole, evidence: Evidence, oriented: Callable[..., Effect]) -> Outcome:
    if isinstance(found, Hole):
        return not_run(found)
    effect = oriented(found.value, found.low, found.high)
    verdict, why = directional(effect, evidence.unfit("mimic_iv"))
    measured = (found.value, found.low, found.high, found.unit)
    return Outcome(verdict, f"{found.told}: {why}", *measured, effect.clear, seeds=_seeds(found.runs), runs=found.runs)


_STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda at: at[..., 0],
    "difference": lambda at: at[..., 0] - at[..., 1],
    "ratio": lambda at: _share(at[..., 0], at[..., 1]),
    "reduction": lambda at: 100 * (1 - _share(at[..., 0], at[..., 1])),
}  # fmt: skip
_JUDGES: dict[str, Callable[[Any, Evidence], Outcome]] = {
    "figure": _figure, "greater": _greater, "best": _best, "close": _close, "hardest": _hardest, "peak": _peak,
    "slower": _slower, "plateau": _plateau, "lightweight": _lightweight, "setting": setup.setting,
    "number": setup.number, "cases": setup.cases, "same_job": setup.same_job, "price": setup.price,
    "billed_together": setup.billed_together, "not_run": lambda claim, evidence: not_run(claim.why),
}  # fmt: skip


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(np.shape(whole), np.inf), where=np.asarray(whole) != 0)


def _effect(found: Sample, weights: np.ndarray, offset: float = 0.0) -> Effect:
    low, high = percentile_interval(found.draws @ weights + offset)
    return Effect(float(found.means @ weights + offset), low, high)


def _shown(
    verdict: str, why: str, found: Sample, metric: Metric, effect: Effect, statistic: str = "difference"
) -> Outcome:
    """The outcome of two methods side by side, shown as their difference or ratio."""
    relate = _STATISTICS[statistic]
    value, (low, high) = float(relate(found.means)), percentile_interval(relate(found.draws))
    return Outcome(verdict, why, value, low, high, clear=effect.clear, **_behind(found, metric, statistic))


def _behind(found: Sample, metric: str, statistic: str = "mean") -> dict[str, Any]:
    runs = tuple(dict.fromkeys(run for method in found.methods for run in method.runs))
    unit = {"accuracy": "%" if statistic == "mean" else "points", "aec": "USD"}.get(metric, "")
    unit = {"ratio": "ratio", "reduction": "%"}.get(statistic, unit)
    k, n = "", "+".join(map(str, found.cases))
    if len(found.cases) == 1:
        (counted,), (n,) = found.right, found.cases
        k = " : ".join("+".join(map(str, counts)) for counts in counted) if metric == "accuracy" else ""
    return {"k": k, "n": n, "seeds": _seeds(runs), "runs": runs, "unit": unit}


def _both(found: Sample, metric: str) -> str:
    pairs = zip(found.methods, found.means, strict=True)
    return " against ".join(f"{method.label} {value:.{_DECIMALS.get(metric, 2)}f}" for method, value in pairs)


def _seeds(runs: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted({int(run.rpartition("-seed")[2]) for run in runs if "-seed" in run}))
