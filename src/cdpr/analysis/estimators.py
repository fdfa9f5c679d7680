"""Estimates of the advantage by the code that training runs, under one setting after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from ..credit.process_reward import ProcessReward
from ..credit.rollouts import Draws, Policy
from ..credit.vine import group_advantages, state_values
from ..environment import DiagnosticEnvironment, State, Turn
from ..settings import Settings
from ..settings.credit import Credit
from .workups import Workups, worth_of

SWEEPS = {
    "samples": (2, 4, 8, 16),
    "continuations": (1, 2, 4, 8, 16),
    "horizon": (1, 2, 3, 5, 8),
    "candidates": (2, 3, 4, 6),
    "baseline": ("uniform", "policy_weighted", "leave_one_out"),
    "cache.reuse_group": (False, True),
}
VINE_CONTINUATIONS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Estimate:
    """One number per decision, and the tokens generated for all of them."""

    values: np.ndarray
    tokens: int


Replicate = dict[Credit | int, Estimate]
"""Estimates of CDPR by its settings and of VinePPO by its number of continuations."""


def every_state(credit: Credit) -> Credit:
    """The settings with an estimate for every decision and nothing kept between batches."""
    cache = credit.cache.model_copy(update={"scope": "batch"})
    return credit.model_copy(update={"select_all": True, "max_states": None, "cache": cache})


def sweeps(credit: Credit) -> dict[tuple[str, int | str], Credit]:
    """Settings by (key, value): one key at a time differs from ``credit``, whose own value is among those swept."""
    base = every_state(credit)
    return {
        (key, value): _changed(base, key, value)
        for key, values in SWEEPS.items()
        for value in sorted({*values, attrgetter(key)(base)})
    }


def _changed(credit: Credit, key: str, value: int | str) -> Credit:
    """With another value of a key, which may lie in a section."""
    section, _, last = key.rpartition(".")
    if not section:
        return credit.model_copy(update={key: value})
    return credit.model_copy(update={section: getattr(credit, section).model_copy(update={last: value})})


class Remembering(Policy):
    """A policy that gives each reply from memory after the first time. Reply k of a seed is always the same, so
    settings that draw the same replies need not generate them twice."""

    def __init__(self, policy: Policy):
        self.policy = policy
        self.known: dict[tuple, dict[int, Turn]] = {}

    def must_diagnose(self, state: State) -> bool:
        return self.policy.must_diagnose(state)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        return (await self.sample(state, (0,), forced, seed))[0]

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        """Replies by number."""
        known = self.known.setdefault((state.words, forced, seed), {})
        missing = [k for k in numbers if k not in known]
        if missing:
            known.update(zip(missing, await self.policy.sample(state, missing, forced, seed), strict=True))
        return [known[k] for k in numbers]


@dataclass(frozen=True)
class Estimators:
    """Estimates for the decisions of ``workups``, all with the random numbers of ``seed``."""

    settings: Settings
    environment: DiagnosticEnvironment
    policy: Policy
    workups: Workups
    seed: int

    async def replicate(self) -> Replicate:
        """Every estimate once, from a policy that remembers."""
        remembering = replace(self, policy=Remembering(self.policy))
        found: Replicate = {}
        for credit in dict.fromkeys(sweeps(self.settings.credit).values()):
            found[credit] = await remembering.cdpr(credit)
        for count in VINE_CONTINUATIONS:
            found[count] = await remembering.vineppo(count)
        return found

    async def cdpr(self, credit: Credit) -> Estimate:
        """R_proc, the policy both acting and continuing."""
        process = ProcessReward(self.environment, self.policy, self.policy, credit, self.settings.utility, self.seed)
        reports = await process.score(self.workups.groups, 0)
        tokens = sum(report.probe_tokens + report.continuation_tokens for report in reports)
        return Estimate(self.workups.of([report.process for report in reports]), tokens)

    async def vineppo(self, count: int) -> Estimate:
        """r + V(s') - V(s) with ``count`` whole continuations a state."""
        worth, groups = worth_of(self.settings), self.workups.groups
        draws = [Draws(self.environment, self.policy, self.seed, ("actor", 0)) for _ in groups]
        pairs = zip(draws, groups, strict=True)
        values = await asyncio.gather(*(state_values(d, group, range(count), worth) for d, group in pairs))
        advantages = [group_advantages(*pair, worth) for pair in zip(groups, values, strict=True)]
        return Estimate(self.workups.of(advantages), sum(d.tokens for d in draws))
