"""The base class of training algorithms: rules that turn groups of trajectories into advantages.

An algorithm is a subclass of :class:`Algorithm` in a file of its own; ``training.algorithm`` names it. Planning imports
algorithms too, so they import torch inside functions only.
"""

import asyncio
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, ClassVar

from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, Policy, Trajectory, Turn
from ..environment.utility import ReturnOf, weighted_utility
from ..settings import Settings
from ..settings.algorithms import algorithm_class
from ..settings.section import Section
from ..settings.variants import seen_by_algorithm

if TYPE_CHECKING:  # so that the run key of an algorithm without credit does not depend on that room
    import torch

    from ..credit.scores import CreditRow

Group = Sequence[Trajectory]
"""The ``training.group_size`` trajectories of one case."""
PerToken = float | tuple[float, ...]
"""One value for each token of a reply, or one number for all tokens."""
EPSILON = 1e-6


def group_relative(scores: "torch.Tensor", normalise: str = "group_std") -> "torch.Tensor":
    """Compute the group-relative advantages of trajectories, A = (G - mean_G) / (sigma_G + 1e-6) within each group
    (paper, section "Group-relative Advantage").

    ``scores`` and the result have the shape (groups, n). sigma_G is the sample standard deviation, as in verl;
    ``normalise`` ``none`` does not divide by it. A group of one keeps its score (mean 0, deviation 1), as in verl.
    Equal scores give exactly 0, in spite of rounding."""
    if scores.shape[1] == 1:
        return scores.clone() if normalise == "none" else scores / (1 + EPSILON)
    equal = (scores == scores[:, :1]).all(dim=1, keepdim=True)
    centred = (scores - scores.mean(dim=1, keepdim=True)).masked_fill(equal, 0.0)
    return centred if normalise == "none" else centred / (scores.std(dim=1, keepdim=True) + EPSILON)


@dataclass(frozen=True)
class Context:
    """Everything that an algorithm may use. ``policy`` is the policy in training, ``frozen()`` loads the initial
    policy, ``seed`` is the seed of the run. ``settings`` has only the settings that the algorithm ``reads``. With the
    engine ``torch`` also the training ``cases``, the number of ``steps`` of the run, and ``load()``, which returns the
    initial policy's model as a torch module of the caller's own."""

    settings: Settings
    environment: DiagnosticEnvironment
    policy: Policy
    frozen: Callable[[], Policy]
    seed: int
    cases: Sequence[CaseRecord] = ()
    steps: int = 0
    load: "Callable[[], torch.nn.Module] | None" = None


@dataclass(frozen=True)
class Alternative:
    """Further training data: replies that branch off from trajectory ``i`` of the group at one of its states.

    ``turns`` are one reply, or several with observations between them. ``advantages`` and ``weights`` have one entry
    per turn: a token of weight w counts in the loss like w tokens of a trajectory. A reply that was not sampled
    (``Policy.score_diagnoses``), with the advantage 1, adds its negative log-likelihood to the loss: an auxiliary loss.
    """

    i: int
    turns: Sequence[Turn]
    advantages: Sequence[PerToken]
    weights: Sequence[PerToken]


@dataclass(kw_only=True)
class GroupAdvantages:
    """The advantages of one group.

    ``decisions[i][t]`` is the advantage of decision t of trajectory i, :data:`PerToken`. ``weights``, of the same
    shape, are weights in the loss, by default 1. ``alternatives`` are further training data. ``scores`` has one score
    per trajectory if the algorithm compares whole trajectories. ``counts`` are metrics to sum over the batch;
    ``record`` is a row of the credit artifact."""

    decisions: list[list[Any]]  # of PerToken; lists of plain numbers are lists of these
    weights: list[list[Any]] = field(default_factory=list)
    alternatives: Sequence[Alternative] = ()
    scores: Sequence[float] | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    record: "CreditRow | None" = None

    def __post_init__(self) -> None:
        self.weights = self.weights or [[1.0] * len(steps) for steps in self.decisions]


class Algorithm(ABC):
    """Base class of all training algorithms. A subclass implements :meth:`score_group` (CONTRIBUTING.md, "Add an
    algorithm"); one object serves a whole run.

    ``reads`` names the settings that it reads beside those that every training reads: a variant cannot set others, and
    reading others is an error. ``Options`` declares its own settings, ``training.options``; a file named there is part
    of the run key. ``extra_samples``: it trains on :class:`Alternative` replies. ``requires`` are values of settings,
    by key, with which alone it can train.
    """

    class Options(Section):
        """Settings of this algorithm alone: none, unless a subclass declares some."""

    reads: ClassVar[tuple[str, ...]] = ("training.normalise",)
    extra_samples: ClassVar[bool] = False
    requires: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, context: Context):
        self.context, self.settings = context, context.settings
        self.options: Any = self.Options.model_validate(context.settings.training.options)

    @abstractmethod
    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute the advantages of one group. The groups of a batch are scored at the same time, in any order."""

    async def score_batch(self, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
        """Compute the advantages of every group of an iteration; by default by :meth:`score_group`."""
        return await asyncio.gather(*(self.score_group(group, iteration) for group in groups))

    def finish(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Finish a batch, in the order of the schedule: change advantages in place where that needs all groups. Returns
        metrics: sums of the groups' ``counts``, and the share of groups with equal scores."""
        metrics: dict[str, float] = {}
        if scores := [group.scores for group in batch if group.scores is not None]:
            metrics["train/equal_groups"] = equal_share(scores)
        for name in dict.fromkeys(name for group in batch for name in group.counts):
            metrics[name] = sum(group.counts.get(name, 0) for group in batch)
        return metrics

    def state_dict(self) -> Any:
        """The state that must survive an interruption, in types that JSON holds (tuples come back as lists); tensors
        only in an algorithm that refuses the engine verl."""
        return None

    def load_state_dict(self, state: Any) -> None:
        """Restore what :meth:`state_dict` returned."""
        return None

    @classmethod
    def canonical(cls, settings: Settings) -> Settings:
        """Rewrite settings to an equal training: names another algorithm where that one trains the same policy under
        these settings. By default they are returned unchanged."""
        return settings

    @classmethod
    def needs_frozen(cls, settings: Settings) -> bool:
        """Whether the algorithm uses the frozen initial policy under these settings."""
        return False

    @classmethod
    def scores_by(cls, settings: Settings) -> set[str]:
        """Which policies have to score given replies under these settings: a set of ``current`` and ``frozen``."""
        return set()

    @functools.cached_property
    def return_of(self) -> ReturnOf:
        """The return function of the utility-based algorithms: U with weighted correctness. Using it needs ``utility``
        and ``comparators`` in ``reads``."""
        return weighted_utility(self.settings)

    def normalised(self, scores: Sequence[float]) -> list[float]:
        """Compute the group-relative advantages of the trajectories of one group from their ``scores``, under
        ``training.normalise`` (:func:`group_relative`)."""
        import torch

        # Two equal rows: torch sums a single row in another order, with other last digits than in a batch.
        rows = torch.tensor([scores, scores], dtype=torch.float64)
        return group_relative(rows, self.settings.training.normalise)[0].tolist()


def open_algorithm(context: Context) -> Algorithm:
    """Create the algorithm that ``training.algorithm`` names. It can read only the settings that its class declares."""
    settings = context.settings
    return algorithm_class(settings.training.algorithm)(replace(context, settings=seen_by_algorithm(settings)))


async def score_groups(algorithm: Algorithm, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
    """Compute the advantages of the groups of an iteration. Raises FloatingPointError as :func:`check_finite`."""
    scored = await algorithm.score_batch(groups, iteration)
    check_finite(groups, scored)
    return scored


def check_finite(groups: Sequence[Group], scored: Sequence[GroupAdvantages]) -> None:
    """Raise FloatingPointError, naming the case, where an advantage of the groups (``scored``) is not finite."""
    for group, credit in zip(groups, scored, strict=True):
        for row in [*credit.decisions, *(other.advantages for other in credit.alternatives)]:
            values = [a for value in row for a in (value if isinstance(value, tuple) else (value,))]
            if not all(map(math.isfinite, values)):
                raise FloatingPointError(
                    f"{group[0].case.called}: the advantages {row} are not finite; the step was stopped"
                )


def by_token(turns: Sequence[Turn], values: Sequence[PerToken]) -> list[tuple[float, ...]]:
    """Expand the :data:`PerToken` value of each reply to one number per token, a tuple for each reply. Raises
    ValueError for a value with another number of entries than tokens."""
    rows = []
    for turn, value in zip(turns, values, strict=True):
        row = value if isinstance(value, tuple) else (value,) * len(turn.token_ids)
        if len(row) != len(turn.token_ids):
            raise ValueError(f"{len(row)} values for a reply of {len(turn.token_ids)} tokens")
        rows.append(row)
    return rows


def credit_line(step: int, batch: Sequence[GroupAdvantages]) -> dict[str, Any] | None:
    """The line of the credit artifact about an iteration, as a dictionary; None for an algorithm without records."""
    rows = [scored.record.as_dict() for scored in batch if scored.record]
    return {"step": step, "groups": rows} if rows else None


def every_decision(advantages: Sequence[float], group: Group) -> list[list[float]]:
    """The ``decisions`` of :class:`GroupAdvantages` where all decisions of a trajectory have the same advantage, as in
    GRPO. ``advantages`` has one entry per trajectory; raises ValueError for another number of entries."""
    return [[a] * len(trajectory.steps) for a, trajectory in zip(advantages, group, strict=True)]


def standardised(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Standardise values: each x in ``rows`` becomes (x - mean) / (deviation + 1e-6), with mean and population standard
    deviation over all rows."""
    values = [x for row in rows for x in row]
    mean, deviation = fmean(values), pstdev(values)
    return [[(x - mean) / (deviation + EPSILON) for x in row] for row in rows]


def equal_share(scores: Sequence[Sequence[float]]) -> float:
    """The share of groups (rows) whose scores are all equal: their advantages are zero, so they do not train."""
    return sum(len(set(row)) == 1 for row in scores) / max(1, len(scores))
