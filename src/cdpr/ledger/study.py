"""Claims of the expert study, judged from its analysis. Simulated raters are no physicians: what they show is at most
the same direction, and says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..study.analysis import Analysis, Interval
from ..study.returned import PHYSICIAN, SIMULATED
from ..study.rubric import dimensions
from .claims import StudyClaim
from .evidence import Evidence, training_seeds
from .verdict import OPEN, Effect, NotMeasured, Verdict, directional


def compare_study(claim: StudyClaim, evidence: Evidence) -> Verdict:
    """The verdict on a claim about the study's ratings."""
    path = evidence.results.folder / "study" / "analysis.json"
    if not path.exists():
        raise NotMeasured("missing: study/analysis.json (snakemake expert_study)")
    found = Analysis.model_validate_json(path.read_text(encoding="utf-8"))
    if not found.kind:
        raise NotMeasured("no physician has rated yet: the forms are in study/forms")
    effect, shown, told, unit, runs = _ASKED[claim.asks](claim, found, evidence)
    unfit = "" if found.kind == PHYSICIAN else f"{len(found.raters)} simulated raters, no physicians"
    unfit = unfit or evidence.unfit("average")
    verdict, why = directional(effect, unfit, _incomplete(claim, found))
    if found.kind not in (PHYSICIAN, SIMULATED):
        verdict, why = OPEN, f"{found.kind} raters show nothing of physicians"
    return Verdict(verdict, f"{told}: {why}", shown.value, shown.low, shown.high, unit, n=found.states,
                   seeds=training_seeds(runs), runs=tuple(runs))  # fmt: skip


def _incomplete(claim: StudyClaim, found: Analysis) -> str:
    """What of the paper's field was not rated."""
    if claim.asks == "agreement" or not found.left_out:
        return ""
    return f"{len(found.runs)} of {len(found.runs) + len(found.left_out)} methods were rated"


_Asked = tuple[Effect, Effect, str, str, Sequence[str]]


def _leads(claim: StudyClaim, found: Analysis, evidence: Evidence) -> _Asked:
    """Ours is above every baseline: on one dimension, or on all."""
    asked = (claim.dimension,) if claim.dimension else dimensions()
    leads = {name: _effect(_of(found.lead, name)) for name in asked}
    least = min(leads, key=lambda name: leads[name].value)
    bounds = {end: [getattr(effect, end) for effect in leads.values()] for end in ("low", "high")}
    weakest = Effect(leads[least].value, *(None if None in ends else min(ends) for ends in bounds.values()))
    # A lead that is clearly none on one dimension refutes; a clear lead needs all of them.
    test = found.comparison(least, found.next_best(least))
    ahead = sum(effect.value > 0 for effect in leads.values())
    told = (f"ahead on {ahead} of {len(leads)}; " if len(leads) > 1 else "") + (
        f"{least.replace('_', ' ')}: {_score(found, least, found.ours)} against {test.than} "
        f"{_score(found, least, test.than)}, Holm-adjusted p {test.holm:.2g}")  # fmt: skip
    return weakest, leads[least], told, "points", found.runs


def _largest(claim: StudyClaim, found: Analysis, evidence: Evidence) -> _Asked:
    """Ours leads on a dimension, and by more than on any other."""
    lead, ahead = _effect(_of(found.lead, claim.dimension)), _effect(_of(found.ahead, claim.dimension))
    both = min(lead, ahead, key=lambda effect: effect.low if effect.low is not None else effect.value)
    than = found.next_best(claim.dimension)
    told = (f"{_score(found, claim.dimension, found.ours)} against {than} {_score(found, claim.dimension, than)}; the "
            f"lead is {ahead.value:+.2f} above the largest other one")  # fmt: skip
    return both, lead, told, "points", found.runs


def _above(claim: StudyClaim, found: Analysis, evidence: Evidence) -> _Asked:
    """One named method above another on the dimensions named."""
    runs: list[str] = []
    for name in (claim.of, claim.than):
        named = [method for method in evidence.results.methods if name in (method.name, method.paper)]
        rated = [run for method in named for run in method.runs if run in found.runs]
        if not rated:
            raise NotMeasured(f"{name} was not rated")
        runs += rated[:1]
    differences = [(found.scores[d][runs[0]], found.scores[d][runs[1]]) for d in claim.on_dimensions]
    # The two means share no draw in the record: the interval of the difference is at most their spread together.
    effects = [Effect((a.value or 0) - (b.value or 0), (a.low or 0) - (b.high or 0), (a.high or 0) - (b.low or 0))
               for a, b in differences]  # fmt: skip
    least = min(effects, key=lambda effect: effect.value)
    told = "; ".join(f"{d}: {a.value:.2f} against {b.value:.2f}"
                     for d, (a, b) in zip(claim.on_dimensions, differences, strict=True))  # fmt: skip
    return least, least, told, "points", runs


def _agreement(claim: StudyClaim, found: Analysis, evidence: Evidence) -> _Asked:
    """Alpha is above the value on every dimension."""
    alphas = {name: _effect(_of(found.alpha, name)) for name in dimensions()}
    least = min(alphas, key=lambda name: alphas[name].value)
    shown = alphas[least]
    return shown.minus(claim.value), shown, f"lowest on {least.replace('_', ' ')}", "alpha", found.runs


_ASKED: dict[str, Callable[[StudyClaim, Analysis, Evidence], _Asked]] = {
    "leads": _leads, "largest_lead": _largest, "above": _above, "agreement": _agreement,
}  # fmt: skip


def _of(found: dict[str, Interval], dimension: str) -> Interval:
    if dimension not in found:
        raise NotMeasured("fewer than two methods were rated")
    return found[dimension]


def _effect(at: Interval) -> Effect:
    if at.value is None:
        raise NotMeasured("it is undefined: the raters gave one score only, or nothing was rated twice")
    return Effect(at.value, at.low, at.high)


def _score(found: Analysis, dimension: str, run: str) -> str:
    return f"{found.scores[dimension][run].value or 0:.2f}"
