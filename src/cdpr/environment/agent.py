"""Who acts, as the decision process sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from .state import State, Turn


class Agent(Protocol):
    """Anything that can work up a case. ``act`` depends on its arguments alone.

    ``unlimited_turns``: neither turn cap nor budget forces a diagnosis. ``whole_record``: it sees all results at once,
    so it has one turn, and a workup costs what every examination of the record does. ``one_decoding``: replies are not
    decoded from a language model, so there is one evaluation, called greedy. ``reads``: settings of its own (dotted
    keys) that decide its replies.
    """

    unlimited_turns: ClassVar[bool] = False
    whole_record: ClassVar[bool] = False
    one_decoding: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()

    def must_diagnose(self, state: State) -> bool:
        """Whether the agent has room for only one more reply, which then has to be a diagnosis."""
        return False

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """The next reply; with ``forced`` it has to be a diagnosis."""
        ...

    def refresh(self) -> None:
        """Forget what was kept to be quick: what comes after shall not depend on it, to the last bit."""
        return None


class Policy(Agent, Protocol):
    """An agent that can be asked for several replies at a state."""

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        """Independent replies by number; reply k of a seed is always the same."""
        ...
