"""The verdict on a claim of the paper, from the results of this pipeline."""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ...costs import price_of
from ...evaluation.metrics import METRICS
from ...evaluation.significance import wilson_interval
from ...settings import job_of, labels_of, sweeps, value_at
from ..curves import final_verdicts
from ..methods import AGENTS, AVERAGE, DATASETS
from ..paper import printed_rows
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .study import judge_study
from .training import judge_training, measure_final_accuracy
from .verdict import DEVIATES, NOT_RUN, OPEN, REPRODUCED, SETUP, Comparison, Effect, Verdict, judge_comparisons

# How many seeds a value of a swept setting needs to be called the best (a peak), and how many each of the other values.
LEAST_SEEDS_OF_PEAK, LEAST_SEEDS_OF_OTHERS = 3, 2


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim: ``not run`` where results are missing. Its reason also names the runs behind it
    that diverged. Raises EvaluationError or TableError for results that cannot be used."""
    try:
        if "why" in claim:  # no result tests it
            raise NotMeasured(claim["why"])
        verdict = _JUDGES[claim["kind"]](claim, evidence)
    except NotMeasured as error:
        return Verdict(verdict=NOT_RUN, why=str(error).removeprefix("not run: "))  # the verdict itself says this
    if diverged := ", ".join(evidence.results.divergences(verdict.runs)):
        verdict.why += f"; {diverged} (evaluated with the weights before)"
    return verdict


def judge_figure(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare a printed number with ours, and return the verdict. Raises NotMeasured unless our cases, scale, backbone
    model and judge are the paper's.

    Both numbers were measured on samples, so both have an error. The errors are combined as those of independent
    estimates (square and add; Newcombe, Stat. Med. 17 (1998)). The error of a printed accuracy is binomial. The paper
    prints no spread of other numbers; their error is taken to be that of ours, which are of as many cases.
    """
    names = [claim[field] for field in ("of", "than") if field in claim]
    for name in names:
        if not (method := evidence.method(name)).runs:
            raise NotMeasured(method.why)
    if reason := evidence.why_not_comparable(claim["on"]):
        raise NotMeasured(reason)
    measure = _measure_final_accuracy if claim["metric"] == "final_accuracy" else _measure_on_paper_cases
    ours = measure(claim, names, evidence)
    if ours.void or math.isnan(ours.measured.low):
        return ours.verdict(OPEN, ours.void or "one seed: no interval")
    (text,) = claim["printed"]
    printed = float(Fraction(text))  # also of `1/16`
    rounding = claim.get("within") or 0.5 * 10.0 ** -len(text.partition(".")[2])  # half a unit of the last digit
    # The error of the printed number, half the width of its 95% interval, is that of ours unless it is known.
    printed_error = (ours.measured.high - ours.measured.low) / 2
    if claim["metric"] in ("accuracy", "final_accuracy") and len(names) == 1:
        cases: Any = ours.n  # an integer: only the average over data sets has a text
        low, high = wilson_interval(round(printed * cases / 100), cases)
        printed_error = 100 * (high - low) / 2
    agrees = agrees_with(printed, rounding, printed_error, ours.measured)
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


def _measure_on_paper_cases(claim: Claim, names: Sequence[str], evidence: Evidence) -> Comparison:
    """Return the statistic of a claim, measured on as many test cases as the paper has. For the mean of a single method
    the interval is that of the tables, such as Wilson's. Raises NotMeasured where results are missing, or are of
    another number of cases."""
    on, metric = claim["on"], claim["metric"]
    ours = evidence.compare(names, metric, on, claim.get("statistic", "mean"))
    paper_cases = next(int(row["value"]) for row in printed_rows("text.csv") if row["id"] == f"cases.{on}")
    if ours.n != paper_cases:
        raise NotMeasured(f"{ours.n} cases were evaluated; the figure is of {paper_cases}")
    # A number can be compared with the paper's also where a method is at chance or has stopped ordering examinations:
    # of the reasons in `ours.void` only the single seed counts.
    ours = replace(ours, void=ours.void if "one seed" in ours.void else "")
    if len(names) > 1:
        return ours
    row, factor = evidence.summary(evidence.method(names[0]), on), METRICS[metric].factor
    return replace(ours, measured=Effect(*(row[f"{metric}{end}"] * factor for end in ("", "_low", "_high"))))


def _measure_final_accuracy(claim: Claim, names: Sequence[str], evidence: Evidence) -> Comparison:
    """Return the accuracy of the last validation in %, with its interval over seeds and validation cases. Raises
    NotMeasured where results are missing."""
    (curve,) = evidence.curves(names, "accuracy")
    verdicts = final_verdicts(evidence.results.folder, curve.runs)
    return measure_final_accuracy(verdicts, evidence.settings, unit="%", n=verdicts.shape[1], runs=curve.runs)


def judge_comparison(claim: Claim, evidence: Evidence) -> Verdict:
    """Judge the claim that one method is above or below the other on the same test cases, or that both are close
    together. Returns the verdict. Raises NotMeasured where results are missing."""
    limits = {"within": ", to lie within {:g}", "times": f", to be {claim.get('side')} {{:g}} times",
              "margin": ", with a margin of {:g}"}  # fmt: skip
    limit = "".join(text.format(claim[field]) for field, text in limits.items() if field in claim)
    names = [claim["of"], claim["than"]]
    pair = evidence.compare(names, claim["metric"], claim["on"], "ratio" if "times" in claim else "difference")
    first, second = pair.samples.T
    support = Effect.of_samples(first - claim.get("times", 1.0) * second).support(claim)
    comparison = replace(pair, support=support, text=f"{pair.text}{limit}")
    return judge_comparisons([comparison], evidence.why_not_comparable(claim["on"]))


def judge_superlative(claim: Claim, evidence: Evidence) -> Verdict:
    """Judge the claim that one method, value of a swept setting, or data set is above or below all others, its rivals.
    Returns the verdict. A peak of a sweep is `open` where a value was trained with too few seeds.

    A rival that was not run might refute the claim, so the claim is reproduced only where all were run. Data sets have
    different cases, which are resampled independently. Raises NotMeasured where the one was not run, or no rival.
    """
    of, on, few = claim.get("of", ""), claim["on"], list[str]()
    # The rivals, as (method, data set), and what the reason of the verdict calls them.
    if claim.get("among") == "data_sets":
        cells, noun = [(of, dataset) for dataset in DATASETS], "data sets"
    elif "sweep" in claim:
        points = sweeps(evidence.settings, "sensitivity").get(claim["sweep"], {})  # variants by value
        if not (of := points.get(claim["value"], "")):
            raise NotMeasured(f"the sweep {claim['sweep']!r} has no point {claim['value']:g}")
        cells, noun = [(name, on) for name in points.values()], "points of our grid"
        least = {name: LEAST_SEEDS_OF_PEAK if name == of else LEAST_SEEDS_OF_OTHERS for name in points.values()}
        few = [name for name, seeds in least.items() if len(evidence.method(name).runs) < seeds]
    else:  # without `among`, the rivals are the rows of the paper's Table 1
        names = claim.get("among") or [method.name for method in evidence.results.methods if method.paper]
        cells, noun = [(name, on) for name in names], "rows"
    rivals = [cell for cell in cells if cell != (of, on)]
    here, comparisons = evidence.compare([of], claim["metric"], on), []
    for name, dataset in rivals:
        with suppress(NotMeasured):  # a rival that was not run is left out
            if dataset == on:
                pair = evidence.compare([of, name], claim["metric"], on)
                comparisons.append(replace(pair, support=pair.measured.support(claim)))
            else:
                there = evidence.compare([name], claim["metric"], dataset)
                lead = Effect.of_samples((here.samples - there.samples)[:, 0]).support(claim)
                text = f"{DATASETS[dataset]}, {there.text}, against {DATASETS[on]}, {here.text}"
                comparisons.append(replace(here, measured=lead, support=lead, text=text))
    if not comparisons:
        raise NotMeasured(f"none of the {len(rivals)} other {noun} was run here")
    were_run, in_all = len(comparisons) + 1, len(rivals) + 1  # with the one itself
    incomplete = f"{were_run} of {in_all} {noun} were run" if were_run < in_all else ""
    unlike_paper = evidence.why_not_comparable(AVERAGE if noun == "data sets" else on)
    verdict = judge_comparisons(comparisons, unlike_paper, incomplete)
    verdict.scope = f"of the {were_run} {noun} run" if incomplete else ""
    if few:
        verdict.verdict, verdict.why = OPEN, f"too few seeds for a peak ({', '.join(few)}); {verdict.why}"
    return verdict


def judge_setup(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare a value of the setup with that of the claim, as texts. Returns the verdict `as stated` or `set
    otherwise`. Raises NotMeasured for a claim about numbers of cases where our cases are not the paper's, or were not
    evaluated."""
    value, description = _find_value(claim, evidence)
    cases = value if claim["what"] == "cases" else None
    return Verdict(verdict=SETUP[_show(value) == _show(claim["value"])], why=description, n=cases)


def _find_value(claim: Claim, evidence: Evidence) -> tuple[Any, str]:
    """Return the value of the setup that a claim is about, and a sentence that describes it. The claim's ``what`` says
    which value. For ``settings``, a dict of several, the sentence names those that differ from the claim, or all where
    none does. Raises as :func:`judge_setup`."""
    settings, names, methods = evidence.settings, claim.get("names", ()), evidence.results.methods
    match claim["what"]:
        case "cases":
            if reason := evidence.why_other_cases(names[0]):
                raise NotMeasured(reason.replace("figure is", "number is"))  # the paper's number of cases
            # All methods have the same cases; counted are those of the policy before training.
            cases = evidence.summary(evidence.method("warm_start"), names[0])["n"]
            return cases, f"{cases} test cases were evaluated"
        case "settings":
            values = {name: value_at(settings, name) for name in claim["value"]}
            different = [name for name, stated in claim["value"].items() if _show(values[name]) != _show(stated)]
            return values, ", ".join(f"{name} = {_show(values[name])}" for name in different or values)
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
            return together, f"billed as {groups[names[0]] if together else groups}"
    number = {  # all else is a number; one data set is in-domain; the list of ablations begins with CDPR itself
        "benchmarks": len(DATASETS),
        "out_of_domain": len(DATASETS) - 1,
        "groups": len({method.group for method in methods if method.paper}),
        "agents": sum(method.group == AGENTS for method in methods),
        "ablations": len(labels_of(settings, "ablations")) - 1,
        "schemes": len(labels_of(settings, "training_efficiency")),
        "sweeps": len(sweeps(settings, "sensitivity")),
    }[claim["what"]]
    return number, f"this workflow has {number}"


def _show(value: Any) -> str:
    """Return the value of a setting as text: ``none`` for None, floats without trailing zeros. A dict of values has the
    texts of all."""
    if isinstance(value, dict):
        return ", ".join(map(_show, value.values()))
    if isinstance(value, float):
        return f"{value:.12g}"
    return "none" if value is None else str(value)


# The functions that judge a claim, by its kind.
_JUDGES: dict[str, Callable[[Claim, Evidence], Verdict]] = {
    "figure": judge_figure, "compare": judge_comparison, "training": judge_training, "best": judge_superlative,
    "setup": judge_setup, "study": judge_study,
}  # fmt: skip
