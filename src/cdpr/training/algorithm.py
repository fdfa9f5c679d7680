"""What every algorithm is: a rule that turns finished groups of trajectories into advantages, and what it declares.

An algorithm is a subclass of :class:`Algorithm` in a file of its own; ``training.algorithm`` names it. Planning imports
it too, so it imports torch inside functions only.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..environment import DiagnosticEnvironment, Trajectory, Turn
from ..settings import Settings
from .advantage import group_relative

if TYPE_CHECKING:  # who assigns no credit does not depend on it
    from ..credit.report import CreditRow
    from ..credit.rollouts import Policy

Group = Sequence[Trajectory]
NORMALISATION = ("training.normalise", "training.normalise_floor")
"""The settings that :meth:`Algorithm.normalised` reads."""


@dataclass(frozen=True)
class Context:
    """Everything an algorithm may use. ``frozen`` loads the initial policy on first use; ``snapshot`` copies the
    current one, and again whenever it is called."""

    settings: Settings
    environment: DiagnosticEnvironment
    policy: Policy
    frozen: Callable[[], Policy]
    snapshot: Callable[[], Policy]
    seed: int


@dataclass(frozen=True)
class CreditWork:
    """Replies of one kind that credit needs in a step, and how many of them end a workup; ``frozen``: they come from
    the initial policy."""

    kind: str
    replies: float
    diagnoses: float = 0.0
    frozen: bool = False


@dataclass(frozen=True)
class Alternative:
    """A reply that was evaluated but not taken, as training data: drawn from the policy at decision ``t`` of trajectory
    ``i`` of its group; ``weight`` counts like that many tokens-of-a-trajectory in the loss."""

    i: int
    t: int
    turn: Turn
    advantage: float
    weight: float


@dataclass(kw_only=True)
class GroupAdvantages:
    """What one group teaches.

    ``decisions[i][t]``: advantage of decision t of trajectory i, for each of its tokens; ``weights``, of the same
    shape, where decisions count differently in the loss. ``alternatives``: further training data. ``scores``: one for
    each trajectory, where whole trajectories are compared. ``counts`` are logged, summed over the batch; ``record`` is
    kept in the credit artifact.
    """

    decisions: list[list[float]]
    weights: list[list[float]] | None = None
    alternatives: Sequence[Alternative] = ()
    scores: Sequence[float] | None = None
    counts: dict[str, float] = field(default_factory=dict)
    record: CreditRow | None = None


class Algorithm(ABC):
    """Base class of all algorithms; one object serves a whole run.

    ``reads`` names the settings that it reads beside those that every training reads; setting another one for a variant
    is an error. ``extra_samples``: whether it trains on :class:`Alternative` replies.
    """

    reads: ClassVar[tuple[str, ...]] = NORMALISATION
    extra_samples: ClassVar[bool] = False

    def __init__(self, context: Context):
        self.context, self.settings = context, context.settings

    @abstractmethod
    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Advantages of the trajectories of one case. Groups of a batch are scored at the same time, in any order."""

    def finish(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Do what needs the whole batch, in the order of the schedule: change its advantages in place; returns metrics
        to be logged."""
        metrics: dict[str, float] = {}
        if scores := [group.scores for group in batch if group.scores is not None]:
            metrics["train/equal_groups"] = equal_share(scores)
        for name in dict.fromkeys(name for group in batch for name in group.counts):
            metrics[name] = sum(group.counts.get(name, 0) for group in batch)
        return metrics

    def state_dict(self) -> Any:
        """What must survive an interruption (picklable)."""
        return None

    def load_state_dict(self, state: Any) -> None:
        """The inverse of :meth:`state_dict`."""
        return None

    @classmethod
    def canonical(cls, settings: Settings) -> Settings:
        """Settings that train the same thing, where these make the algorithm another one."""
        return settings

    @classmethod
    def asks(cls, settings: Settings) -> Literal["frozen", "snapshot"] | None:
        """The policy that it asks beside the trained one: the initial one, copies of the trained one, or none."""
        return None

    @classmethod
    def credit_work(cls, settings: Settings, turns: float, selected: float) -> list[CreditWork]:
        """What a step generates beside its rollouts, nothing shared: for workups of ``turns`` decisions, of whose
        states the share ``selected`` is evaluated where the algorithm selects."""
        return []

    def normalised(self, scores: Sequence[float]) -> list[float]:
        """Group-relative advantages of the trajectories' scores, under ``training.normalise``."""
        import torch

        plan = self.settings.training
        # Twice: torch sums a single row by another algorithm than several, with other last digits.
        rows = torch.tensor([scores, scores], dtype=torch.float64)
        return group_relative(rows, plan.normalise, plan.normalise_floor)[0].tolist()


def whole_continuations(settings: Settings, turns: float) -> CreditWork:
    """The work of ``comparators.continuations`` whole continuations of every state of a batch."""
    plan = settings.training
    starts = plan.prompts_per_batch * plan.group_size * turns * settings.comparators.continuations
    return CreditWork("continuations", starts * (turns + 1) / 2, starts)


async def score_groups(algorithm: Algorithm, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
    """Score the groups at the same time. Raises FloatingPointError naming the case where an advantage is no number."""

    async def score(group: Group) -> GroupAdvantages:
        scored = await algorithm.score_group(group, iteration)
        check_finite(scored, group)
        return scored

    return list(await asyncio.gather(*map(score, groups)))


def check_finite(scored: GroupAdvantages, group: Group) -> None:
    """Raises FloatingPointError naming the case where an advantage is not a number."""
    for row in [*scored.decisions, [other.advantage for other in scored.alternatives]]:
        if not all(map(math.isfinite, row)):
            case = group[0].case
            raise FloatingPointError(f"{case.called}: the advantages {row} are not finite; the step was stopped")


def credit_line(step: int, batch: Sequence[GroupAdvantages]) -> dict[str, Any] | None:
    """The line of the credit artifact for an iteration, as :class:`~cdpr.credit.report.CreditStep` reads it; None where
    the algorithm keeps no records."""
    rows = [asdict(scored.record) for scored in batch if scored.record]
    return {"step": step, "groups": rows} if rows else None


def every_decision(advantages: Sequence[float], group: Group) -> list[list[float]]:
    """One advantage for all decisions of a trajectory, as in GRPO."""
    return [[a] * len(trajectory.steps) for a, trajectory in zip(advantages, group, strict=True)]


def equal_share(scores: Sequence[Sequence[float]]) -> float:
    """Share of groups whose scores are all equal: their advantages are zero and teach nothing."""
    return sum(len(set(row)) == 1 for row in scores) / max(1, len(scores))
