"""Can the experiment answer its question? Asked of the policy before training, so before hours are spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ..files import write_text
from ..job import Job
from ..settings import Settings
from ..settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN
from .headroom import Headroom, Resolution, Rows, exact_accuracy, mean, measure_headroom, measure_resolution
from .row import read_rows
from .statistics import wilson_interval

# What a base policy should leave to learn (fractions): it reads well, and what it loses it loses by its choices.
READING_AIM, GAIN_AIM = 0.04, 0.10
# The cost term over the test term at the paper's own operating point, and what is wanted here: no less than equality.
PAPER_COST_TO_TEST, COST_TO_TEST_AIM = 7.0, 1.0
# From this share of cases diagnosed at once, spending has collapsed.
COLLAPSED = 0.9
# Accuracy that is not clearly so much above always naming the commonest diagnosis is near chance.
CHANCE_MARGIN = 0.05
# Reference agents that know the best choice: worth its price in utility, at a discount, and what is known without any.
REFERENCES = ("value_of_information", "discounted_information", "zero_test")
UNKNOWN = "only the synthetic hospital knows the exact posterior"
WITHHELD = "rows of credentialed cases do not name the examinations whose results were read"


class Preflight(BaseModel):
    """``preflight.json``. ``warm_start`` and ``immediate`` are mean utilities in-domain, sampled as in training;
    ``safe``: the first is higher. ``obstacles`` are sentences, by data set, that tell why the experiment cannot answer
    its question there; ``weaknesses`` name the aims that are missed; ``unavailable`` tells, by data set, why parts are
    not known; ``message`` sums up."""

    model_config = ConfigDict(extra="forbid")

    warm_start: float
    immediate: float
    safe: bool
    headrooms: list[Headroom]
    resolutions: list[Resolution]
    obstacles: dict[str, list[str]]
    weaknesses: list[str]
    unavailable: dict[str, str]
    message: str = ""


def check_headroom(settings: Settings, job: Job) -> None:
    """Stage ``check_headroom``: what the policy before training leaves to learn, and whether the planned cases and
    seeds can show it; written and printed, a warning and never an error."""
    headrooms: list[Headroom] = []
    resolutions: list[Resolution] = []
    unavailable: dict[str, str] = {}
    for dataset in BENCHMARKS:
        acting, immediate = (_by_decoding(job, run, dataset) for run in ("warm_start", "immediate"))
        why = _unavailable(job, dataset, acting)
        references = [] if why else [_by_decoding(job, run, dataset)["greedy"] for run in REFERENCES]
        unavailable |= {dataset: why} if why else {}
        for decoding in settings.evaluation.decodings:
            rows = acting[decoding]
            exact = None if why else exact_accuracy(settings, dataset, job.inputs[f"cases_{dataset}"], rows)
            headrooms.append(measure_headroom(rows, immediate[decoding], settings.utility, dataset, exact, references))
        resolutions.append(measure_resolution(list(acting.values()), len(settings.seeds), dataset))
    start, never = (_sampled_utility(_by_decoding(job, run, IN_DOMAIN)) for run in ("warm_start", "immediate"))
    found = Preflight(
        warm_start=start, immediate=never, safe=start > never, headrooms=headrooms, resolutions=resolutions,
        obstacles={}, weaknesses=[], unavailable=unavailable,
    )  # fmt: skip
    judge(found, settings.utility.cost_unit_usd)
    write_text(job.out["preflight"], found.model_dump_json(indent=2) + "\n")
    job.metrics.update(warm_start_utility=start, immediate_utility=never)
    print(found.message)


def judge(found: Preflight, cost_unit_usd: float) -> None:
    """Fill in what the figures mean: obstacles, weaknesses (a warning first) and message. Headrooms are held against
    resolutions under the first decoding, which the main table shows."""
    first = found.headrooms[0].decoding
    for at in found.headrooms:
        if at.decoding == first and (told := obstacles(at, _of(found, at.dataset))):
            found.obstacles[at.dataset] = told
    found.weaknesses += weaknesses(found.headrooms)
    if not found.safe:
        # No obstacle: of two methods one may collapse and the other not, which is a difference that can be shown.
        found.weaknesses.insert(
            0,
            f"WARNING U(warm start) {found.warm_start:.3f} <= U(immediate diagnosis) {found.immediate:.3f} at "
            f"{cost_unit_usd:g} USD per cost unit: expect training on the utility to collapse to never testing. Raise "
            "utility.cost_unit_usd, lower the lambdas, or start from a better policy (warm_start.*)",
        )
    found.message = "\n".join(
        [
            f"preflight: {verdict(found)}",
            starting_utility(found),
            *(f"WARNING {text}." for of_dataset in found.obstacles.values() for text in of_dataset),
            *(f"{text}." for text in found.weaknesses),
            *(f"{label(d)}: headrooms are not available: {why}." for d, why in found.unavailable.items()),
        ]
    )


def starting_utility(found: Preflight) -> str:
    """Mean utility per case before training, with examinations and without, in one sentence."""
    return (f"Sampled as in training, in-domain: U(warm start) {found.warm_start:.3f}, "
            f"U(immediate diagnosis) {found.immediate:.3f}.")  # fmt: skip


def verdict(found: Preflight) -> str:
    """The answer to "Can this experiment answer its question?" in one sentence."""
    if IN_DOMAIN in found.obstacles:
        return "No: this experiment cannot answer its question."
    if IN_DOMAIN in found.unavailable:
        return "Not known: nothing speaks against it, but what there is to learn cannot be measured here."
    if found.obstacles:
        return f"In part: in-domain it can, on {' and '.join(map(label, found.obstacles))} it cannot."
    return "Yes: what better choices are worth is more than the smallest difference that can be shown."


def obstacles(at: Headroom, least: Resolution) -> list[str]:
    """Why nothing about the choice of examinations can be learned or shown on a data set."""
    told, where = [], label(at.dataset)
    if at.at_once >= COLLAPSED:
        told.append(f"{where}: spending has collapsed, {at.at_once:.0%} of the cases are diagnosed at once, so there "
                    "are no examinations to compare")  # fmt: skip
    if wilson_interval(round(at.accuracy * at.cases), at.cases)[0] <= at.chance + CHANCE_MARGIN:
        told.append(f"{where}: the policy stands near chance ({_points(at.accuracy)}% right; naming the commonest "
                    f"diagnosis always: {_points(at.chance)}%), where a comparison shows nothing")  # fmt: skip
    points, utility = at.choice, at.choice_utility
    if points is not None and utility is not None and points < least.accuracy and utility < least.utility:
        told.append(f"{where}: the best choice of examinations is worth {_points(points)} points of accuracy at equal "
                    f"spend and {utility:.3f} of utility, but {least.cases} cases and {least.seeds} seeds show only "
                    f"differences from {_points(least.accuracy)} points and {least.utility:.3f}")  # fmt: skip
    return told


def weaknesses(headrooms: Sequence[Headroom]) -> list[str]:
    """Which aims a base policy misses, and where."""
    reading = [(at, at.reading) for at in headrooms if at.reading is not None and at.reading > READING_AIM]
    gain = [(at, at.gain) for at in headrooms if at.gain is not None and at.gain < GAIN_AIM]
    ratio = [
        (at, at.cost_to_test) for at in headrooms if at.cost_to_test is not None and at.cost_to_test < COST_TO_TEST_AIM
    ]
    told = {
        f"Reading errors cost more than {_points(READING_AIM)} points of accuracy":
            [f"{_place(at)} {_points(value)}" for at, value in reading],
        f"At equal spend value of information is less than {_points(GAIN_AIM)} points more accurate":
            [f"{_place(at)} {_points(value)}" for at, value in gain],
        f"The cost term is below {COST_TO_TEST_AIM:g} times the test term (about {PAPER_COST_TO_TEST:g} in the paper)":
            [f"{_place(at)} {value:.2f}" for at, value in ratio],
    }  # fmt: skip
    return [f"{what}: {', '.join(places)}" for what, places in told.items() if places]


def label(dataset: str) -> str:
    """What tables call a data set."""
    return DATASETS[dataset].column


def _place(at: Headroom) -> str:
    return f"{label(at.dataset)} {at.decoding}"


def _of(found: Preflight, dataset: str) -> Resolution:
    return next(each for each in found.resolutions if each.dataset == dataset)


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"


def _by_decoding(job: Job, run: str, dataset: str) -> Mapping[str, Rows]:
    """The workups of an evaluation, in the order of its file."""
    rows: dict[str, list] = {}
    for row in read_rows(Path(job.inputs[f"{run}_{dataset}"])):
        rows.setdefault(row.decoding, []).append(row)
    return rows


def _unavailable(job: Job, dataset: str, acting: Mapping[str, Rows]) -> str:
    """Why the exact posterior cannot be asked; empty where it can."""
    if f"cases_{dataset}" not in job.inputs:
        return UNKNOWN
    return WITHHELD if any(row.obtained is None for rows in acting.values() for row in rows) else ""


def _sampled_utility(by_decoding: Mapping[str, Rows]) -> float:
    """Mean utility as sampled in training (of the only decoding where there is one)."""
    return mean(by_decoding.get("sampled") or next(iter(by_decoding.values())), "utility")
