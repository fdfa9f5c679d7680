"""Checks before training, which takes hours, whether the experiment can answer its question.

The episodes of the policy before training show its headroom: how much accuracy better reading of results could gain,
and how much better choices of examinations could gain.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..agents.reference import ZeroTest
from ..cases import iterate_records
from ..environment import DiagnosticEnvironment, RequestTest, Turn, render_action
from ..files import parse_yaml, shipped_text, write_text
from ..job import Job
from ..settings import BENCHMARKS, DATASETS, IN_DOMAIN, Settings, Utility
from .metrics import read_evaluation
from .significance import smallest_difference, wilson_interval

# Assumed of methods that are not trained yet: the share of the variance over cases that all seeds have in common, and
# the standard deviation between seeds (:func:`~.significance.standard_error`). Between three methods with three seeds
# on 1,000 in-domain cases of an earlier demo, the share was .15 to .6 and the deviation up to .015.
CASE_SHARE = 0.5
SEED_SD = 0.01
# A policy that diagnoses at least this share of cases at once has all but stopped ordering: its spending has collapsed.
COLLAPSED = 0.9
# Accuracy within this margin above the commonest diagnosis is near chance.
CHANCE_MARGIN = 0.05
# Agents that know the exact posterior. The first maximises the utility, the second does so with prices at a discount,
# the third diagnoses without any examination.
REFERENCES = ("value_of_information", "discounted_information", "zero_test")
# What the exact posterior tells of a policy (:func:`measure_headroom`); None where it is not known.
_BY_POSTERIOR = ("exact", "best_choice", "best_utility", "best_aec", "reading", "choice", "gain", "choice_utility")
_TEXTS = parse_yaml(shipped_text(__package__, "preflight.yaml"))  # the sentences that the preflight prints, by name


def check_headroom(settings: Settings, job: Job) -> None:
    """Stage ``check_headroom``: measure what the policy before training can still learn, and whether the planned cases
    and seeds can show it. Writes ``preflight.json`` and prints its message. A bad result is a warning, never an error.

    The file has under ``rows`` what was measured, a row per data set and decoding (:func:`measure_headroom`,
    :func:`measure_resolution`), and beside it the results of :func:`judge_experiment`. ``warm_start`` and ``immediate``
    are in-domain mean utilities of the policy before training: with its own choices, and where it has to diagnose at
    once, in sampled episodes, as in training, or in greedy ones where none were sampled. ``unavailable`` are, by data
    set, the reasons why the exact posterior is not known.
    """
    rows, unavailable, utility = list[dict[str, Any]](), dict[str, str](), dict[str, float]()
    for dataset in BENCHMARKS:
        # The policy's own choices, and its immediate diagnoses, each with a row per case and decoding.
        frames = {run: _read_by_decoding(job.inputs[f"{run}_{dataset}"]) for run in ("warm_start", "immediate")}
        if dataset == IN_DOMAIN:  # sampled as in training; where there are no sampled episodes, the first decoding
            compared = "sampled" if "sampled" in frames["warm_start"] else settings.evaluation.decodings[0]
            utility = {run: float(frame[compared].utility.mean()) for run, frame in frames.items()}
        # The exact posterior is known for cases of the synthetic hospital (their file is an input then), if the rows
        # say which results were read.
        cases = job.inputs.get(f"cases_{dataset}")
        if cases is None:
            unavailable[dataset] = _TEXTS["unknown"]
        elif any(frame.obtained.isna().any() for frame in frames["warm_start"].values()):
            cases, unavailable[dataset] = None, _TEXTS["withheld"]
        references = [_read_by_decoding(job.inputs[f"{run}_{dataset}"])["greedy"] for run in REFERENCES if cases]
        resolution = measure_resolution(list(frames["warm_start"].values()), len(settings.seeds))
        for decoding in settings.evaluation.decodings:
            acting, immediate = (frame[decoding] for frame in frames.values())
            exact = exact_accuracy(settings, dataset, cases, acting) if cases else None
            headroom = measure_headroom(acting, immediate, settings.utility, exact, references)
            rows.append({"dataset": dataset, "decoding": decoding} | headroom | resolution)
    preflight = {**utility, "rows": rows, "unavailable": unavailable}
    preflight |= judge_experiment(preflight, settings.utility.cost_unit_usd)
    write_text(job.out["preflight"], json.dumps(preflight, indent=2) + "\n")
    job.metrics.update({f"{name}_utility": value for name, value in utility.items()})
    print(preflight["message"])


def measure_headroom(
    acting: pd.DataFrame, immediate: pd.DataFrame, weights: Utility, exact: float | None = None,
    references: Sequence[pd.DataFrame] = (),
) -> dict[str, Any]:  # fmt: skip
    """Measure the headroom of a policy on one data set from its episodes under one decoding: means over cases, as
    fractions, US dollars (``aec``) and units of utility, by name.

    ``acting`` are the episodes with the policy's own choices, ``immediate`` those in which it had to diagnose at once.
    ``accuracy``, ``aec``, ``aen`` (number of examinations) and ``utility`` are the policy's own. ``immediate`` is its
    accuracy when it must diagnose at once, ``at_once`` the share of cases in which it does so by choice. ``chance`` is
    the accuracy of naming the commonest diagnosis for every case. ``cost_to_test`` is the cost term of the utility over
    the test term (None where that is 0).

    ``exact``, the result of :func:`exact_accuracy`, and ``references``, the episodes of each agent in
    :data:`REFERENCES`, are left out where the exact posterior is not known; then all that follows is None.
    ``best_choice`` is the accuracy of the best choice of examinations at the policy's cost (:func:`accuracy_at_spend`).
    ``best_utility`` and ``best_aec`` are the utility and the cost of the agent that maximises the utility. Accuracy
    could be gained by ``reading`` the same results without error; then by better ``choice`` of examinations at the same
    cost; ``gain`` is both together. ``choice_utility`` is the utility that better choices could gain: all that the best
    agent gains, minus the part that is due to reading (accuracy has the weight 1 in the utility).
    """
    aec, accuracy, utility = (float(acting[name].mean()) for name in ("cost_usd", "correct", "utility"))
    # The utility subtracts two terms: for the cost, and for the number of examinations.
    test_term = weights.lambda_test * float(acting.n_tests.mean())
    cost_term = weights.lambda_cost * aec / weights.cost_unit_usd
    row: dict[str, Any] = {
        "cases": len(acting), "accuracy": accuracy, "immediate": float(immediate.correct.mean()), "aec": aec,
        "aen": float(acting.n_issued.mean()), "utility": utility, "at_once": float((acting.turns == 1).mean()),
        "chance": int(acting.gold.value_counts().iloc[0]) / len(acting),
        "cost_to_test": cost_term / test_term if test_term else None, **dict.fromkeys(_BY_POSTERIOR),
    }  # fmt: skip
    if exact is None:
        return row
    best = references[0]  # the agent that maximises the utility
    best_choice, best_utility = accuracy_at_spend(aec, references), float(best.utility.mean())
    reading = exact - accuracy
    return row | {
        "exact": exact, "best_choice": best_choice, "best_utility": best_utility,
        "best_aec": float(best.cost_usd.mean()), "reading": reading, "choice": best_choice - exact,
        "gain": best_choice - accuracy, "choice_utility": best_utility - utility - reading,
    }  # fmt: skip


def exact_accuracy(settings: Settings, dataset: str, cases: Path, episodes: pd.DataFrame) -> float:
    """Compute how often the likeliest disease of the exact posterior is the true one, given the results that each of
    the ``episodes`` obtained, the rows of one policy under one decoding. Returns a share. The file ``cases`` must have
    been written by the synthetic hospital of ``dataset``."""
    # This agent requests nothing, but its doctor knows the exact posterior at any state.
    environment, reader = DiagnosticEnvironment(settings.environment), ZeroTest(settings, dataset)
    records = {case.note_id: case for case in iterate_records(cases, "test")}
    right = 0
    for note_id, obtained in zip(episodes.note_id, episodes.obtained, strict=True):
        case = records[note_id]
        # Obtain the results of the episode again.
        state = environment.initial(case)
        for key in obtained or ():
            state = state.after(environment.step(state, Turn(render_action(RequestTest(key), "full"))))
        likeliest = reader.doctor.diseases[int(reader.posterior(state).argmax())]
        right += environment.is_correct(likeliest, case.diagnosis_results)
    return right / len(episodes)


def accuracy_at_spend(spend: float, references: Sequence[pd.DataFrame]) -> float:
    """Compute the best accuracy that some policies reach at an average of at most ``spend`` US dollars per case.

    Each of ``references`` has the episodes of one policy. A policy that costs too much may be mixed with one that is
    cheap enough: it then acts on as many random cases as the money pays for, and the cheap one on all others. Raises
    ValueError where all policies cost more.
    """
    points = [(float(rows.cost_usd.mean()), float(rows.correct.mean())) for rows in references]
    affordable = [(cost, accuracy) for cost, accuracy in points if cost <= spend]
    dearer = [(cost, accuracy) for cost, accuracy in points if cost > spend]
    # Each affordable policy alone, and each mixed with each dearer one: on the line between their two points, at spend.
    candidates = [accuracy for _, accuracy in affordable]
    for low_cost, low in affordable:
        candidates += [low + (high - low) * (spend - low_cost) / (high_cost - low_cost) for high_cost, high in dearer]
    return max(candidates)


def measure_resolution(frames: Sequence[pd.DataFrame], seeds: int) -> dict[str, Any]:
    """Measure the smallest true differences between two methods with ``seeds`` seeds each that can be shown, in
    accuracy (``least_accuracy``, a fraction) and utility (``least_utility``); None with one seed, which shows none.
    ``frames`` has the episodes of one policy on a data set under one decoding or two. Also returned are ``seeds`` and
    the variances over cases of the difference between one run of each method.

    The methods are not trained yet. It is assumed that they will differ, case by case, as the greedy and the sampled
    episodes of that policy do. With a single decoding it is assumed that they differ as two policies of its accuracy
    whose errors are independent. :data:`CASE_SHARE` and :data:`SEED_SD` are assumed too.
    """
    row: dict[str, Any] = {"seeds": seeds}
    for name, column in (("accuracy", "correct"), ("utility", "utility")):
        # The variance over cases of the difference of two episodes: of both decodings, or of two independent policies.
        first, *others = (frame.set_index("note_id")[column].astype(float) for frame in frames)
        variance = float((first - others[0]).var() if others else 2 * first.var())
        least = smallest_difference(len(first), seeds, variance, CASE_SHARE, SEED_SD)
        row |= {f"{name}_variance": variance, f"least_{name}": least}
    return row


def judge_experiment(preflight: Mapping[str, Any], cost_unit_usd: float) -> dict[str, Any]:
    """Judge what the stage measured. Returns by name

    - ``obstacles``: by data set, the reasons why the experiment cannot answer its question there, under the first
      decoding, which the main table shows;
    - ``safe``: whether the policy before training has a higher utility than immediate diagnoses; otherwise
      ``weaknesses`` hold a warning, which names ``cost_unit_usd``;
    - ``verdict``, ``start`` (the utilities before training) and ``message``, which is printed: sentences.
    """
    first = preflight["rows"][0]["decoding"]
    reasons = {row["dataset"]: list_obstacles(row) for row in preflight["rows"] if row["decoding"] == first}
    obstacles, unavailable = {name: of_data for name, of_data in reasons.items() if of_data}, preflight["unavailable"]
    if IN_DOMAIN in obstacles:
        answer = "no"
    elif IN_DOMAIN in unavailable:
        answer = "unknown"
    else:
        answer = "part" if obstacles else "yes"
    verdict = _TEXTS["verdicts"][answer].format(lost=" and ".join(DATASETS[name].column for name in obstacles))
    safe, start = preflight["warm_start"] > preflight["immediate"], _TEXTS["start"].format(**preflight)
    # No obstacle: of two methods one may collapse and the other not, which is a difference that can be shown.
    weaknesses = [] if safe else [_TEXTS["unsafe"].format(unit=cost_unit_usd, **preflight)]
    lines = [f"preflight: {verdict}", start]
    lines += [f"WARNING {reason}." for of_data in obstacles.values() for reason in of_data]
    lines += [f"{text}." for text in weaknesses]
    lines += [f"{DATASETS[name].column}: headrooms are not available: {why}." for name, why in unavailable.items()]
    return {"obstacles": obstacles, "safe": safe, "weaknesses": weaknesses, "verdict": verdict, "start": start,
            "message": "\n".join(lines)}  # fmt: skip


def list_obstacles(row: Mapping[str, Any]) -> list[str]:
    """List the reasons why nothing about the choice of examinations can be learned or shown on a data set; empty where
    there is none. ``row`` has what was measured there."""
    accuracy_low, _ = wilson_interval(round(row["accuracy"] * row["cases"]), row["cases"])
    has_interval, is_known = row["least_accuracy"] is not None, row["choice"] is not None
    checks = {  # by the name of its sentence in `preflight.yaml`
        "collapsed": row["at_once"] >= COLLAPSED,
        "chance": accuracy_low <= row["chance"] + CHANCE_MARGIN,  # the true accuracy may be as low as that
        "one_seed": not has_interval,
        "small": has_interval and is_known and row["choice"] < row["least_accuracy"]
        and row["choice_utility"] < row["least_utility"],
    }  # fmt: skip
    where = DATASETS[row["dataset"]].column
    return [_TEXTS["obstacles"][name].format(where=where, **row) for name, applies in checks.items() if applies]


def _read_by_decoding(path: Path) -> dict[str, pd.DataFrame]:
    """Read the evaluation of a run on a data set; returns its rows by decoding."""
    return {str(decoding): rows for decoding, rows in read_evaluation(path).groupby("decoding")}
