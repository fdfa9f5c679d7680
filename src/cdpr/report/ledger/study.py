"""Verdicts on claims about the expert study, whose raters score the decisions of several methods.

Simulated raters are no physicians. Their scores support a claim's direction at most, and the verdict says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...study.analysis import Analysis, Interval
from ...study.ratings import PHYSICIAN
from ...study.rubric import dimensions
from ..methods import AVERAGE, Method
from ..results import NotMeasured
from .claims import StudyClaim
from .evidence import Evidence
from .verdict import Comparison, Effect, Verdict, judge_comparisons


def judge_study(claim: StudyClaim, evidence: Evidence) -> Verdict:
    """Compare scores of the study with each other, or the agreement of its raters with a number. Returns the verdict.
    Raises NotMeasured where nothing was rated."""
    path = evidence.results.folder / "study" / "analysis.json"
    if not path.exists():
        raise NotMeasured("missing: study/analysis.json (snakemake expert_study)")
    analysis = Analysis.read(path)
    if not analysis.kind:
        raise NotMeasured("no physician has rated yet: the forms are in study/forms")
    # By what the claim asks, the function that makes its comparisons.
    compare: dict[str, Callable[..., list[Comparison]]] = {
        "leads": _compare_leads, "largest_lead": _compare_largest_lead, "agreement": _compare_agreement,
        "above": partial(_compare_two, methods=evidence.results.methods),
    }  # fmt: skip
    comparisons = compare[claim.asks](claim, analysis)
    simulated = "" if analysis.kind == PHYSICIAN else f"{len(analysis.raters)} simulated raters, no physicians"
    unlike_paper = simulated or evidence.why_not_comparable(AVERAGE)
    rated, left_out = len(analysis.runs), len(analysis.left_out)
    is_complete = claim.asks == "agreement" or not left_out  # agreement is about the raters, not the methods
    incomplete = "" if is_complete else f"{rated} of {rated + left_out} methods were rated"
    return judge_comparisons(comparisons, unlike_paper, incomplete)


def _compare_leads(claim: StudyClaim, analysis: Analysis) -> list[Comparison]:
    """Compare our mean score with that of the best baseline on the dimension of the claim, or on all where it names
    none. Returns a comparison per dimension. Raises NotMeasured where a lead is undefined, or where no state has scores
    of both methods on the dimension with the smallest lead."""
    names = (claim.dimension,) if claim.dimension else dimensions()
    leads = {name: _effect(analysis.lead, name) for name in names}
    weakest = min(leads, key=lambda name: leads[name].value)
    comparisons = []
    for name, lead in leads.items():
        test = analysis.comparison(name, analysis.next_best(name))
        if test is None and name == weakest:  # the verdict rests on the smallest lead
            raise NotMeasured("no state has scores of both methods")
        p_value = f", Holm-adjusted p {test.holm:.2g}" if test else ""
        text = f"{name.replace('_', ' ')}: {_scores(analysis, name)}{p_value}"
        comparisons.append(_comparison(analysis, lead, text))
    return comparisons


def _compare_largest_lead(claim: StudyClaim, analysis: Analysis) -> list[Comparison]:
    """Compare our lead on a dimension (over the best baseline) with zero, and with our largest lead on another
    dimension. Returns one comparison, with the smaller support of the two. Raises NotMeasured where a lead is
    undefined."""
    lead, excess = _effect(analysis.lead, claim.dimension), _effect(analysis.ahead, claim.dimension)
    # The one whose interval begins lower; the excess where an interval has no ends (NaN compares as False).
    support = lead if lead.low <= excess.low else excess
    text = f"{_scores(analysis, claim.dimension)}; the lead is {excess.value:+.2f} above the largest other one"
    return [replace(_comparison(analysis, lead, text), support=support)]


def _compare_two(claim: StudyClaim, analysis: Analysis, methods: Sequence[Method]) -> list[Comparison]:
    """Compare the mean scores of two methods on each of some dimensions. Returns a comparison per dimension. Raises
    NotMeasured where a method was not rated.

    The analysis has an interval for each mean, but none for their difference. So the interval of the difference goes
    from the low end of the first minus the high end of the second to the high end of the first minus the low end of the
    second, which is too wide rather than too narrow.
    """
    runs = tuple(_rated_run(name, analysis, methods) for name in (claim.of, claim.than))
    comparisons = []
    for name in claim.on_dimensions:
        first, second = (_effect(analysis.scores[name], run) for run in runs)
        difference = Effect(first.value - second.value, first.low - second.high, first.high - second.low)
        text = f"{name}: {first.value:.2f} against {second.value:.2f}"
        comparisons.append(replace(_comparison(analysis, difference, text), runs=runs))
    return comparisons


def _compare_agreement(claim: StudyClaim, analysis: Analysis) -> list[Comparison]:
    """Compare the lowest alpha of any dimension with the number in the claim. Returns one comparison. Raises
    NotMeasured where an alpha is undefined."""
    alphas = {name: _effect(analysis.alpha, name) for name in dimensions()}
    name = min(alphas, key=lambda name: alphas[name].value)
    comparison = _comparison(analysis, alphas[name], f"lowest on {name.replace('_', ' ')}")
    return [replace(comparison, support=alphas[name].minus(claim.value), unit="alpha")]


def _comparison(analysis: Analysis, effect: Effect, text: str) -> Comparison:
    """Return a comparison of scores over all rated runs. The ``effect``, in points of the rating scale, is both what
    was measured and how far it supports the claim."""
    return Comparison(effect, text, "points", n=analysis.states, runs=tuple(analysis.runs), support=effect)


def _rated_run(name: str, analysis: Analysis, methods: Sequence[Method]) -> str:
    """Return the rated run of the method with this ``name``, which is ours or the paper's name for it. Raises
    NotMeasured where no run of this method was rated."""
    for method in methods:
        rated = [run for run in method.runs if run in analysis.runs]
        if rated and name in (method.name, method.paper):
            return rated[0]
    raise NotMeasured(f"{name} was not rated")


def _effect(intervals: dict[str, Interval], name: str) -> Effect:
    """Return the interval ``intervals[name]`` of the analysis as an effect. Raises NotMeasured where it is missing or
    undefined."""
    if name not in intervals:
        raise NotMeasured("fewer than two methods were rated")
    estimate = intervals[name]
    if estimate.value is None:
        reasons = "nothing was rated, the raters gave one score only, or nothing was rated twice"
        raise NotMeasured(f"it is undefined: {reasons}")
    if estimate.low is None or estimate.high is None:
        return Effect(estimate.value)
    return Effect(estimate.value, estimate.low, estimate.high)


def _scores(analysis: Analysis, dimension: str) -> str:
    """Return the mean scores of our method and of the best baseline on a dimension as text: ``4.70 against gpt_5_4
    4.00``."""
    baseline = analysis.next_best(dimension)
    # An undefined mean is shown as 0.
    ours, other = (analysis.scores[dimension][run].value or 0 for run in (analysis.ours, baseline))
    return f"{ours:.2f} against {baseline} {other:.2f}"
