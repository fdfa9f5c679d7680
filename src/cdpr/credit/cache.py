"""The rollout cache: continuations pooled by the state that they continue."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from ..environment.state import Effort, Trajectory

StateKey = tuple


@dataclass(frozen=True)
class Continuation:
    """What followed a state until the diagnosis: verdict and effort. Utilities are computed when it is
    read, so that changing a lambda ages nothing."""

    correct: bool
    effort: Effort

    @classmethod
    def of(cls, trajectory: Trajectory, start: int) -> Continuation:
        """The part of a trajectory from decision ``start`` on."""
        return cls(trajectory.correct, trajectory.effort(start))


@dataclass
class RolloutCache:
    """Least recently used first out; ``capacity`` counts states."""

    capacity: int
    entries: OrderedDict[StateKey, list[Continuation]] = field(default_factory=OrderedDict)

    def get(self, key: StateKey) -> list[Continuation]:
        """Continuations known from this state; the list is the cache's own."""
        if key in self.entries:
            self.entries.move_to_end(key)
            return self.entries[key]
        return []

    def add(self, key: StateKey, continuations: list[Continuation]) -> None:
        """Add continuations of a state."""
        if not continuations:
            return
        self.entries.setdefault(key, []).extend(continuations)
        self.entries.move_to_end(key)
        while len(self.entries) > self.capacity:
            self.entries.popitem(last=False)
