"""Claims of the expert study, judged from its analysis. Simulated raters are no physicians: what they show is at most
the same direction, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..study.analysis import Analysis, Interval
from ..study.returned import PHYSICIAN, SIMULATED
from ..study.rubric import dimensions
from .claims import StudyClaim
from .evidence import Evidence, training_seeds
from .verdict import OPEN, Effect, NotMeasured, Verdict, directional, weakest


def compare_study(claim: StudyClaim, evidence: Evidence) -> Verdict:
    """The verdict on a claim about the study's ratings."""
    path = evidence.results.folder / "study" / "analysis.json"
    if not path.exists():
        raise NotMeasured("missing: study/analysis.json (snakemake expert_study)")
    analysis = Analysis.model_validate_json(path.read_text(encoding="utf-8"))
    if not analysis.kind:
        raise NotMeasured("no physician has rated yet: the forms are in study/forms")
    effect, statistic, reading, unit, runs = _ASKED[claim.asks](claim, analysis, evidence)
    unfit = "" if analysis.kind == PHYSICIAN else f"{len(analysis.raters)} simulated raters, no physicians"
    unfit = unfit or evidence.unfit("average")
    rated, all_methods = len(analysis.runs), len(analysis.runs) + len(analysis.left_out)
    part = claim.asks != "agreement" and rated < all_methods
    verdict, why = directional(effect, unfit, f"{rated} of {all_methods} methods were rated" if part else "")
    if analysis.kind not in (PHYSICIAN, SIMULATED):
        verdict, why = OPEN, f"{analysis.kind} raters show nothing of physicians"
    behind = {"n": analysis.states, "seeds": training_seeds(runs), "runs": tuple(runs)}
    return Verdict(verdict, f"{reading}: {why}", *statistic, unit, **behind)


_Asked = tuple[Effect, Effect, str, str, Sequence[str]]


def _leads(claim: StudyClaim, analysis: Analysis, evidence: Evidence) -> _Asked:
    """Ours is above every baseline: on one dimension, or on all."""
    asked_dimensions = (claim.dimension,) if claim.dimension else dimensions()
    leads = [_effect(analysis.lead, name) for name in asked_dimensions]
    # A lead that is clearly none on one dimension refutes; a clear lead needs all of them.
    at, all_leads = weakest(leads)
    least = asked_dimensions[at]
    test = analysis.comparison(least, analysis.next_best(least))
    ahead = sum(effect.value > 0 for effect in leads)
    reading = (f"ahead on {ahead} of {len(leads)}; " if len(leads) > 1 else "") + (
        f"{least.replace('_', ' ')}: {_score(analysis, least, analysis.ours)} against {test.than} "
        f"{_score(analysis, least, test.than)}, Holm-adjusted p {test.holm:.2g}"
    )
    return all_leads, leads[at], reading, "points", analysis.runs


def _largest(claim: StudyClaim, analysis: Analysis, evidence: Evidence) -> _Asked:
    """Ours leads on a dimension, and by more than on any other."""
    lead, ahead = _effect(analysis.lead, claim.dimension), _effect(analysis.ahead, claim.dimension)
    both = min(lead, ahead, key=lambda effect: effect.low if effect.low is not None else effect.value)
    than = analysis.next_best(claim.dimension)
    ours, other = (_score(analysis, claim.dimension, run) for run in (analysis.ours, than))
    reading = f"{ours} against {than} {other}; the lead is {ahead.value:+.2f} above the largest other one"
    return both, lead, reading, "points", analysis.runs


def _above(claim: StudyClaim, analysis: Analysis, evidence: Evidence) -> _Asked:
    """One named method above another on the dimensions named."""
    runs: list[str] = []
    for name in (claim.of, claim.than):
        methods = [method for method in evidence.results.methods if name in (method.name, method.paper)]
        rated = [run for method in methods for run in method.runs if run in analysis.runs]
        if not rated:
            raise NotMeasured(f"{name} was not rated")
        runs += rated[:1]
    differences = [(analysis.scores[d][runs[0]], analysis.scores[d][runs[1]]) for d in claim.on_dimensions]
    # The two means share no draw in the record: the interval of the difference is at most their spread together.
    effects = [Effect((a.value or 0) - (b.value or 0), (a.low or 0) - (b.high or 0), (a.high or 0) - (b.low or 0))
               for a, b in differences]  # fmt: skip
    least = min(effects, key=lambda effect: effect.value)
    reading = "; ".join(
        f"{d}: {a.value:.2f} against {b.value:.2f}" for d, (a, b) in zip(claim.on_dimensions, differences, strict=True)
    )
    return least, least, reading, "points", runs


def _agreement(claim: StudyClaim, analysis: Analysis, evidence: Evidence) -> _Asked:
    """Alpha is above the value on every dimension."""
    alphas = {name: _effect(analysis.alpha, name) for name in dimensions()}
    least, alpha = min(alphas.items(), key=lambda item: item[1].value)
    return alpha.minus(claim.value), alpha, f"lowest on {least.replace('_', ' ')}", "alpha", analysis.runs


_ASKED: dict[str, Callable[[StudyClaim, Analysis, Evidence], _Asked]] = {
    "leads": _leads, "largest_lead": _largest, "above": _above, "agreement": _agreement,
}  # fmt: skip


def _effect(intervals: dict[str, Interval], dimension: str) -> Effect:
    if dimension not in intervals:
        raise NotMeasured("fewer than two methods were rated")
    at = intervals[dimension]
    if at.value is None:
        raise NotMeasured("it is undefined: the raters gave one score only, or nothing was rated twice")
    return Effect(at.value, at.low, at.high)


def _score(analysis: Analysis, dimension: str, run: str) -> str:
    return f"{analysis.scores[dimension][run].value or 0:.2f}"
