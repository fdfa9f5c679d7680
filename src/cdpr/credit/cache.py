"""The rollout cache: continuations pooled by the state that they continue."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from .rollouts import Continuation


@dataclass
class Entry:
    """Continuations of one state and how many numbers have been drawn for them, failures included."""

    drawn: int = 0
    continuations: list[Continuation] = field(default_factory=list)


@dataclass
class RolloutCache:
    """Least recently used first out; ``capacity`` counts states."""

    capacity: int
    entries: OrderedDict[tuple, Entry] = field(default_factory=OrderedDict)

    def get(self, key: tuple) -> Entry:
        """What is known of a state. Reading changes nothing, so that it may happen in any order."""
        return self.entries.get(key) or Entry()

    def put(self, key: tuple, drawn: int, continuations: list[Continuation]) -> None:
        """What is now known of a state, of which ``drawn`` numbers have been drawn; it is the latest used."""
        self.entries[key] = Entry(drawn, continuations)
        self.entries.move_to_end(key)
        while len(self.entries) > self.capacity:
            self.entries.popitem(last=False)

    def clear(self) -> None:
        """Forget everything: the policy that continued has changed."""
        self.entries.clear()
