"""Measure how well process rewards estimate the true advantage, by the settings of the estimator and its price in
tokens.

The true advantage of each decision comes from brute force, its estimates from the code of training under many settings.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from tqdm import tqdm

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord, iterate_records
from ..credit.continuations import Draws, group_advantages, state_values, step_advantages, whole_returns
from ..credit.process_reward import ProcessReward
from ..environment import Agent, DiagnosticEnvironment, Policy, State, Trajectory, Turn, run_episode
from ..environment.opening import open_environment
from ..environment.utility import ReturnOf, utility
from ..files import write_text
from ..job import Job
from ..llm import ModelSpec
from ..seeding import derive_seed
from ..settings import Settings
from ..settings.credit import Credit

SEED = 0  # of workups, truth and replicates
SWEEPS = {
    "samples": (2, 4, 8, 16),
    "continuations": (1, 2, 4, 8, 16),
    "horizon": (0, 1, 2, 3, 5, 8),
    "candidates": (2, 3, 4, 6),
    "baseline": ("uniform", "policy_weighted", "leave_one_out"),
    "cache.reuse_group": ("none", "branching", "every"),
}
SCORED = ((0, 1), (1, 1), (1, 2), (3, 2), (3, 4))  # H and K under scored verdicts
VINE_CONTINUATIONS = (1, 2, 4, 8, 16, 32)
Group = Sequence[Trajectory]


def measure_credit_quality(settings: Settings, job: Job) -> None:
    """Stage ``credit_quality``: measure every setting on validation cases, and print the measures of the default.

    Raises ValueError when there is no validation case.
    """
    path = job.inputs["cases"]
    cases = list(islice(iterate_records(path, "validation"), settings.analysis.cases))
    if not cases:
        raise ValueError(f"{path}: no case of split 'validation'")
    spec = ModelSpec.of_folder(job.inputs["policy"], settings.policy)
    policy = PolicyAgent.build(settings, spec, settings.training.temperature)
    gc.disable()  # collection would trace a million replies again and again, a third of the time
    quality = asyncio.run(assess(settings, policy, cases))
    write_text(job.out["quality"], json.dumps(quality, indent=1) + "\n")
    default = next(row for row in quality["rows"] if row["default"])
    main = {name: default[name] for name in ("bias", "variance", "rmse", "rank_correlation", "right_signs")}
    job.metrics.update(main)
    print(f"{quality['decisions']} decisions: " + "  ".join(f"{name} {value:.3f}" for name, value in main.items()))


async def assess(settings: Settings, policy: Policy, cases: Sequence[CaseRecord]) -> dict[str, Any]:
    """Measure every setting, one flat row each under ``rows``, and count samples. ``policy`` also acts."""
    environment = open_environment(settings, credentialed=any(case.credentialed for case in cases))
    plan = settings.analysis
    groups = await sample_groups(settings, environment, policy, cases)
    workups = await with_truth(settings, environment, policy, groups)
    seeds = [derive_seed(SEED, "replicate", r) for r in range(plan.replicates)]
    replicates = []
    for seed in tqdm(seeds, desc="estimates", unit="replicate"):
        remembering = Remembering(policy)
        replicates.append(await Estimators(settings, environment, remembering, workups, seed).replicate())
        gc.collect()
    return {
        "decisions": len(workups.decisions),
        "diagnoses": int(workups.ends.sum()),
        "states": len({groups[g][i].states[t].key for g, i, t in workups.decisions}),
        "truth_rms": float((workups.advantage**2).mean() ** 0.5),
        "truth_error_mean": float(workups.error.mean()),
        "truth_error_max": float(workups.error.max()),
        "known_signs": int((np.abs(workups.advantage) > 2 * workups.error).sum()),
        "cases": len(cases),
        "truth": plan.truth,
        "replicates": plan.replicates,
        "seed": SEED,
        "replicate_seeds": seeds,
        "rows": list(_rows(settings, replicates, workups)),
    }


def _rows(settings: Settings, replicates: Sequence[Replicate], workups: Workups) -> Iterator[dict[str, Any]]:
    """Yield one row per estimator, key and value; the default occurs once in each sweep."""
    points: list[tuple[str, str, int | str, Credit | int]]
    points = [("cdpr", key, value, credit) for (key, value), credit in sweeps(settings.credit).items()]
    points += [("vineppo", "continuations", count, count) for count in VINE_CONTINUATIONS]
    points += [("cdpr_scored", "horizon, continuations", value, credit) for value, credit in scored(settings).items()]
    for estimator, key, value, setting in points:
        values, tokens = zip(*(replicate[setting] for replicate in replicates), strict=True)
        default = estimator == "cdpr" and value == attrgetter(key)(settings.credit)
        row = {"estimator": estimator, "sweep": key, "value": value, "default": default}
        per_decision = sum(tokens) / len(replicates) / len(workups.decisions)
        yield row | measures(np.array(values), workups) | {"tokens_per_decision": per_decision}


def measures(estimates: np.ndarray, workups: Workups) -> dict[str, float]:
    """Measures of ``estimates`` (replicates x decisions), in units of utility except for shares.

    Replicates share their workups: the randomness of the workups is part of the bias of a decision and of ``rmse``, not
    of ``variance``. ``bias`` is a mean over decisions, in which errors of opposite sign cancel, ``bias_error`` its
    standard error over cases; ``bias_rms`` the root mean square of the bias of single decisions, without the noise of
    estimates and truth.
    """
    deviation = estimates - workups.advantage
    bias, square = deviation.mean(axis=0), float((deviation**2).mean())
    variance = float(estimates.var(axis=0, ddof=1).mean())
    known = np.abs(workups.advantage) > 2 * workups.error
    return {
        "bias": float(bias.mean()),
        "bias_error": clustered_error(bias, [g for g, _, _ in workups.decisions]),
        "bias_examinations": _mean(bias[~workups.ends]),
        "bias_diagnoses": _mean(bias[workups.ends]),
        "bias_rms": max(0.0, square - variance - float((workups.error**2).mean())) ** 0.5,
        "variance": variance,
        "rmse": square**0.5,
        "rank_correlation": float(np.mean([rank_correlation(row, workups.advantage) for row in estimates])),
        "right_signs": _mean((np.sign(estimates) == np.sign(workups.advantage))[:, known]),
    }


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Compute Spearman's correlation; 0 where one side is constant."""
    from scipy.stats import rankdata

    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def clustered_error(values: np.ndarray, clusters: Sequence[int]) -> float:
    """Compute the standard error of a mean whose values depend on each other within clusters; 0 for one cluster."""
    sums = np.bincount(clusters, weights=values - values.mean())
    count = len(set(clusters))
    return float(np.sqrt((sums**2).sum() * count / (count - 1)) / len(values)) if count > 1 else 0.0


def _mean(values: np.ndarray) -> float:
    """Average values; 0 without any."""
    return float(values.mean()) if values.size else 0.0


# Workups and their true advantages


@dataclass(frozen=True)
class Workups:
    """Groups of episodes, one group a case. ``decisions`` (group, trajectory, decision) lists their decisions that were
    a choice; of each, ``advantage`` is A(s, a) = Q(s, a) - V(s) under the policy in units of utility, ``error`` its
    standard error, and ``ends`` whether it is a diagnosis."""

    groups: Sequence[Group]
    decisions: Sequence[tuple[int, int, int]]
    advantage: np.ndarray
    error: np.ndarray
    ends: np.ndarray

    def of(self, values: Sequence[Sequence[Sequence[float | None]]]) -> np.ndarray:
        """Return one number per decision from lists by group, trajectory and decision; None counts as 0, as in
        training."""
        return np.array([values[g][i][t] or 0.0 for g, i, t in self.decisions])


def utility_of(settings: Settings) -> ReturnOf:
    """Return the utility U of a verdict and an effort under these settings (equation "utility")."""
    return partial(utility, weights=settings.utility, tests=settings.environment.tests)


async def sample_groups(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord]
) -> list[Group]:
    """Sample ``training.group_size`` episodes of each case."""

    def episode(case: CaseRecord, i: int):
        return run_episode(environment, agent, case, derive_seed(SEED, "workup", case.note_id, i))

    size = range(settings.training.group_size)
    return [await asyncio.gather(*(episode(case, i) for i in size)) for case in cases]


async def with_truth(
    settings: Settings, environment: DiagnosticEnvironment, policy: Policy, groups: Sequence[Group]
) -> Workups:
    """Add true advantages to groups, from ``analysis.truth`` whole continuations of every state."""
    rows = []
    for g, group in enumerate(tqdm(groups, desc="true advantages", unit="case", mininterval=5)):
        draws = Draws(environment, policy, derive_seed(SEED, "truth"), ("truth",))
        advantages = await true_advantages(draws, group, settings.analysis.truth, utility_of(settings))
        for i, (trajectory, (means, errors)) in enumerate(zip(group, advantages, strict=True)):
            for t in range(len(trajectory.steps) - trajectory.forced):
                ends = trajectory.steps[t].observation.kind == "end"
                rows.append(((g, i, t), means[t], errors[t], ends))
    decisions, *columns = zip(*rows, strict=True)
    return Workups(groups, decisions, *map(np.array, columns))


async def true_advantages(
    draws: Draws, group: Group, count: int, return_of: ReturnOf
) -> list[tuple[np.ndarray, np.ndarray]]:
    """A(s, a) and its standard error for each decision of each trajectory, from ``count`` continuations a state.

    V(s) is the mean over continuations of s, Q(s, a) that over continuations of the next state after the step's own
    effort; a diagnosis is judged. States are the same only if all words before them agree. Continuations k of a state
    and of the next are dependent, different k are not: so the error is that of the mean of their differences.
    """
    states = {state.words: state for trajectory in group for state in trajectory.states}
    calls = (whole_returns(draws, state, range(count), return_of) for state in states.values())
    returns = dict(zip(states, await asyncio.gather(*calls), strict=True))
    advantages = []
    for trajectory in group:
        by_state = [returns[state.words] for state in trajectory.states]
        shared = sorted(set.intersection(*map(set, by_state)))
        each = np.array([step_advantages(trajectory, [values[k] for values in by_state], return_of) for k in shared])
        advantages.append((each.mean(axis=0), each.std(axis=0, ddof=1) / len(shared) ** 0.5))
    return advantages


# Estimates


Estimate = tuple[np.ndarray, int]
"""One number per decision, and the tokens generated for all of them."""

Replicate = dict[Credit | int, Estimate]
"""Estimates of CDPR by its settings and of VinePPO by its number of continuations."""


def every_state(credit: Credit) -> Credit:
    """Change the settings to an estimate for every decision and no cache between batches."""
    cache = credit.cache.model_copy(update={"scope": "batch"})
    return credit.model_copy(update={"select_all": True, "max_states": None, "cache": cache})


def sweeps(credit: Credit) -> dict[tuple[str, int | str], Credit]:
    """Return settings by (key, value): one key at a time differs from ``credit``, whose own value is among those
    swept."""
    base, settings = every_state(credit), {}
    for key, values in SWEEPS.items():
        section, _, last = key.rpartition(".")
        for value in sorted({*values, attrgetter(key)(base)}):
            update: dict[str, object] = {last: value}
            if section:
                update = {section: getattr(base, section).model_copy(update=update)}
            settings[key, value] = base.model_copy(update=update)
    return settings


def scored(settings: Settings) -> dict[str, Credit]:
    """Return the settings of :data:`SCORED`, by H and K as text."""
    base = every_state(settings.credit).model_copy(update={"verdicts": "scored"})
    return {f"{h}, {k}": base.model_copy(update={"horizon": h, "continuations": k}) for h, k in SCORED}


class Remembering(Policy):
    """A policy that generates each reply once. Reply k of a seed is always the same, so settings that draw the same
    replies share them."""

    def __init__(self, policy: Policy):
        self.policy, self.known = policy, dict[tuple, dict[int, Turn]]()

    def must_diagnose(self, state: State) -> bool:
        return self.policy.must_diagnose(state)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        return (await self.sample(state, (0,), forced, seed))[0]

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        known = self.known.setdefault((state.words, forced, seed), {})
        missing = [k for k in numbers if k not in known]
        if missing:
            known.update(zip(missing, await self.policy.sample(state, missing, forced, seed), strict=True))
        return [known[k] for k in numbers]

    async def score_diagnoses(self, state: State, names: Sequence[str], forced: bool) -> list[Turn]:
        return await self.policy.score_diagnoses(state, names, forced)

    def name_start(self, turn: Turn) -> int:
        return self.policy.name_start(turn)


@dataclass(frozen=True)
class Estimators:
    """Estimates for the decisions of ``workups``, all with the random numbers of ``seed``."""

    settings: Settings
    environment: DiagnosticEnvironment
    policy: Policy
    workups: Workups
    seed: int

    async def replicate(self) -> Replicate:
        """Compute every estimate once."""
        settings = dict.fromkeys([*sweeps(self.settings.credit).values(), *scored(self.settings).values()])
        estimates: Replicate = {credit: await self.cdpr(credit) for credit in settings}
        return estimates | {count: await self.vineppo(count) for count in VINE_CONTINUATIONS}

    async def cdpr(self, credit: Credit) -> Estimate:
        """Estimate R_proc, the policy both acting and continuing."""
        process = ProcessReward(self.environment, self.policy, self.policy, credit, self.settings.utility, self.seed)
        reports = await process.score(self.workups.groups, 0)
        tokens = sum(report.probe_tokens + report.continuation_tokens for report in reports)
        return self.workups.of([report.process for report in reports]), tokens

    async def vineppo(self, count: int) -> Estimate:
        """Estimate r + V(s') - V(s) with ``count`` whole continuations a state."""
        return_of, groups = utility_of(self.settings), self.workups.groups
        draws = [Draws(self.environment, self.policy, self.seed, ("actor", 0)) for _ in groups]
        pairs = zip(draws, groups, strict=True)
        values = await asyncio.gather(*(state_values(d, group, range(count), return_of) for d, group in pairs))
        advantages = [group_advantages(*pair, return_of) for pair in zip(groups, values, strict=True)]
        return self.workups.of(advantages), sum(d.tokens for d in draws)
