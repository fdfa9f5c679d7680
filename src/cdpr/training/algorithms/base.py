"""What the trainer gives an algorithm and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...agents.policy import PolicyAgent
from ...environment import DiagnosticEnvironment, Trajectory
from ...settings import Settings


@dataclass(frozen=True)
class Context:
    """Everything an algorithm may use. ``frozen`` loads the frozen initial policy on first use."""

    settings: Settings
    environment: DiagnosticEnvironment
    policy: PolicyAgent
    frozen: Callable[[], PolicyAgent]
    seed: int


@dataclass
class Scores:
    """``trajectory[g][i]``: the score that is normalised within group g. ``step[g][i][t]``: what is added
    to the advantage of one decision afterwards (None: nothing). ``metrics``: logged as they are."""

    trajectory: list[list[float]]
    step: list[list[list[float]]] | None = None
    metrics: dict[str, float] = field(default_factory=dict)


class Algorithm(Protocol):
    """Turns finished groups into scores."""

    async def score(self, groups: Sequence[Sequence[Trajectory]], iteration: int) -> Scores:
        """Scores of the groups of one batch."""
        ...

    def state(self) -> Any:
        """What must survive an interruption (picklable)."""
        ...

    def restore(self, state: Any) -> None:
        """The inverse of :meth:`state`."""
        ...


class Stateless:
    """For algorithms that remember nothing between iterations."""

    def state(self) -> None:
        """Nothing."""

    def restore(self, state: None) -> None:
        """Nothing."""
