"""Checks before training, which takes hours, whether the experiment can answer its question.

The episodes of the policy before training show its headroom: how much accuracy better reading of results could gain,
and how much better choices of examinations could gain.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from ..agents.reference import ZeroTest
from ..cases import iterate_records
from ..environment import DiagnosticEnvironment, RequestTest, Turn, render_action
from ..files import parse_yaml, shipped_text, write_text
from ..job import Job
from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN
from ..settings.schema import Utility
from .row import EvaluationRow, read_rows
from .significance import smallest_difference, wilson_interval

# Assumed of methods that are not trained yet: the share of the variance over cases that all seeds have in common, and
# the standard deviation between seeds (:func:`~.significance.standard_error`). Between three methods with three seeds
# on 1,000 in-domain cases of an earlier demo, the share was .15 to .6 and the deviation up to .015.
CASE_SHARE = 0.5
SEED_SD = 0.01
# A suitable base policy loses accuracy by its choices of examinations, not by its reading of results. So the aims are,
# as fractions of the cases: at most READING_AIM is lost by reading, at least GAIN_AIM by reading and choices together.
READING_AIM, GAIN_AIM = 0.04, 0.10
# The cost term of the utility divided by its test term: in the paper's own results, and the least that is aimed at.
PAPER_COST_TO_TEST, COST_TO_TEST_AIM = 7.0, 1.0
# A policy that diagnoses at least this share of cases at once has all but stopped ordering: its spending has collapsed.
COLLAPSED = 0.9
# Accuracy within this margin above the commonest diagnosis is near chance.
CHANCE_MARGIN = 0.05
# Agents that know the exact posterior. The first maximises the utility, the second does so with prices at a discount,
# the third diagnoses without any examination.
REFERENCES = ("value_of_information", "discounted_information", "zero_test")

Rows = Sequence[EvaluationRow]
# Fields of a `Headroom` that are means, each with the field of the rows that it averages.
_MEANS = {"accuracy": "correct", "aec": "cost_usd", "aen": "n_issued", "utility": "utility"}


class Headroom(BaseModel, frozen=True, extra="forbid"):
    """The headroom of a policy on one data set under one decoding: means over cases, as fractions, US dollars (``aec``)
    and units of utility.

    ``accuracy``, ``aec``, ``aen`` (number of examinations) and ``utility`` are the policy's own. ``immediate`` is its
    accuracy when it must diagnose at once, ``at_once`` the share of cases in which it does so by choice. ``chance`` is
    the accuracy of naming the commonest diagnosis for every case. ``cost_to_test`` is the cost term of the utility over
    the test term (None where that is 0).

    The other values come from agents that know the exact posterior; None where it is not known. ``exact`` is the
    accuracy of the posterior's likeliest disease on the results that the policy read. ``best_choice`` is the accuracy
    of the best choice of examinations at the policy's cost (:func:`accuracy_at_spend`). ``best_utility`` and
    ``best_aec`` are the utility and the cost of the agent that maximises the utility.
    """

    dataset: str
    decoding: str
    cases: int
    accuracy: float
    immediate: float
    aec: float
    aen: float
    utility: float
    at_once: float
    chance: float
    cost_to_test: float | None
    exact: float | None = None
    best_choice: float | None = None
    best_utility: float | None = None
    best_aec: float | None = None

    # Accuracy that could be gained: by reading the same results without error; then by better choices of examinations
    # at the same cost; and by both together.
    reading = property(lambda self: _subtract(self.exact, self.accuracy))
    choice = property(lambda self: _subtract(self.best_choice, self.exact))
    gain = property(lambda self: _subtract(self.best_choice, self.accuracy))
    # Utility that could be gained by better choices: all that the best agent gains, minus the part that is due to
    # reading (accuracy has the weight 1 in the utility).
    choice_utility = property(lambda self: _subtract(_subtract(self.best_utility, self.utility), self.reading))


def _subtract(first: float | None, second: float | None) -> float | None:
    """Return ``first`` minus ``second``; None where one of them is None."""
    return None if first is None or second is None else first - second


class Resolution(BaseModel, frozen=True, extra="forbid"):
    """The smallest true differences between two trained methods, in ``accuracy`` (a fraction) and ``utility``, that an
    experiment with this number of cases and seeds can detect. They are None with one seed, which detects none.
    ``accuracy_variance`` and ``utility_variance`` are variances over cases of the difference between one run of each
    method."""

    dataset: str
    cases: int
    seeds: int
    accuracy_variance: float
    utility_variance: float
    accuracy: float | None
    utility: float | None


class Preflight(BaseModel, extra="forbid"):
    """The content of ``preflight.json``: whether the experiment can answer its question.

    ``warm_start`` and ``immediate`` are in-domain mean utilities of the policy before training: with its own choices,
    and where it has to diagnose at once. Both are of sampled episodes, as in training, or of greedy ones where none
    were sampled. It is ``safe`` to train where ``warm_start`` is higher; otherwise ``weaknesses`` hold a warning.
    ``headrooms`` and ``resolutions`` are what was measured.
    ``obstacles`` are, by data set, the reasons why the experiment cannot answer its question there. ``unavailable``
    are, by data set, the reasons why the exact posterior is not known. ``message`` is the summary that is printed.
    """

    warm_start: float
    immediate: float
    safe: bool
    headrooms: list[Headroom]
    resolutions: list[Resolution]
    obstacles: dict[str, list[str]] = {}
    weaknesses: list[str] = []
    unavailable: dict[str, str]
    message: str = ""


def check_headroom(settings: Settings, job: Job) -> None:
    """Stage ``check_headroom``: measure what the policy before training can still learn, and whether the planned cases
    and seeds can show it. Writes ``preflight.json`` and prints its summary. A bad result is a warning, never an
    error."""
    headrooms, resolutions, unavailable = list[Headroom](), list[Resolution](), dict[str, str]()
    # Measure headroom and resolution on each data set. ``acting`` are the rows of the policy's own choices,
    # ``immediate`` those of immediate diagnoses, both by decoding.
    for dataset in BENCHMARKS:
        acting, immediate = (_rows_by_decoding(job, run, dataset) for run in ("warm_start", "immediate"))
        # The exact posterior is known for cases of the synthetic hospital (their file is an input then), if the rows
        # say which results were read.
        cases, references = job.inputs.get(f"cases_{dataset}"), list[Rows]()
        if cases is None:
            unavailable[dataset] = _texts()["unknown"]
        elif any(row.obtained is None for rows in acting.values() for row in rows):
            unavailable[dataset] = _texts()["withheld"]
            cases = None
        else:
            references = [_rows_by_decoding(job, run, dataset)["greedy"] for run in REFERENCES]
        for decoding in settings.evaluation.decodings:
            rows = acting[decoding]
            exact = exact_accuracy(settings, dataset, cases, rows) if cases else None
            headrooms.append(measure_headroom(rows, immediate[decoding], settings.utility, dataset, exact, references))
        resolutions.append(measure_resolution(list(acting.values()), len(settings.seeds), dataset))
    # Compare the in-domain utilities with and without examinations: of episodes sampled as in training; where there are
    # no sampled ones, of those of the first decoding.
    in_domain = [_rows_by_decoding(job, run, IN_DOMAIN) for run in ("warm_start", "immediate")]
    compared = [by_decoding.get("sampled") or next(iter(by_decoding.values())) for by_decoding in in_domain]
    of_choices, at_once = (mean(rows, "utility") for rows in compared)
    preflight = Preflight(
        warm_start=of_choices, immediate=at_once, safe=of_choices > at_once, headrooms=headrooms,
        resolutions=resolutions, unavailable=unavailable,
    )  # fmt: skip
    # Judge, write and print.
    judge_experiment(preflight, settings.utility.cost_unit_usd)
    write_text(job.out["preflight"], preflight.model_dump_json(indent=2) + "\n")
    job.metrics.update(warm_start_utility=of_choices, immediate_utility=at_once)
    print(preflight.message)


def measure_headroom(
    rows: Rows, immediate: Rows, weights: Utility, dataset: str, exact: float | None = None,
    references: Sequence[Rows] = (),
) -> Headroom:  # fmt: skip
    """Measure the headroom of a policy from its episodes under one decoding.

    ``rows`` are the episodes with the policy's own choices, ``immediate`` those in which it had to diagnose at once.
    ``exact`` is the result of :func:`exact_accuracy`, ``references`` has the episodes of each agent in
    :data:`REFERENCES`. The last two are left out where the exact posterior is not known.
    """
    # The utility subtracts two terms: for the cost, and for the number of examinations.
    aec, test_term = mean(rows, "cost_usd"), weights.lambda_test * mean(rows, "n_tests")
    cost_term = weights.lambda_cost * aec / weights.cost_unit_usd
    figures: dict[str, Any] = {name: mean(rows, field) for name, field in _MEANS.items()}
    figures |= {"immediate": mean(immediate, "correct"), "at_once": sum(row.turns == 1 for row in rows) / len(rows)}
    figures["chance"] = max(Counter(row.gold for row in rows).values()) / len(rows)
    if references:
        figures["best_choice"] = accuracy_at_spend(aec, references)
        # The first reference is the agent that maximises the utility.
        figures |= {"best_utility": mean(references[0], "utility"), "best_aec": mean(references[0], "cost_usd")}
    figures["cost_to_test"] = cost_term / test_term if test_term else None
    return Headroom(dataset=dataset, decoding=rows[0].decoding, cases=len(rows), exact=exact, **figures)


def exact_accuracy(settings: Settings, dataset: str, cases: Path, rows: Rows) -> float:
    """Compute how often the likeliest disease of the exact posterior is the true one, given the results that each
    episode of ``rows`` obtained. Returns a share. The file ``cases`` must have been written by the synthetic hospital
    of ``dataset``."""
    # This agent requests nothing, but its doctor knows the exact posterior at any state.
    environment, reader = DiagnosticEnvironment(settings.environment), ZeroTest(settings, dataset)
    records = {case.note_id: case for case in iterate_records(cases, "test")}
    right = 0
    for row in rows:
        case = records[row.note_id]
        # Obtain the results of the episode again.
        state = environment.initial(case)
        for key in row.obtained or ():
            state = state.after(environment.step(state, Turn(render_action(RequestTest(key), "full"))))
        likeliest = reader.doctor.diseases[int(reader.posterior(state).argmax())]
        right += environment.is_correct(likeliest, case.diagnosis_results)
    return right / len(rows)


def accuracy_at_spend(spend: float, references: Sequence[Rows]) -> float:
    """Compute the best accuracy that some policies reach at an average of at most ``spend`` US dollars per case.

    Each of ``references`` has the episodes of one policy. A policy that costs too much may be mixed with one that is
    cheap enough: it then acts on as many random cases as the money pays for, and the cheap one on all others. Raises
    ValueError where all policies cost more.
    """
    points = [(mean(rows, "cost_usd"), mean(rows, "correct")) for rows in references]
    affordable = [(cost, accuracy) for cost, accuracy in points if cost <= spend]
    dearer = [(cost, accuracy) for cost, accuracy in points if cost > spend]
    # Each affordable policy alone, and each mixed with each dearer one: on the line between their two points, at spend.
    candidates = [accuracy for _, accuracy in affordable]
    for low_cost, low in affordable:
        candidates += [low + (high - low) * (spend - low_cost) / (high_cost - low_cost) for high_cost, high in dearer]
    return max(candidates)


def measure_resolution(rows: Sequence[Rows], seeds: int, dataset: str) -> Resolution:
    """Measure the smallest differences between two methods with ``seeds`` seeds each that can be shown on a data set.
    ``rows`` has the episodes of one policy under one decoding or two.

    The methods are not trained yet. It is assumed that they will differ, case by case, as the greedy and the sampled
    episodes of that policy do. With a single decoding it is assumed that they differ as two policies of its accuracy
    whose errors are independent. :data:`CASE_SHARE` and :data:`SEED_SD` are assumed too.
    """
    cases, figures = len(rows[0]), dict[str, Any]()
    for name, column in (("accuracy", "correct"), ("utility", "utility")):
        # The variance over cases of the difference of two episodes: of both decodings, or of two independent policies.
        first, *others = (_column(of_decoding, column) for of_decoding in rows)
        variance = float((first - others[0]).var(ddof=1) if others else 2 * first.var(ddof=1))
        least = smallest_difference(cases, seeds, variance, CASE_SHARE, SEED_SD)
        figures |= {f"{name}_variance": variance, name: least}
    return Resolution(dataset=dataset, cases=cases, seeds=seeds, **figures)


def mean(rows: Rows, name: str) -> float:
    """Average the field ``name`` of rows over cases."""
    return float(_column(rows, name).mean())


def _column(rows: Rows, name: str) -> np.ndarray:
    """Return the field ``name`` of rows as an array of numbers [cases], sorted by the case identifier."""
    return np.array([getattr(row, name) for row in sorted(rows, key=lambda row: row.note_id)], dtype=float)


def judge_experiment(preflight: Preflight, cost_unit_usd: float) -> None:
    """Fill in ``obstacles``, ``weaknesses`` and ``message`` of a preflight. Obstacles are those under the first
    decoding, which the main table shows. ``cost_unit_usd`` is named in the message."""
    first = preflight.headrooms[0].decoding
    resolutions = {resolution.dataset: resolution for resolution in preflight.resolutions}
    for headroom in preflight.headrooms:
        if headroom.decoding == first and (reasons := obstacles(headroom, resolutions[headroom.dataset])):
            preflight.obstacles[headroom.dataset] = reasons
    if not preflight.safe:
        # No obstacle: of two methods one may collapse and the other not, which is a difference that can be shown.
        preflight.weaknesses.append(_texts()["unsafe"].format(p=preflight, unit=cost_unit_usd))
    # The message, line by line.
    lines = [f"preflight: {verdict(preflight)}", starting_utility(preflight)]
    lines += [f"WARNING {reason}." for reasons in preflight.obstacles.values() for reason in reasons]
    lines += [f"{text}." for text in preflight.weaknesses]
    lines += [f"{DATASETS[d].column}: headrooms are not available: {why}." for d, why in preflight.unavailable.items()]
    preflight.message = "\n".join(lines)


def starting_utility(preflight: Preflight) -> str:
    """Write one sentence with the mean utilities per case before training, with examinations and with immediate
    diagnoses."""
    return str(_texts()["start"].format(p=preflight))


def verdict(preflight: Preflight) -> str:
    """Write one sentence that says whether the experiment can answer its question: yes, no, in part (on some data
    sets), or not known."""
    if IN_DOMAIN in preflight.obstacles:
        answer = "no"
    elif IN_DOMAIN in preflight.unavailable:
        answer = "unknown"
    else:
        answer = "part" if preflight.obstacles else "yes"
    lost = " and ".join(DATASETS[dataset].column for dataset in preflight.obstacles)
    return str(_texts()["verdicts"][answer].format(lost=lost))


def obstacles(headroom: Headroom, least: Resolution) -> list[str]:
    """List the reasons why nothing about the choice of examinations can be learned or shown on a data set; empty where
    there is none. ``least`` has the smallest differences that the data set's cases and seeds can show."""
    accuracy_low, _ = wilson_interval(round(headroom.accuracy * headroom.cases), headroom.cases)
    accuracy, utility = headroom.choice, headroom.choice_utility  # that better choices could gain
    names = []  # of the sentences in `preflight.yaml`, under `obstacles`
    if headroom.at_once >= COLLAPSED:
        names.append("collapsed")
    if accuracy_low <= headroom.chance + CHANCE_MARGIN:  # the true accuracy may be as low as that
        names.append("chance")
    if least.accuracy is None or least.utility is None:
        names.append("one_seed")
    # None: what better choices could gain is not known.
    elif None not in (accuracy, utility) and accuracy < least.accuracy and utility < least.utility:
        names.append("small")
    # Write the sentence of each name, filling its braces with these numbers in percent, `headroom` and `least`.
    shares = {"accuracy": headroom.accuracy, "chance": headroom.chance, "choice": accuracy, "least": least.accuracy}
    percents = {name: 100 * (share or 0) for name, share in shares.items()}
    where = DATASETS[headroom.dataset].column
    return [_texts()["obstacles"][name].format(h=headroom, r=least, where=where, **percents) for name in names]


@cache
def _texts() -> dict[str, Any]:
    """Read the sentences that the preflight prints, by name, from ``preflight.yaml``."""
    return parse_yaml(shipped_text(__package__, "preflight.yaml"))


def _rows_by_decoding(job: Job, run: str, dataset: str) -> dict[str, list[EvaluationRow]]:
    """Read the rows of a run on a data set from the job's inputs; returns them by decoding."""
    by_decoding: dict[str, list[EvaluationRow]] = {}
    for row in read_rows(Path(job.inputs[f"{run}_{dataset}"])):
        by_decoding.setdefault(row.decoding, []).append(row)
    return by_decoding
