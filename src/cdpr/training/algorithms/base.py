"""What the trainer gives an algorithm and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from ...agents.policy import PolicyAgent
from ...environment import DiagnosticEnvironment, Trajectory, Turn
from ...settings import Settings
from ..advantage import group_relative

Groups = Sequence[Sequence[Trajectory]]


@dataclass(frozen=True)
class Context:
    """Everything an algorithm may use. ``frozen`` loads the initial policy on first use; ``snapshot`` copies the
    current one, and again whenever it is called."""

    settings: Settings
    environment: DiagnosticEnvironment
    policy: PolicyAgent
    frozen: Callable[[], PolicyAgent]
    snapshot: Callable[[], PolicyAgent]
    seed: int


@dataclass(frozen=True)
class Alternative:
    """A reply that was evaluated but not taken, as training data: drawn from the policy at decision ``t`` of trajectory
    ``i`` of its group; ``weight`` counts like that many tokens-of-a-trajectory in the loss."""

    i: int
    t: int
    turn: Turn
    advantage: float
    weight: float


@dataclass
class Advantages:
    """``decisions[g][i][t]``: advantage of decision t of trajectory i of group g, for each of its tokens; ``weights``,
    of the same shape, where decisions count differently in the loss. ``alternatives[g]``: further training data.
    ``metrics`` are logged; ``records`` are lines of the credit artifact."""

    decisions: list[list[list[float]]]
    weights: list[list[list[float]]] | None = None
    alternatives: list[list[Alternative]] | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    records: list[dict[str, Any]] = field(default_factory=list)


class Algorithm(Protocol):
    """Turns finished groups into advantages."""

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """Advantages of the groups of one batch."""
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


def normalised(scores: Sequence[Sequence[float]], settings: Settings) -> list[list[float]]:
    """Group-relative advantages of trajectory scores, under ``training.normalise``."""
    plan = settings.training
    return group_relative(torch.tensor(scores, dtype=torch.float64), plan.normalise, plan.normalise_floor).tolist()


def every_decision(advantages: Sequence[Sequence[float]], groups: Groups) -> list[list[list[float]]]:
    """One advantage for all decisions of a trajectory, as in GRPO."""
    return [
        [[a] * len(trajectory.steps) for a, trajectory in zip(row, group, strict=True)]
        for row, group in zip(advantages, groups, strict=True)
    ]


def equal_groups(scores: Sequence[Sequence[float]]) -> dict[str, float]:
    """Share of groups whose scores are all equal: their advantages are zero and teach nothing."""
    return {"train/equal_groups": sum(len(set(row)) == 1 for row in scores) / max(1, len(scores))}
