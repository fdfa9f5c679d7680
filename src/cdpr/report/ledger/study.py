"""Verdicts on claims about the expert study, whose raters score the decisions of several methods.

Simulated raters are no physicians. Their scores support a claim's direction at most, and the verdict says so.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import nan

from ...study.analysis import Analysis, Interval
from ...study.ratings import PHYSICIAN
from ...study.rubric import dimensions
from ..methods import AVERAGE
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .verdict import Comparison, Effect, Verdict, judge_comparisons


def judge_study(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare scores of the study with each other, or the agreement of its raters with a number. Returns the verdict.
    Raises NotMeasured where nothing was rated, or a score is undefined."""
    path = evidence.results.folder / "study" / "analysis.json"
    if not path.exists():
        raise NotMeasured("missing: study/analysis.json (snakemake expert_study)")
    analysis = Analysis.read(path)
    if not analysis.kind:
        raise NotMeasured("no physician has rated yet: the forms are in study/forms")
    if claim["asks"] == "above":
        comparisons = _compare_two(claim, analysis, evidence)
    elif claim["asks"] == "agreement":
        comparisons = [_compare_agreement(claim, analysis)]
    else:
        names = (claim["dimension"],) if "dimension" in claim else dimensions()
        weakest = min(names, key=lambda name: _effect(analysis.lead, name).value)
        has_test = analysis.comparison(weakest, analysis.next_best(weakest)) is not None
        if claim["asks"] == "leads" and not has_test:  # the verdict rests on the smallest lead
            raise NotMeasured("no state has scores of both methods")
        comparisons = [_compare_lead(claim, analysis, name) for name in names]
    simulated = "" if analysis.kind == PHYSICIAN else f"{len(analysis.raters)} simulated raters, no physicians"
    unlike_paper = simulated or evidence.why_not_comparable(AVERAGE)
    rated, left_out = len(analysis.runs), len(analysis.left_out)
    is_complete = claim["asks"] == "agreement" or not left_out  # agreement is about the raters, not the methods
    incomplete = "" if is_complete else f"{rated} of {rated + left_out} methods were rated"
    return judge_comparisons(comparisons, unlike_paper, incomplete)


def _compare_lead(claim: Claim, analysis: Analysis, name: str) -> Comparison:
    """Compare our lead on a dimension, the distance of our mean score from that of the best baseline, with zero; and
    where the claim is that it is the largest lead, also with our largest lead on another dimension: then the support is
    the one of the two whose interval begins lower. Raises NotMeasured where a lead is undefined."""
    lead, baseline = _effect(analysis.lead, name), analysis.next_best(name)
    test, scores = analysis.comparison(name, baseline), analysis.scores[name]
    # An undefined mean is shown as 0.
    ours, other = (scores[run].value or 0 for run in (analysis.ours, baseline))
    text = f"{name.replace('_', ' ')}: {ours:.2f} against {baseline} {other:.2f}"
    text += f", Holm-adjusted p {test['holm']:.2g}" if test else ""
    comparison = _comparison(analysis, lead, text)
    if claim["asks"] == "leads":
        return comparison
    excess = _effect(analysis.ahead, name)
    # The one whose interval begins lower; the excess where an interval has no ends (NaN compares as False).
    support = lead if lead.low <= excess.low else excess
    return replace(comparison, support=support, text=f"{text}; {excess.value:+.2f} above the largest other lead")


def _compare_two(claim: Claim, analysis: Analysis, evidence: Evidence) -> list[Comparison]:
    """Compare the mean scores of two methods on each of some dimensions. Returns a comparison per dimension. Raises
    NotMeasured where a method was not rated.

    The analysis has an interval for each mean, but none for their difference. So the interval of the difference goes
    from the low end of the first minus the high end of the second to the high end of the first minus the low end of the
    second, which is too wide rather than too narrow.
    """
    # The rated run of each method, whose name is ours or the paper's.
    rated = {name: run for method in evidence.results.methods for run in method.runs if run in analysis.runs
             for name in (method.name, method.paper)}  # fmt: skip
    if missing := [claim[field] for field in ("of", "than") if claim[field] not in rated]:
        raise NotMeasured(f"{', '.join(missing)} was not rated")
    runs, comparisons = (rated[claim["of"]], rated[claim["than"]]), []
    for name in claim["on_dimensions"]:
        first, second = (_effect(analysis.scores[name], run) for run in runs)
        difference = Effect(first.value - second.value, first.low - second.high, first.high - second.low)
        text = f"{name}: {first.value:.2f} against {second.value:.2f}"
        comparisons.append(replace(_comparison(analysis, difference, text), runs=runs))
    return comparisons


def _compare_agreement(claim: Claim, analysis: Analysis) -> Comparison:
    """Compare the lowest alpha of any dimension with the number in the claim. Raises NotMeasured where an alpha is
    undefined."""
    lowest, name = min((_effect(analysis.alpha, name), name) for name in dimensions())
    comparison = _comparison(analysis, lowest, f"lowest on {name.replace('_', ' ')}")
    return replace(comparison, support=lowest.minus(claim["value"]), unit="alpha")


def _comparison(analysis: Analysis, effect: Effect, text: str) -> Comparison:
    """Return a comparison of scores over all rated runs. The ``effect``, in points of the rating scale, is both what
    was measured and how far it supports the claim."""
    return Comparison(effect, text, "points", n=analysis.states, runs=analysis.runs, support=effect)


def _effect(intervals: Mapping[str, Interval], name: str) -> Effect:
    """Return the interval ``intervals[name]`` of the analysis as an effect. Raises NotMeasured where it is missing or
    undefined."""
    estimate = intervals.get(name)
    if estimate is None or estimate.value is None:
        raise NotMeasured("it is undefined: one method or nothing was rated, nothing twice, or all scores are alike")
    return Effect(estimate.value, *(nan if end is None else end for end in (estimate.low, estimate.high)))
