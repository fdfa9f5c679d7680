"""What a reader wants first: does CDPR beat GRPO and the backbone here, in accuracy and in cost?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..evaluation.metrics import METRICS, Estimate, Evaluation, compare
from ..evaluation.statistics import bootstrap_means, percentile_interval
from ..results.methods import DATASETS, IN_DOMAIN, Method
from ..results.results import Hole, Results
from ..results.table import interval, number
from ..seeding import derive_seed

OURS, RIVALS = "cdpr", ("grpo", "warm_start")
PLACES = {IN_DOMAIN: "In-domain", "average": "Average of the data sets"}
# Metric, header, factor for printing, decimals, whether more is better, unit, words for better, worse and open.
ASKED = (
    ("accuracy", "Accuracy (%)", 100.0, 2, True, "points",
     ("more accurate", "less accurate", "no difference in accuracy shown")),
    ("aec", "Cost per case (USD)", 1.0, 2, False, "USD", ("cheaper", "costlier", "no difference in cost shown")),
    ("utility", "Utility", 1.0, 3, True, "",
     ("of higher utility", "of lower utility", "no difference in utility shown")),
)  # fmt: skip
BETTER, WORSE, OPEN = range(3)


@dataclass(frozen=True)
class Figure:
    """A number and its interval, as text; ``verdict`` (of differences) is BETTER, WORSE or OPEN."""

    mean: str
    interval: str
    seeds: str = ""
    verdict: int | None = None


@dataclass(frozen=True)
class Entry:
    """A row of the small table: a method, or ours minus a rival. ``hole`` says why there are no figures, ``diverged``
    which runs behind them broke off."""

    label: str
    method: str
    rival: str
    figures: Sequence[Figure]
    seeds: int = 0
    hole: str = ""
    diverged: str = ""


@dataclass(frozen=True)
class Answer:
    """Ours against one rival at one place, in words."""

    place: str
    question: str
    short: str
    sentence: str


def headline(results: Results, decoding: str) -> tuple[list[Answer], list[tuple[str, list[Entry]]]]:
    """The questions with their answers, in-domain first, and the small table: per place the methods, then ours minus
    each rival."""
    ours, rivals = results.method(OURS), [results.method(name) for name in RIVALS]
    answers, table = [], []
    for place, label in PLACES.items():
        found = [(rival, differences(results, ours, rival, place, decoding)) for rival in rivals]
        answers += [_answer(results, label, ours, rival, at) for rival, at in found]
        entries = [_level(results, method, place, decoding) for method in (ours, *rivals)]
        table.append((label, [*entries, *(_change(results, ours, rival, at) for rival, at in found)]))
    return answers, table


def differences(
    results: Results, first: Method, second: Method, place: str, decoding: str
) -> Mapping[str, Estimate] | Hole:
    """First minus second on the same cases: on a data set as in the paired tables, or ``average``, the unweighted mean
    of the data sets, each resampled for itself. A method with one run stands against every seed of the other."""
    plan, by_seed, draws = results.settings.evaluation, [], []
    for dataset in DATASETS if place == "average" else (place,):
        one, two = (results.evaluations(method, dataset, decoding) for method in (first, second))
        for hole in (one, two):
            if isinstance(hole, Hole):
                return hole
        one, two = _spread(one, len(two)), _spread(two, len(one))
        if len(one) != len(two):
            return Hole(f"{first.label} has {len(one)} seeds, {second.label} {len(two)}: they form no pairs")
        found = compare(one, two, plan.bootstrap, plan.seed).differences
        if place != "average":
            return found
        by_seed.append([found[name].by_seed for name in METRICS])
        cases = np.mean([[a.metric(n) - b.metric(n) for n in METRICS] for a, b in zip(one, two, strict=True)], axis=0)
        draws.append(bootstrap_means(cases.T, plan.bootstrap, derive_seed(plan.seed, dataset)))
    seeds, drawn = np.mean(by_seed, axis=0), np.mean(draws, axis=0)
    return {
        name: Estimate(float(seeds[i].mean()), *percentile_interval(drawn[:, i]), tuple(map(float, seeds[i])))
        for i, name in enumerate(METRICS)
    }


def verdict(estimate: Estimate, more_is_better: bool) -> int:
    """What the interval over cases shows: BETTER, WORSE, or OPEN where it holds zero."""
    if estimate.low <= 0 <= estimate.high:
        return OPEN
    return BETTER if (estimate.low > 0) == more_is_better else WORSE


def short(at: Mapping[str, Estimate]) -> str:
    """Yes, in part or no, judged by accuracy and cost: ``In part: cheaper, but less accurate``."""
    (accuracy, said), (cost, told) = ((verdict(at[name], up), words) for name, _, _, _, up, _, words in ASKED[:2])
    both = [said[accuracy], told[cost]]
    if accuracy == cost == BETTER:
        return f"Yes: {both[0]} and {both[1]}"
    if BETTER in (accuracy, cost):
        good, other = both if accuracy == BETTER else reversed(both)
        return f"In part: {good}, {'but ' if WORSE in (accuracy, cost) else ''}{other}"
    return f"{'No' if WORSE in (accuracy, cost) else 'Not shown'}: {both[0]}, {both[1]}"


def sentence(at: Mapping[str, Estimate]) -> str:
    """The differences with intervals, and how many seeds agree with the sign of the accuracy's."""
    parts = []
    for name, header, factor, decimals, _, unit, _ in ASKED:
        of = at[name]
        text = interval(of.mean * factor, of.low * factor, of.high * factor, decimals, signed=True)
        parts.append(f"{header.partition(' (')[0].lower()} {text}{' ' + unit if unit else ''}")
    seeds = at["accuracy"].by_seed
    text = f"Ours minus theirs: {'; '.join(parts)}."
    if len(seeds) > 1:
        same = [sum(value * at[name].mean > 0 for value in at[name].by_seed) for name in ("accuracy", "aec")]
        text += f" Of {len(seeds)} seeds, {same[0]} agree on the sign for accuracy and {same[1]} for cost."
    return text


def _level(results: Results, method: Method, place: str, decoding: str) -> Entry:
    found = results.average(method, decoding) if place == "average" else results.summary(method, place, decoding)
    if isinstance(found, Hole):
        return Entry(method.label, method.name, "", (), hole=found.reason)
    at = found if place == "average" else found.estimates
    figures = []
    for name, _, factor, decimals, *_ in ASKED:
        of = at[name]
        spread = "" if of.seed_sd is None else f"seed SD {number(of.seed_sd * factor, decimals)}"
        figures.append(Figure(*_split(of, factor, decimals), spread))
    return Entry(method.label, method.name, "", figures, len(method.runs), diverged=_broken(results, method))


def _change(results: Results, ours: Method, rival: Method, at: Mapping[str, Estimate] | Hole) -> Entry:
    label = f"{ours.label} − {rival.label}"
    if isinstance(at, Hole):
        return Entry(label, ours.name, rival.name, (), hole=at.reason)
    figures = []
    for name, _, factor, decimals, up, *_ in ASKED:
        of = at[name]
        by_seed = ", ".join(number(value * factor, decimals, True) for value in of.by_seed)
        spread = f"by seed {by_seed}" if len(of.by_seed) > 1 else ""
        figures.append(Figure(*_split(of, factor, decimals, signed=True), spread, verdict(of, up)))
    seeds, broken = len(at["accuracy"].by_seed), _broken(results, ours, rival)
    return Entry(label, ours.name, rival.name, figures, seeds, diverged=broken)


def _answer(results: Results, place: str, ours: Method, rival: Method, at: Mapping[str, Estimate] | Hole) -> Answer:
    named = rival.label if rival.name != "warm_start" else f"its backbone ({rival.label[0].lower()}{rival.label[1:]})"
    question = f"Does {ours.label} beat {named}?"
    if isinstance(at, Hole):
        return Answer(place, question, "Not known", f"{at.reason}.")
    broken = _broken(results, ours, rival)
    told = f" {broken}: evaluated with the weights before." if broken else ""
    return Answer(place, question, short(at), sentence(at) + told)


def _broken(results: Results, *methods: Method) -> str:
    """``cdpr-seed1 diverged at step 20``; empty where every run came to its end."""
    return "; ".join(end for method in methods for end in results.status(method).split("; ")[1:])


def _split(of: Estimate, factor: float, decimals: int, signed: bool = False) -> tuple[str, str]:
    text = interval(of.mean * factor, of.low * factor, of.high * factor, decimals, signed=signed)
    mean, _, rest = text.partition(" ")
    return mean, rest


def _spread(found: Sequence[Evaluation], seeds: int) -> Sequence[Evaluation]:
    return list(found) * seeds if len(found) == 1 else found
