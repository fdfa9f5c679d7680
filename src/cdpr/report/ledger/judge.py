"""The verdict on a claim of the paper, from the results of this pipeline."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...costs import price_of
from ...evaluation.metrics import METRICS
from ...evaluation.significance import wilson_interval
from ...settings import job_of, labels_of, sweeps, value_at
from ..curves import final_verdicts
from ..methods import AGENTS, AVERAGE, DATASETS, TRAINED
from ..paper import printed_rows
from ..results import NotMeasured
from .claims import Claim, FigureClaim, MethodClaim, SetupClaim, SuperlativeClaim, UntestedClaim
from .evidence import Evidence
from .study import judge_study
from .training import judge_training, measure_final_accuracy
from .verdict import DEVIATES, NOT_RUN, OPEN, REPRODUCED, SETUP, Comparison, Effect, Verdict, judge_comparisons

# How many seeds a value of a swept setting needs to be called the best (a peak), and how many each of the other values.
LEAST_SEEDS_OF_PEAK, LEAST_SEEDS_OF_OTHERS = 3, 2


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim: ``not run`` where results are missing. Its reason also names the runs behind it
    that diverged. Raises EvaluationError or TableError for results that cannot be used."""
    if isinstance(claim, UntestedClaim):
        return Verdict(NOT_RUN, claim.why)
    try:
        verdict = _JUDGES[claim.kind](claim, evidence)
    except NotMeasured as error:
        return Verdict(NOT_RUN, str(error).removeprefix("not run: "))  # the verdict itself says this
    if diverged := ", ".join(evidence.results.divergences(verdict.runs)):
        verdict = replace(verdict, why=f"{verdict.why}; {diverged} (evaluated with the weights before)")
    return verdict


def judge_figure(claim: FigureClaim, evidence: Evidence) -> Verdict:
    """Compare a printed number with ours, and return the verdict. Raises NotMeasured unless our cases, scale, backbone
    model and judge are the paper's.

    Both numbers were measured on samples, so both have an error. The errors are combined as those of independent
    estimates (square and add; Newcombe, Stat. Med. 17 (1998)). The error of a printed accuracy is binomial. The paper
    prints no spread of other numbers; their error is taken to be that of ours, which are of as many cases.
    """
    for name in filter(None, (claim.of, claim.than)):  # `than` may be empty
        if not (method := evidence.method(name)).runs:
            raise NotMeasured(method.why)
    if reason := evidence.why_not_comparable(claim.on):
        raise NotMeasured(reason)
    measure = _measure_final_accuracy if claim.metric == "final_accuracy" else _measure_on_paper_cases
    ours = measure(claim, evidence)
    if ours.void or math.isnan(ours.measured.low):
        return ours.verdict(OPEN, ours.void or "one seed: no interval")
    # The error of the printed number, half the width of its 95% interval, is that of ours unless it is known.
    printed_error = (ours.measured.high - ours.measured.low) / 2
    if claim.metric in ("accuracy", "final_accuracy") and not claim.than:
        cases: Any = ours.n  # an integer: only the average over data sets has a text
        low, high = wilson_interval(round(claim.number * cases / 100), cases)
        printed_error = 100 * (high - low) / 2
    agrees = agrees_with(claim.number, claim.rounding, printed_error, ours.measured)
    verb = "agrees with" if agrees else "differs from"
    why = f"the printed figure, itself ±{printed_error:.3g} over its cases, {verb} the measured one"
    return ours.verdict(REPRODUCED if agrees else DEVIATES, why)


def agrees_with(printed: float, rounding: float, printed_error: float, measured: Effect) -> bool:
    """Tell whether a printed number and a measured one agree: whether they differ by at most the ``rounding`` of the
    printed number plus the combined error of both. ``printed_error`` is half the width of the printed number's 95%
    interval. The error of the measured number is the distance from it to one end of its interval: the end that is on
    the side of the printed number."""
    value, low, high = measured
    measured_error = high - value if printed > value else value - low
    return abs(printed - value) <= rounding + math.hypot(measured_error, printed_error)


def _measure_on_paper_cases(claim: FigureClaim, evidence: Evidence) -> Comparison:
    """Return the statistic of a claim, measured on as many test cases as the paper has. For the mean of a single method
    the interval is that of the tables, such as Wilson's. Raises NotMeasured where results are missing, or are of
    another number of cases."""
    names = [claim.of, claim.than] if claim.than else [claim.of]
    measured = evidence.metric_samples(names, claim.metric, claim.on)
    printed = {row["id"]: row["value"] for row in printed_rows("text.csv")}
    paper_cases = int(printed[f"cases.{claim.on}"])
    if measured.cases != paper_cases:
        raise NotMeasured(f"{measured.cases} cases were evaluated; the figure is of {paper_cases}")
    # A number can be compared with the paper's also where a method is at chance or has stopped ordering examinations:
    # of the reasons in `measured.void` only the single seed counts.
    single = [method.label for method in measured.methods if method.group == TRAINED and len(method.runs) == 1]
    void = f"{single[0]} was trained with one seed" if single else ""
    ours = replace(measured.compare(claim.statistic), void=void)
    if claim.than:
        return ours
    row, factor = evidence.summary(measured.methods[0], claim.on), METRICS[claim.metric].factor
    value, low, high = (row[f"{claim.metric}{end}"] * factor for end in ("", "_low", "_high"))
    return replace(ours, measured=Effect(value, low, high))


def _measure_final_accuracy(claim: FigureClaim, evidence: Evidence) -> Comparison:
    """Return the accuracy of the last validation in %, with its interval over seeds and validation cases. Raises
    NotMeasured where results are missing."""
    (curve,) = evidence.curves([claim.of], "accuracy")
    verdicts = final_verdicts(evidence.results.folder, curve.runs)
    return measure_final_accuracy(verdicts, evidence.settings, unit="%", n=verdicts.shape[1], runs=curve.runs)


def judge_comparison(claim: MethodClaim, evidence: Evidence) -> Verdict:
    """Judge the claim that one method is above or below the other on the same test cases, or that both are close
    together. Returns the verdict. Raises NotMeasured where results are missing."""
    pair = evidence.metric_samples([claim.of, claim.than], claim.metric, claim.on)
    first, second = pair.samples.T
    difference = Effect.of_samples(first - (claim.times or 1.0) * second)
    if claim.within:
        support = difference.inside(claim.within)
        limit = f", to lie within {claim.within:g}"
    else:
        support = difference.toward(claim.side).minus(claim.margin)
        limit = f", to be {claim.side} {claim.times:g} times" if claim.times else ""
        limit += f", with a margin of {claim.margin:g}" if claim.margin else ""
    comparison = pair.compare("ratio" if claim.times else "difference")
    comparison = replace(comparison, support=support, text=f"{comparison.text}{limit}")
    return judge_comparisons([comparison], evidence.why_not_comparable(claim.on))


def judge_superlative(claim: SuperlativeClaim, evidence: Evidence) -> Verdict:
    """Judge the claim that one method, value of a swept setting, or data set is above or below all others. Returns the
    verdict. Raises NotMeasured where results are missing."""
    if claim.among == "data_sets":
        return _judge_data_sets(claim, evidence)
    if claim.sweep:
        return _judge_peak(claim, evidence)
    # Without `among`, the rivals are the rows of the paper's Table 1.
    paper_rows = [method.name for method in evidence.results.methods if method.paper]
    rivals = [name for name in claim.among or paper_rows if name != claim.of]
    return _compare_with_rivals(claim, claim.of, rivals, "rows", evidence)


def _judge_peak(claim: SuperlativeClaim, evidence: Evidence) -> Verdict:
    """Compare one value of a swept setting with its other values; returns the verdict. It is `open` where a value was
    trained with too few seeds. Raises NotMeasured where no results of other values exist."""
    points = sweeps(evidence.settings, "sensitivity").get(claim.sweep, {})  # variants by value
    peak = points.get(claim.value)
    if peak is None:
        raise NotMeasured(f"the sweep {claim.sweep!r} has no point {claim.value:g}")
    rivals = [name for name in points.values() if name != peak]
    if not rivals:
        raise NotMeasured(f"no other point of the sweep {claim.sweep!r} is run here: snakemake sensitivity_all")
    verdict = _compare_with_rivals(claim, peak, rivals, "points of our grid", evidence)
    least = {name: LEAST_SEEDS_OF_PEAK if name == peak else LEAST_SEEDS_OF_OTHERS for name in points.values()}
    few = [name for name, seeds in least.items() if len(evidence.method(name).runs) < seeds]
    if few:
        verdict = replace(verdict, verdict=OPEN, why=f"too few seeds for a peak ({', '.join(few)}); {verdict.why}")
    return replace(verdict, why=f"{verdict.why}; the paper does not print its grid")


def _compare_with_rivals(
    claim: SuperlativeClaim, name: str, rivals: Sequence[str], noun: str, evidence: Evidence
) -> Verdict:
    """Compare a method with each of its ``rivals``; returns the verdict. Its reason calls method and rivals by
    ``noun``, such as ``rows``.

    A rival that was not run might refute the claim, so the claim is reproduced only where all were run. Raises
    NotMeasured where the method was not run, or none of its rivals.
    """
    evidence.metric_samples([name], claim.metric, claim.on)  # raises NotMeasured where the method itself was not run
    comparisons = []
    for rival in rivals:
        with suppress(NotMeasured):  # a rival that was not run is left out
            comparison = evidence.metric_samples([name, rival], claim.metric, claim.on).compare("difference")
            comparisons.append(replace(comparison, support=comparison.measured.toward(claim.side)))
    if not comparisons:
        raise NotMeasured(f"none of the {len(rivals)} other {noun} was run")
    were_run, in_all = len(comparisons) + 1, len(rivals) + 1  # with the method itself
    how_many = f"{were_run} of {in_all} {noun} were run"
    unlike_paper = evidence.why_not_comparable(claim.on)
    if were_run < in_all:
        return replace(judge_comparisons(comparisons, unlike_paper, how_many), scope=f"of the {were_run} {noun} run")
    verdict = judge_comparisons(comparisons, unlike_paper)
    return replace(verdict, why=f"{verdict.why}; {how_many}")


def _judge_data_sets(claim: SuperlativeClaim, evidence: Evidence) -> Verdict:
    """Compare a method's metric on one data set with its metric on each of the others; returns the verdict. Data sets
    have different cases, which are resampled independently. Raises NotMeasured where results are missing."""
    here = evidence.metric_samples([claim.of], claim.metric, claim.on)
    comparisons = []
    for dataset in DATASETS:
        if dataset == claim.on:
            continue
        there = evidence.metric_samples([claim.of], claim.metric, dataset)
        lead = Effect.of_samples((here.samples - there.samples)[:, 0]).toward(claim.side)
        text = f"{DATASETS[dataset]} {there.samples[0, 0]:.2f} against {DATASETS[claim.on]} {here.samples[0, 0]:.2f}"
        comparisons.append(replace(here.compare("difference"), measured=lead, support=lead, text=text))
    return judge_comparisons(comparisons, evidence.why_not_comparable(AVERAGE))


def judge_setup(claim: SetupClaim, evidence: Evidence) -> Verdict:
    """Compare a value of the setup with that of the claim. Returns the verdict `as stated` or `set otherwise`. Raises
    NotMeasured for a claim about numbers of cases where our cases are not the paper's, or were not evaluated."""
    value, description = _find_value(claim, evidence)
    cases = value if claim.what == "cases" else None
    return Verdict(SETUP[_equal(value, claim.value)], description, n=cases)


def _find_value(claim: SetupClaim, evidence: Evidence) -> tuple[Any, str]:
    """Return the value of the setup that a claim is about, and a sentence that describes it. ``claim.what`` says which
    value. For ``settings``, a dict of several, the sentence names those that differ from the claim, or all where none
    does. Raises as :func:`judge_setup`."""
    settings, names = evidence.settings, claim.names
    match claim.what:
        case "cases":
            if reason := evidence.why_other_cases(names[0]):
                raise NotMeasured(reason.replace("figure is", "number is"))  # the paper's number of cases
            # All methods have the same cases; counted are those of the policy before training.
            cases = evidence.summary(evidence.method("warm_start"), names[0])["n"]
            return cases, f"{cases} test cases were evaluated"
        case "settings":
            expected: dict[str, Any] = claim.value  # type: ignore[assignment]
            values = {name: value_at(settings, name) for name in expected}
            different = [name for name in expected if not _equal(values[name], expected[name])]
            return values, ", ".join(f"{name} = {_show(values[name])}" for name in different or expected)
        case "same_training":
            jobs = dict.fromkeys(job_of(settings, evidence.method(name).name) for name in names)
            return len(jobs) == 1, f"trained as {' and '.join(jobs)}"
        case "price":
            price = price_of(names[0], settings.costs)
            code = f" {price.hcpcs}" if price.hcpcs else ""
            return round(price.usd, 2), f"{price.usd:.2f} USD, from {price.source}{code}"
        case "billed_together":
            groups = {name: price_of(name, settings.costs).group for name in names}
            together = len(set(groups.values())) == 1 and None not in groups.values()
            first_group = groups[names[0]]
            return together, f"billed as {first_group if together else groups}"
    methods = evidence.results.methods
    number = {  # all else is a number; one data set is in-domain; the list of ablations begins with CDPR itself
        "benchmarks": len(DATASETS),
        "out_of_domain": len(DATASETS) - 1,
        "groups": len({method.group for method in methods if method.paper}),
        "agents": sum(method.group == AGENTS for method in methods),
        "ablations": len(labels_of(settings, "ablations")) - 1,
        "schemes": len(labels_of(settings, "training_efficiency")),
        "sweeps": len(sweeps(settings, "sensitivity")),
    }[claim.what]
    return number, f"this workflow has {number}"


def _equal(value: Any, expected: Any) -> bool:
    """Tell whether two values are equal. Numbers are compared up to rounding, and dicts (settings by name) by the keys
    of ``expected`` alone."""
    if isinstance(expected, dict):
        return all(_equal(value[name], other) for name, other in expected.items())
    # In Python a boolean is also an integer.
    if all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in (value, expected)):
        return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12)
    return value == expected


def _show(value: Any) -> str:
    """Return the value of a setting as text: ``none`` for None, floats without trailing zeros."""
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


# The functions that judge a claim, by its kind.
_JUDGES: dict[str, Callable[[Any, Evidence], Verdict]] = {
    "figure": judge_figure, "compare": judge_comparison, "training": judge_training, "best": judge_superlative,
    "setup": judge_setup, "study": judge_study,
}  # fmt: skip
