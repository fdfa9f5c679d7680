"""Claims about the expert study, judged from its analysis. Simulated raters are no physicians: their scores support at
most the same direction, and the verdict says so."""

from typing import Any

from ...study.analysis import Analysis, Interval
from ...study.ratings import PHYSICIAN
from ...study.rubric import dimensions
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .verdict import Effect, Verdict, verdict_on, weakest


def compare_study(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare scores of the study, or its agreement with a number."""
    path = evidence.results.folder / "study" / "analysis.json"
    if not path.exists():
        raise NotMeasured("missing: study/analysis.json (snakemake expert_study)")
    analysis = Analysis.read(path)
    if not analysis.kind:
        raise NotMeasured("no physician has rated yet: the forms are in study/forms")
    above = claim.asks == "above"
    runs = [_rated(name, analysis, evidence) for name in (claim.of, claim.than)] if above else list(analysis.runs)
    effect, shown, reading = _measured(claim, analysis, runs)
    unfit = "" if analysis.kind == PHYSICIAN else f"{len(analysis.raters)} simulated raters, no physicians"
    rated, all_methods = len(analysis.runs), len(analysis.runs) + len(analysis.left_out)
    part = claim.asks != "agreement" and rated < all_methods
    incomplete = f"{rated} of {all_methods} methods were rated" if part else ""
    fields: dict[str, Any] = {"n": analysis.states, "runs": tuple(runs)}
    fields["unit"] = "alpha" if claim.asks == "agreement" else "points"
    return verdict_on(effect, shown, reading, unfit or evidence.unfit("average"), incomplete, **fields)


def _rated(name: str, analysis: Analysis, evidence: Evidence) -> str:
    """The rated run of a method. Raises NotMeasured without one."""
    methods = [method for method in evidence.results.methods if name in (method.name, method.paper)]
    for run in (run for method in methods for run in method.runs if run in analysis.runs):
        return run
    raise NotMeasured(f"{name} was not rated")


def _measured(claim: Claim, analysis: Analysis, runs: list[str]) -> tuple[Effect, Effect, str]:
    """How far the claim holds (an effect above 0 supports it), the effect that tables show, and a sentence about it."""
    match claim.asks:
        case "leads":
            names = (claim.dimension,) if claim.dimension else dimensions()
            leads = [_effect(analysis.lead, name) for name in names]
            # A lead that is clearly none on one dimension refutes; a clear lead needs all of them.
            at, all_leads = weakest(leads)
            test = analysis.comparison(names[at], analysis.next_best(names[at]))
            if test is None:
                raise NotMeasured("no state has scores of both methods")
            ahead = f"ahead on {sum(lead.value > 0 for lead in leads)} of {len(leads)}; " if len(leads) > 1 else ""
            reading = f"{ahead}{names[at].replace('_', ' ')}: {_next_to(analysis, names[at])}"
            return all_leads, leads[at], f"{reading}, Holm-adjusted p {test.holm:.2g}"
        case "largest_lead":
            lead, ahead_by = _effect(analysis.lead, claim.dimension), _effect(analysis.ahead, claim.dimension)
            both = min(lead, ahead_by, key=lambda effect: effect.low if effect.low == effect.low else effect.value)
            scores = _next_to(analysis, claim.dimension)
            return both, lead, f"{scores}; the lead is {ahead_by.value:+.2f} above the largest other one"
        case "above":
            pairs = {d: [_effect(analysis.scores[d], run) for run in runs] for d in claim.on_dimensions}
            # The two means share no draw in the record: the difference's interval is at most their spread together.
            effects = [Effect(a.value - b.value, a.low - b.high, a.high - b.low) for a, b in pairs.values()]
            least = min(effects, key=lambda effect: effect.value)
            return least, least, "; ".join(f"{d}: {a.value:.2f} against {b.value:.2f}" for d, (a, b) in pairs.items())
        case "agreement":
            alphas = {name: _effect(analysis.alpha, name) for name in dimensions()}
            name, alpha = min(alphas.items(), key=lambda item: item[1].value)
            least_alpha: Any = claim.value or 0
            return alpha.minus(float(least_alpha)), alpha, f"lowest on {name.replace('_', ' ')}"
    raise AssertionError(f"claim {claim.id}: asks {claim.asks}")


def _effect(intervals: dict[str, Interval], name: str) -> Effect:
    if name not in intervals:
        raise NotMeasured("fewer than two methods were rated")
    at = intervals[name]
    if at.value is None:
        raise NotMeasured(
            "it is undefined: nothing was rated, the raters gave one score only, or nothing was rated twice"
        )
    return Effect(at.value) if at.low is None or at.high is None else Effect(at.value, at.low, at.high)


def _next_to(analysis: Analysis, dimension: str) -> str:
    """The mean scores of ours and of the best baseline."""
    than = analysis.next_best(dimension)
    ours, other = (analysis.scores[dimension][run].value or 0 for run in (analysis.ours, than))
    return f"{ours:.2f} against {than} {other:.2f}"
