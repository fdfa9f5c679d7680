"""Check with the policy before training, before hours are spent, whether the experiment can answer its question.

A headroom is what better decisions could gain: accuracy split by reading errors and by the choice of examinations.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
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

# Assumed of methods that are not trained yet. Between three methods with three seeds on 1,000 in-domain cases of an
# earlier demo, the share was .15 to .6 and the deviation up to .015.
CASE_SHARE = 0.5
SEED_SD = 0.01
# A suitable base policy (fractions): it reads well, and what it loses it loses by its choices.
READING_AIM, GAIN_AIM = 0.04, 0.10
# The cost term over the test term: the paper's own operating point, and the least that is aimed at here.
PAPER_COST_TO_TEST, COST_TO_TEST_AIM = 7.0, 1.0
# From this share of cases diagnosed at once, spending has collapsed.
COLLAPSED = 0.9
# Accuracy within this margin above the commonest diagnosis is near chance.
CHANCE_MARGIN = 0.05
# Agents that know the best choice: by utility, with prices at a discount, and without any examination.
REFERENCES = ("value_of_information", "discounted_information", "zero_test")

Rows = Sequence[EvaluationRow]
_MEANS = {"accuracy": "correct", "aec": "cost_usd", "aen": "n_issued", "utility": "utility"}


class Headroom(BaseModel, frozen=True, extra="forbid"):
    """The headroom of a policy on one data set under one decoding, means over cases; fractions, US dollars, units of
    utility.

    ``immediate`` is its accuracy when it must diagnose at once, ``at_once`` how often it does so by choice, ``chance``
    the accuracy of the commonest diagnosis for every case. ``cost_to_test`` is the cost term of the utility over the
    test term (None without tests). ``exact`` is the accuracy of the exact posterior on the evidence of the policy,
    ``best_choice`` that of value of information at the policy's spend, ``best_utility`` and ``best_aec`` those of value
    of information at its own spend; None where the posterior is not known.
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

    # Accuracy that the exact posterior gains on the same evidence, that better choices then gain at the same spend, and
    # both together; utility of value of information minus the policy's, without the part lost by reading errors.
    reading = property(lambda self: _minus(self.exact, self.accuracy))
    choice = property(lambda self: _minus(self.best_choice, self.exact))
    gain = property(lambda self: _minus(self.best_choice, self.accuracy))
    choice_utility = property(lambda self: _minus(_minus(self.best_utility, self.utility), self.reading))


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


class Resolution(BaseModel, frozen=True, extra="forbid"):
    """The smallest true difference between two trained methods, in accuracy (a fraction) and utility, that so many
    cases and seeds can detect (None: one seed detects none), from variances between one run of each on one case."""

    dataset: str
    cases: int
    seeds: int
    accuracy_variance: float
    utility_variance: float
    accuracy: float | None
    utility: float | None


class Preflight(BaseModel, extra="forbid"):
    """``preflight.json``. ``warm_start`` and ``immediate`` are mean utilities in-domain, sampled as in training;
    ``safe``: the first is higher. ``obstacles`` are the reasons, by data set, why the experiment cannot answer its
    question there; ``weaknesses`` warn where it is not safe; ``unavailable`` are the reasons, by data set, why the
    posterior is not known; ``message`` is the summary."""

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
    """Stage ``check_headroom``: measure what the policy before training leaves to learn, and whether the planned cases
    and seeds can show it. The result is written and printed as a warning, never as an error."""
    headrooms: list[Headroom] = []
    resolutions: list[Resolution] = []
    unavailable: dict[str, str] = {}
    for dataset in BENCHMARKS:
        acting, immediate = (_by_decoding(job, run, dataset) for run in ("warm_start", "immediate"))
        why = "" if f"cases_{dataset}" in job.inputs else _words()["unknown"]
        if not why and any(row.obtained is None for rows in acting.values() for row in rows):
            why = _words()["withheld"]
        references = [] if why else [_by_decoding(job, run, dataset)["greedy"] for run in REFERENCES]
        unavailable |= {dataset: why} if why else {}
        for decoding in settings.evaluation.decodings:
            rows = acting[decoding]
            exact = None if why else exact_accuracy(settings, dataset, job.inputs[f"cases_{dataset}"], rows)
            headrooms.append(measure_headroom(rows, immediate[decoding], settings.utility, dataset, exact, references))
        resolutions.append(measure_resolution(list(acting.values()), len(settings.seeds), dataset))
    in_domain = [_by_decoding(job, run, IN_DOMAIN) for run in ("warm_start", "immediate")]
    start, never = (mean(rows.get("sampled") or next(iter(rows.values())), "utility") for rows in in_domain)
    preflight = Preflight(
        warm_start=start, immediate=never, safe=start > never, headrooms=headrooms, resolutions=resolutions,
        unavailable=unavailable,
    )  # fmt: skip
    judge(preflight, settings.utility.cost_unit_usd)
    write_text(job.out["preflight"], preflight.model_dump_json(indent=2) + "\n")
    job.metrics.update(warm_start_utility=start, immediate_utility=never)
    print(preflight.message)


def measure_headroom(
    rows: Rows,
    immediate: Rows,
    weights: Utility,
    dataset: str,
    exact: float | None = None,
    references: Sequence[Rows] = (),
) -> Headroom:
    """Measure the headroom of a policy from its episodes, ``rows`` of one decoding and ``immediate`` diagnoses.

    ``exact`` is as of :func:`exact_accuracy`; ``references`` are episodes of :data:`REFERENCES`, in that order, if
    known."""
    figures: dict[str, Any] = {name: mean(rows, column) for name, column in _MEANS.items()}
    aec, of_tests = mean(rows, "cost_usd"), weights.lambda_test * mean(rows, "n_tests")
    cost_to_test = weights.lambda_cost * aec / weights.cost_unit_usd / of_tests if of_tests else None
    chance = Counter(row.gold for row in rows).most_common(1)[0][1] / len(rows)
    at_once = float(np.mean([row.turns == 1 for row in rows]))
    figures |= {"immediate": mean(immediate, "correct"), "at_once": at_once, "chance": chance}
    if references:
        best = references[0]
        figures |= {"best_utility": mean(best, "utility"), "best_aec": mean(best, "cost_usd")}
        figures["best_choice"] = accuracy_at_spend(aec, references)
    figures |= {"exact": exact, "cost_to_test": cost_to_test}
    return Headroom(dataset=dataset, decoding=rows[0].decoding, cases=len(rows), **figures)


def exact_accuracy(settings: Settings, dataset: str, cases: Path, rows: Rows) -> float:
    """Compute the accuracy of the exact posterior's likeliest disease, given the results of each episode of ``rows``.
    The synthetic hospital of ``dataset`` must have written the ``cases``."""
    environment, reader = DiagnosticEnvironment(settings.environment), ZeroTest(settings, dataset)
    records = {case.note_id: case for case in iterate_records(cases, "test")}
    right = 0
    for row in rows:
        state = environment.initial(case := records[row.note_id])
        for key in row.obtained or ():
            state = state.after(environment.step(state, Turn(render_action(RequestTest(key), "full"))))
        likeliest = reader.doctor.diseases[int(reader.posterior(state).argmax())]
        right += environment.is_correct(likeliest, case.diagnosis_results)
    return right / len(rows)


def accuracy_at_spend(spend: float, references: Sequence[Rows]) -> float:
    """Compute the best accuracy of these policies at an average of at most ``spend`` US dollars: one policy alone, or a
    dearer one for as many random cases as the money pays for, and a cheaper one for the others. Raises ValueError where
    all spend more."""
    points = [(mean(rows, "cost_usd"), mean(rows, "correct")) for rows in references]
    within = [point for point in points if point[0] <= spend]
    dearer = [point for point in points if point[0] > spend]
    mixed = [low + (high - low) * (spend - saved) / (cost - saved) for saved, low in within for cost, high in dearer]
    return max([accuracy for _, accuracy in within] + mixed)


def measure_resolution(rows: Sequence[Rows], seeds: int, dataset: str) -> Resolution:
    """Measure the resolution of two methods with ``seeds`` seeds on the cases of ``rows``, a policy's episodes by
    decoding.

    Assumed: two methods trained from one start differ by case as the greedy and the sampled episodes of that start do
    (with a single decoding: as two independent policies of its accuracy), with :data:`CASE_SHARE` and :data:`SEED_SD`.
    """
    cases, figures = len(rows[0]), dict[str, Any]()
    for name, column in (("accuracy", "correct"), ("utility", "utility")):
        first, *second = (_values(of_one, column) for of_one in rows)
        variance = float((first - second[0]).var(ddof=1) if second else 2 * first.var(ddof=1))
        difference = smallest_difference(cases, seeds, variance, CASE_SHARE, SEED_SD)
        figures |= {f"{name}_variance": variance, name: difference}
    return Resolution(dataset=dataset, cases=cases, seeds=seeds, **figures)


def mean(rows: Rows, name: str) -> float:
    """Average a field over cases."""
    return float(_values(rows, name).mean())


def _values(rows: Rows, name: str) -> np.ndarray:
    """Return a field by case, in the order of the cases' names."""
    return np.array([getattr(row, name) for row in sorted(rows, key=lambda row: row.note_id)], dtype=float)


def judge(preflight: Preflight, cost_unit_usd: float) -> None:
    """Fill in obstacles (by the first decoding, which the main table shows), weaknesses and message."""
    first = preflight.headrooms[0].decoding
    resolutions = {resolution.dataset: resolution for resolution in preflight.resolutions}
    for headroom in preflight.headrooms:
        if headroom.decoding == first and (reasons := obstacles(headroom, resolutions[headroom.dataset])):
            preflight.obstacles[headroom.dataset] = reasons
    if not preflight.safe:
        # No obstacle: of two methods one may collapse and the other not, which is a difference that can be shown.
        preflight.weaknesses.append(_words()["unsafe"].format(p=preflight, unit=cost_unit_usd))
    lines = [f"preflight: {verdict(preflight)}", starting_utility(preflight)]
    lines += [f"WARNING {text}." for reasons in preflight.obstacles.values() for text in reasons]
    lines += [f"{text}." for text in preflight.weaknesses]
    lines += [f"{_label(d)}: headrooms are not available: {why}." for d, why in preflight.unavailable.items()]
    preflight.message = "\n".join(lines)


def starting_utility(preflight: Preflight) -> str:
    """Give the mean utility per case before training, with examinations and without, in one sentence."""
    return str(_words()["start"].format(p=preflight))


def verdict(preflight: Preflight) -> str:
    """Say in one sentence whether the experiment can answer its question."""
    lost = preflight.obstacles
    how = ("no" if IN_DOMAIN in lost else "unknown" if IN_DOMAIN in preflight.unavailable
           else "part" if lost else "yes")  # fmt: skip
    return str(_words()["verdicts"][how].format(lost=" and ".join(map(_label, lost))))


def obstacles(headroom: Headroom, least: Resolution) -> list[str]:
    """List the reasons why nothing about the choice of examinations can be learned or shown on a data set."""
    low, _ = wilson_interval(round(headroom.accuracy * headroom.cases), headroom.cases)
    points, utility = headroom.choice, headroom.choice_utility
    one_seed = least.accuracy is None or least.utility is None
    holds = {
        "collapsed": headroom.at_once >= COLLAPSED, "chance": low <= headroom.chance + CHANCE_MARGIN,
        "one_seed": one_seed,
        "small": None not in (points, utility) and not one_seed and points < least.accuracy and utility < least.utility,
    }  # fmt: skip
    percents = {"accuracy": headroom.accuracy, "chance": headroom.chance, "choice": points, "least": least.accuracy}
    words: dict[str, Any] = {name: 100 * (share or 0) for name, share in percents.items()}
    words |= {"h": headroom, "r": least, "where": _label(headroom.dataset)}
    return [_words()["obstacles"][name].format(**words) for name, does in holds.items() if does]


@cache
def _words() -> dict[str, Any]:
    return parse_yaml(shipped_text(__package__, "preflight.yaml"))


def _label(dataset: str) -> str:
    return DATASETS[dataset].column


def _by_decoding(job: Job, run: str, dataset: str) -> Mapping[str, Rows]:
    rows: dict[str, list] = {}
    for row in read_rows(Path(job.inputs[f"{run}_{dataset}"])):
        rows.setdefault(row.decoding, []).append(row)
    return rows
