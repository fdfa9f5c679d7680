"""Groups of workups and the true advantage of every decision in them, by brute force."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from tqdm import tqdm

from ..cases import CaseRecord
from ..credit.rollouts import Draws
from ..credit.vine import step_advantages, whole_returns
from ..environment import Agent, DiagnosticEnvironment, Policy, Trajectory, run_episode
from ..environment.utility import Worth, utility
from ..seeding import derive_seed
from ..settings import Settings

Group = Sequence[Trajectory]


@dataclass(frozen=True)
class Workups:
    """Groups of workups, one group a case. ``decisions`` (group, trajectory, decision) lists their decisions that
    were a choice; of each, ``advantage`` is A(s, a) = Q(s, a) - V(s) under the policy in units of utility, ``error``
    its standard error, and ``ends`` whether it is a diagnosis."""

    groups: Sequence[Group]
    decisions: Sequence[tuple[int, int, int]]
    advantage: np.ndarray
    error: np.ndarray
    ends: np.ndarray

    def of(self, values: Sequence[Sequence[Sequence[float | None]]]) -> np.ndarray:
        """One number per decision from lists by group, trajectory and decision; None counts as 0, as in training."""
        return np.array([values[g][i][t] or 0.0 for g, i, t in self.decisions])


def worth_of(settings: Settings) -> Worth:
    """U, equation "utility"."""
    return partial(utility, weights=settings.utility, tests=settings.environment.tests)


async def sample_groups(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord]
) -> list[Group]:
    """``training.group_size`` workups of each case."""

    def episode(case: CaseRecord, i: int):
        return run_episode(environment, agent, case, derive_seed(settings.analysis.seed, "workup", case.note_id, i))

    size = range(settings.training.group_size)
    return [await asyncio.gather(*(episode(case, i) for i in size)) for case in cases]


async def with_truth(
    settings: Settings, environment: DiagnosticEnvironment, policy: Policy, groups: Sequence[Group]
) -> Workups:
    """Groups with true advantages from ``analysis.truth`` whole continuations of every state."""
    rows = []
    for g, group in enumerate(tqdm(groups, desc="true advantages", unit="case", mininterval=5)):
        draws = Draws(environment, policy, derive_seed(settings.analysis.seed, "truth"), ("truth",))
        found = await true_advantages(draws, group, settings.analysis.truth, worth_of(settings))
        for i, (trajectory, (means, errors)) in enumerate(zip(group, found, strict=True)):
            for t in range(len(trajectory.steps) - trajectory.forced):
                ends = trajectory.steps[t].observation.kind == "end"
                rows.append(((g, i, t), means[t], errors[t], ends))
    decisions, *columns = zip(*rows, strict=True)
    return Workups(groups, decisions, *map(np.array, columns))


async def true_advantages(draws: Draws, group: Group, count: int, worth: Worth) -> list[tuple[np.ndarray, np.ndarray]]:
    """A(s, a) and its standard error for each decision of each trajectory, from ``count`` continuations a state.

    V(s) is the mean over continuations of s, Q(s, a) that over continuations of the next state after the step's own
    effort; a diagnosis is judged. States count as one only if the very words that led there agree. Continuation k of a
    state and of the next are dependent, different k are not: so the error is that of the mean of their differences.
    """
    states = {state.words: state for trajectory in group for state in trajectory.states}
    found = await asyncio.gather(*(whole_returns(draws, state, range(count), worth) for state in states.values()))
    returns = dict(zip(states, found, strict=True))
    measured = []
    for trajectory in group:
        by_state = [returns[state.words] for state in trajectory.states]
        shared = sorted(set.intersection(*map(set, by_state)))
        each = np.array([step_advantages(trajectory, [values[k] for values in by_state], worth) for k in shared])
        measured.append((each.mean(axis=0), each.std(axis=0, ddof=1) / len(shared) ** 0.5))
    return measured
