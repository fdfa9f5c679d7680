"""The verdict on a claim of the paper, from the results of this pipeline.

Intervals over test cases are those of the tables. Intervals of training times and tokens are Student's over training
seeds, since training has no cases to resample; those of final accuracy resample seeds and validation cases. Simulated
raters are no physicians: their scores support a claim's direction at most, and the verdict says so.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ...costs import price_of
from ...evaluation.metrics import METRICS
from ...evaluation.significance import crossed_bootstrap, percentile_interval, wilson_interval
from ...settings import Settings, job_of, labels_of, sweeps, value_at
from ...study.analysis import Analysis, Interval
from ...study.ratings import PHYSICIAN
from ...study.records import dimensions
from ..curves import Curves, final_verdicts
from ..methods import AGENTS, AVERAGE, DATASETS, IN_DOMAIN, unique_runs
from ..paper import printed_rows
from ..results import NotMeasured
from .claims import Claim
from .evidence import Evidence
from .verdict import DEVIATES, NOT_RUN, OPEN, REPRODUCED, SETUP, Comparison, Effect, Verdict, judge_all, verdict_of

# How many seeds a value of a swept setting needs to be called the best (a peak), and how many each of the other values.
LEAST_SEEDS_OF_PEAK, LEAST_SEEDS_OF_OTHERS = 3, 2
# Final accuracies of fewer seeds, or of seeds that do not differ, have no interval over trainings.
LEAST_FINAL_SEEDS = 3
# What is spent in training, by what the claim compares: its name, unit, decimals, and a caveat.
_SPENT = {
    "seconds": ("training time", "s", 1, "; of the processor on a CPU (all threads), by the clock on a GPU"),
    "tokens": ("tokens generated in training", "tokens", 0, ""),
}


def judge(claim: Claim, evidence: Evidence) -> Verdict:
    """Return the verdict on a claim: ``not run`` where results are missing. Its reason also names the runs behind it
    that diverged. Raises EvaluationError or TableError for results that cannot be used."""
    try:
        if "why" in claim:  # no result tests it
            raise NotMeasured(claim["why"])
        verdict = _JUDGES[claim["kind"]](claim, evidence)
    except NotMeasured as error:
        return verdict_of(NOT_RUN, str(error).removeprefix("not run: "))  # the verdict itself says this
    if diverged := ", ".join(evidence.divergences(verdict["runs"])):
        verdict["why"] += f"; {diverged} (evaluated with the weights before)"
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
    row, factor = evidence.estimates(evidence.method(names[0]), on, evidence.decoding), METRICS[metric].factor
    return replace(ours, measured=Effect(*(row[f"{metric}{end}"] * factor for end in ("", "_low", "_high"))))


def _measure_final_accuracy(claim: Claim, names: Sequence[str], evidence: Evidence) -> Comparison:
    """Return the accuracy of the last validation in %, with its interval over seeds and validation cases. Raises
    NotMeasured where results are missing."""
    (curve,) = evidence.curves(names, "accuracy")
    verdicts = final_verdicts(evidence.folder, curve.runs)
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
    return judge_all([comparison], evidence.why_not_comparable(claim["on"]))


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
        names = claim.get("among") or [method.name for method in evidence.methods if method.paper]
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
    verdict = judge_all(comparisons, unlike_paper, incomplete)
    verdict["scope"] = f"of the {were_run} {noun} run" if incomplete else ""
    if few:
        verdict |= {"verdict": OPEN, "why": f"too few seeds for a peak ({', '.join(few)}); {verdict['why']}"}
    return verdict


# Training


def judge_training(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare two trainings by time, tokens or final accuracy, or two parts of the tokens of one training. Returns the
    verdict. Raises NotMeasured where results are missing."""
    compare = {"final_accuracy": _compare_final_accuracy, "probes": _compare_probes}.get(claim["by"], _compare_spent)
    comparison = compare(claim, evidence)
    # A ratio (of probes to continuations) is compared with `times`, a difference (all else) with zero.
    support = comparison.measured.minus(claim.get("times", 0.0)).support(claim)
    return judge_all([replace(comparison, support=support)], evidence.why_not_comparable(IN_DOMAIN))


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
    first, second = (final_verdicts(evidence.folder, curve.runs) for curve in curves)
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


# The expert study


def judge_study(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare scores of the study with each other, or the agreement of its raters with a number. Returns the verdict.
    Raises NotMeasured where nothing was rated, or a score is undefined."""
    path = evidence.folder / "study" / "analysis.json"
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
        # The verdict rests on the smallest lead.
        if claim["asks"] == "leads" and not analysis.against_next_best(weakest):
            raise NotMeasured("no state has scores of both methods")
        comparisons = [_compare_lead(claim, analysis, name) for name in names]
    simulated = "" if analysis.kind == PHYSICIAN else f"{len(analysis.raters)} simulated raters, no physicians"
    unlike_paper = simulated or evidence.why_not_comparable(AVERAGE)
    rated, left_out = len(analysis.runs), len(analysis.left_out)
    is_complete = claim["asks"] == "agreement" or not left_out  # agreement is about the raters, not the methods
    incomplete = "" if is_complete else f"{rated} of {rated + left_out} methods were rated"
    return judge_all(comparisons, unlike_paper, incomplete)


def _compare_lead(claim: Claim, analysis: Analysis, name: str) -> Comparison:
    """Compare our lead on a dimension, the distance of our mean score from that of the best baseline, with zero; and
    where the claim is that it is the largest lead, also with our largest lead on another dimension: then the support is
    the one of the two whose interval begins lower. Raises NotMeasured where a lead is undefined."""
    lead, baseline = _effect(analysis.lead, name), analysis.next_best(name)
    test, scores = analysis.against_next_best(name), analysis.scores[name]
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
    rated = {name: run for method in evidence.methods for run in method.runs if run in analysis.runs
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
    return Effect(estimate.value, *(math.nan if end is None else end for end in (estimate.low, estimate.high)))


# The setup


def judge_setup(claim: Claim, evidence: Evidence) -> Verdict:
    """Compare a value of the setup with that of the claim, as texts. Returns the verdict `as stated` or `set
    otherwise`. Raises NotMeasured for a claim about numbers of cases where our cases are not the paper's, or were not
    evaluated."""
    value, description = _find_value(claim, evidence)
    cases = value if claim["what"] == "cases" else None
    return verdict_of(SETUP[_show(value) == _show(claim["value"])], description, n=cases)


def _find_value(claim: Claim, evidence: Evidence) -> tuple[Any, str]:
    """Return the value of the setup that a claim is about, and a sentence that describes it. The claim's ``what`` says
    which value. For ``settings``, a dict of several, the sentence names those that differ from the claim, or all where
    none does. Raises as :func:`judge_setup`."""
    settings, names, methods = evidence.settings, claim.get("names", ()), evidence.methods
    match claim["what"]:
        case "cases":
            if reason := evidence.why_other_cases(names[0]):
                raise NotMeasured(reason.replace("figure is", "number is"))  # the paper's number of cases
            # All methods have the same cases; counted are those of the policy before training.
            cases = evidence.estimates(evidence.method("warm_start"), names[0], evidence.decoding)["n"]
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
