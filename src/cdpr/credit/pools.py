"""Continuations pooled by the state that they continue (paper, sections "Rollout Cache" and "Short-horizon
Continuation")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field

from ..environment.state import State, Trajectory
from ..settings.credit import Credit
from .rollouts import Continuation, Draws
from .tree import Node, identity

_CUT = 1 << 20  # number from which on replies end a suffix that was cut; no continuation has one of them


@dataclass
class Entry:
    """Continuations of one state and how many numbers have been drawn for them, failures included."""

    drawn: int = 0
    continuations: list[Continuation] = field(default_factory=list)


@dataclass
class Pool:
    """Continuations of one child state, for every action that leads to it: the suffixes (trajectory, decision) of the
    group, those ``known`` from the cache, and the ``numbers`` of those still to be drawn."""

    child: State
    suffixes: list[tuple[int, int]]
    known: list[Continuation]
    numbers: range
    own: list[Continuation] = field(default_factory=list)
    fresh: list[Continuation] = field(default_factory=list)

    @property
    def continuations(self) -> list[Continuation]:
        return self.own + self.known + self.fresh

    @property
    def failed(self) -> int:
        """How many did not come back."""
        return len(self.suffixes) + len(self.numbers) - len(self.own) - len(self.fresh)


@dataclass
class Pools:
    """The pools of one group. ``cache`` holds entries by the state that they continue; ``rollouts`` gives the draws of
    the continuation policy for a pool; ``horizon`` is the most decisions before a diagnosis is forced."""

    group: Sequence[Trajectory]
    nodes: dict[tuple, Node]
    credit: Credit
    cache: MutableMapping[tuple, Entry]
    rollouts: Callable[[tuple], Draws]
    horizon: int
    pools: dict[tuple, Pool] = field(default_factory=dict)

    def of(self, node: tuple, action: tuple, child: State) -> Pool:
        """The pool of the state that an action of a node leads to."""
        if self.credit.cache.scope == "off":
            key = (node, action)
        else:
            key = identity(child, self.credit.merge, self.nodes[node].visits[0][0])
        if key not in self.pools:
            self.pools[key] = self._open(key, child)
        return self.pools[key]

    def _open(self, key: tuple, child: State) -> Pool:
        """K continuations: the suffixes of the group and those of the cache first, fresh ones for the rest."""
        rule, k = self.credit.cache, self.credit.continuations
        if rule.scope == "off":
            return Pool(child, [], [], range(k))
        entry = self.cache.get(key, Entry())
        suffixes = self.nodes[key].visits if rule.reuse_group and key in self.nodes else []
        if rule.long_suffixes == "drop":
            suffixes = [visit for visit in suffixes if self._ends_within(*visit)]
        known = len(entry.continuations)
        if rule.fill == "strict" and known + len(suffixes) < k:
            return Pool(child, [], [], range(entry.drawn, entry.drawn + k))
        missing = k - known - len(suffixes)
        if missing <= 0:
            missing = min(rule.grow, rule.per_state - known) if known else 0
        return Pool(child, suffixes, list(entry.continuations), range(entry.drawn, entry.drawn + max(0, missing)))

    def _ends_within(self, i: int, t: int) -> bool:
        """Whether the suffix of trajectory i from decision t is as short as a continuation."""
        trajectory = self.group[i]
        return len(trajectory.steps) - t - trajectory.forced <= self.horizon

    async def fill(self) -> None:
        """Draw everything that is missing, at once."""
        await asyncio.gather(*(self._fill(key, pool) for key, pool in self.pools.items()))

    async def _fill(self, key: tuple, pool: Pool) -> None:
        rollouts = self.rollouts(key)
        for i, t in pool.suffixes:
            if (suffix := await self._suffix(rollouts, i, t)) is not None:
                pool.own.append(suffix)
        if pool.numbers:
            found = await rollouts.follow(pool.child, pool.numbers, self.horizon)
            pool.fresh = [found[k] for k in pool.numbers if k in found]

    async def _suffix(self, rollouts: Draws, i: int, t: int) -> Continuation | None:
        """The suffix of trajectory i from decision t; a longer one than H ends there in a forced diagnosis."""
        trajectory = self.group[i]
        if self.credit.cache.long_suffixes == "keep" or self._ends_within(i, t):
            return Continuation(trajectory.correct, trajectory.effort(t))
        cut = trajectory.states[t + self.horizon]
        end = (await rollouts.follow(cut, (_CUT + i,), 0)).get(_CUT + i)
        return end and Continuation(end.correct, trajectory.effort(t, t + self.horizon) + end.effort)

    def store(self) -> None:
        """Keep what was drawn in the cache, in the order in which the pools were opened."""
        if self.credit.cache.scope == "off":
            return
        for key, pool in self.pools.items():
            if pool.known or pool.numbers:
                self.cache[key] = Entry(pool.numbers.stop, pool.known + pool.fresh)
