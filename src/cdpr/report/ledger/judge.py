"""The verdict on a claim: a comparison of two cells of the results, or of a cell with a printed number."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...evaluation.significance import percentile_interval, wilson_interval
from ...settings import seeds_of_runs, sweeps
from ..curves import final_verdicts
from ..methods import DATASETS, LEAST_SEEDS, TRAINED
from ..paper import read_paper
from ..results import NotMeasured
from .claims import Claim
from .evidence import FACTOR, Evidence
from .setup import compare_setup
from .study import compare_study
from .training import compare_training, final_accuracy
from .verdict import DEVIATES, NOT_RUN, OPEN, REPRODUCED, Effect, Verdict, directional, verdict_on, weakest


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Judge a claim, and name the runs behind it that diverged. Raises EvaluationError or TableError for results that
    cannot be used."""
    try:
        if claim.why:
            raise NotMeasured(claim.why)
        verdict = _JUDGES[claim.kind](claim, evidence)
    except NotMeasured as error:
        return Verdict(NOT_RUN, str(error).removeprefix("not run: "))
    broken = ", ".join(evidence.results.divergences(verdict.runs))
    why = f"{verdict.why}; {broken} (evaluated with the weights before)" if broken else verdict.why
    return replace(verdict, why=why, seeds=verdict.seeds or _seeds(verdict.runs))


def _seeds(runs: Sequence[str]) -> tuple[int, ...]:
    """Return the training seeds of runs, sorted, each once."""
    return tuple(sorted(set(seeds_of_runs(runs))))


def compare_figure(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare a printed number with a cell; this needs the paper's cases and backbone. Both were measured on samples:
    their errors are added as independent ones are (square and add; Newcombe, Stat. Med. 17 (1998))."""
    names = [claim.of, claim.than] if claim.than else [claim.of]
    for method in map(evidence.method, names):
        if not method.runs:
            raise NotMeasured(method.why)
    if unfit := evidence.unfit(claim.on):
        raise NotMeasured(unfit)
    cell = _final_accuracy if claim.metric == "final_accuracy" else _on_cases
    measured, fields, void = cell(claim, names, evidence)
    if void or math.isnan(measured.low):
        return Verdict(OPEN, void or "one seed: no interval", *measured, **fields)
    printed, half = claim.number()
    theirs = (measured.high - measured.low) / 2  # the paper prints no spread: ours, on as many cases, replaces it
    if claim.metric in ("accuracy", "final_accuracy") and not claim.than:  # binomial at the printed accuracy
        low, high = wilson_interval(round(printed * fields["n"] / 100), fields["n"])
        theirs = 50 * (high - low)
    inside = agrees_with(printed, half, theirs, measured)
    agrees = "agrees with" if inside else "differs from"
    why = f"the printed figure, itself ±{theirs:.3g} over its cases, {agrees} the measured one"
    return Verdict(REPRODUCED if inside else DEVIATES, why, *measured, **fields)


def agrees_with(printed: float, rounding: float, theirs: float, measured: Effect) -> bool:
    """Whether a printed number, whose 95% interval is ``theirs`` to either side, may equal the measured one."""
    value, low, high = measured
    return abs(printed - value) <= rounding + math.hypot(high - value if printed > value else value - low, theirs)


_Cell = tuple[Effect, dict[str, Any], str]
"""What was measured, fields of its verdict, and why it supports nothing (empty: it does)."""


def _on_cases(claim: Claim, names: Sequence[str], evidence: Evidence) -> _Cell:
    """A cell of the tables, over as many test cases as the paper's, with Wilson's interval where the tables have it."""
    cells = evidence.cells(names, claim.metric, claim.on)
    if cells.cases != (paper_cases := int(read_paper()[f"text:cases.{claim.on}"]),):
        raise NotMeasured(f"{cells.cases[0]} cases were evaluated; the figure is of {paper_cases}")
    one_seed = next((m.label for m in cells.methods if m.group == TRAINED and len(m.runs) == 1), "")
    void = f"{one_seed} was trained with one seed" if one_seed else ""
    if claim.than:
        return cells.statistic(claim.statistic), cells.evidence(claim.statistic), void
    row, scale = evidence.summary(cells.methods[0], claim.on), FACTOR.get(claim.metric, 1.0)
    ends = (row[f"{claim.metric}{end}"] * scale for end in ("", "_low", "_high"))
    return Effect(*ends), cells.evidence("mean"), void


def _final_accuracy(claim: Claim, names: Sequence[str], evidence: Evidence) -> _Cell:
    """Accuracy of the last validation in %, with its interval over seeds and validation cases."""
    (curve,) = evidence.curves(names, "accuracy")
    table = final_verdicts(evidence.results.folder, curve.runs)
    effect, void = final_accuracy(table, evidence.settings)
    return effect, {"runs": curve.runs, "unit": "%", "n": table.shape[1]}, void


def compare_methods(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare two methods on the same test cases: one above or below the other, or both close together."""
    pair = evidence.cells([claim.of, claim.than], claim.metric, claim.on)
    if claim.within:
        effect, limit = pair.statistic("difference").inside(claim.within), f", to lie within {claim.within:g}"
    else:
        effect = pair.statistic("difference", times=claim.times or 1.0).toward(claim.side).minus(claim.margin)
        limit = f", to be {claim.side} {claim.times:g} times" if claim.times else ""
        limit += f", with a margin of {claim.margin:g}" if claim.margin else ""
    void = evidence.results.why_void(pair.methods, claim.on, evidence.decoding)
    name = "ratio" if claim.times else "difference"
    reading, unfit = f"{pair.text()}{limit}", evidence.unfit(claim.on)
    return verdict_on(effect, pair.statistic(name), reading, unfit, void=void, **pair.evidence(name))


def judge_superlative(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare one with all others of its field: rows, points of a sweep, or data sets."""
    if claim.among == "data_sets":
        return _of_data_sets(claim, evidence)
    if not claim.sweep:
        paper_rows = [method.name for method in evidence.results.methods if method.paper]
        rivals = [name for name in claim.among or paper_rows if name != claim.of]
        return _ahead_of_all(claim, claim.of, rivals, "rows", evidence)
    points = sweeps(evidence.settings, "sensitivity").get(claim.sweep, {})
    peak = next((name for value, name in points.items() if value == claim.value), None)
    if peak is None:
        raise NotMeasured(f"the sweep {claim.sweep!r} has no point {claim.value:g}")
    rivals = [name for name in points.values() if name != peak]
    if not rivals:
        raise NotMeasured(f"no other point of the sweep {claim.sweep!r} is run here: snakemake sensitivity_all")
    verdict = _ahead_of_all(claim, peak, rivals, "points of our grid", evidence)
    few = [name for name in points.values() if len(evidence.method(name).runs) < LEAST_SEEDS[name == peak]]
    if few:
        verdict = replace(verdict, verdict=OPEN, why=f"too few seeds for a peak ({', '.join(few)}); {verdict.why}")
    return replace(verdict, why=f"{verdict.why}; the paper does not print its grid")


def _ahead_of_all(claim: Claim, of: str, rivals: Sequence[str], what: str, evidence: Evidence) -> Verdict:
    """Compare one method with each of the others: all comparisons must support the claim, and a single one refutes it.
    A rival that was not run may still refute it, so a lead is clear only with all of them."""
    evidence.cells([of], claim.metric, claim.on)
    pairs = []
    for name in rivals:
        with suppress(NotMeasured):
            pairs.append(evidence.cells([of, name], claim.metric, claim.on))
    if not pairs:
        raise NotMeasured(f"none of the {len(rivals)} other {what} was run")
    effects = [pair.statistic("difference").toward(claim.side) for pair in pairs]
    at, all_effects = weakest(effects)
    counted, whole_field = f"{len(pairs) + 1} of {len(rivals) + 1} {what} were run", len(pairs) == len(rivals)
    voids = [evidence.results.why_void(pair.methods, claim.on, evidence.decoding) for pair in pairs]
    behind = [i for i, effect in enumerate(effects) if effect.high < 0]
    refuting = [i for i in behind if not voids[i]]
    if refuting:  # show the pair that refutes: the one whose interval is furthest on the other side
        at = min(refuting, key=lambda i: effects[i].high)
    void = "" if refuting else next(filter(None, voids), "")
    verdict, why = directional(all_effects, evidence.unfit(claim.on), "" if whole_field else counted, void)
    reasons = (
        f"ahead of {sum(effect.value > 0 for effect in effects)} of {len(pairs)}",
        f"clearly behind {len(behind)}" if behind else "",
        f"{'refuted by' if refuting else 'closest'}: {pairs[at].text()}",
        why,
        "" if counted in why else counted,
    )
    every_run = tuple(dict.fromkeys(run for pair in pairs for run in pair.runs))
    fields = pairs[at].evidence("difference") | {"runs": every_run, "seeds": _seeds(pairs[at].runs)}
    scope = "" if whole_field else f"of the {len(pairs) + 1} {what} run"
    return Verdict(verdict, "; ".join(filter(None, reasons)), *pairs[at].statistic("difference"), scope=scope, **fields)


def _of_data_sets(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare one method on one data set with the others. They have different cases, resampled independently, so the
    difference is not paired."""
    others = [on for on in DATASETS if on != claim.on]
    here, *there = (evidence.cells([claim.of], claim.metric, on) for on in (claim.on, *others))
    differences = [(here.means[0] - other.means[0], here.draws[:, 0] - other.draws[:, 0]) for other in there]
    effects = [Effect(float(mean), *percentile_interval(draws)).toward(claim.side) for mean, draws in differences]
    at, all_effects = weakest(effects)
    void = evidence.results.why_void(here.methods, claim.on, evidence.decoding)
    next_to = f"{DATASETS[others[at]]} {there[at].means[0]:.2f} against {DATASETS[claim.on]} {here.means[0]:.2f}"
    unfit, fields = evidence.unfit("average"), here.evidence("difference")
    return verdict_on(all_effects, effects[at], f"next: {next_to}", unfit, void=void, **fields)


_JUDGES: dict[str, Callable[[Any, Evidence], Verdict]] = {
    "figure": compare_figure, "compare": compare_methods, "training": compare_training, "best": judge_superlative,
    "setup": compare_setup, "study": compare_study,
}  # fmt: skip
