"""The base class of training algorithms: rules that turn groups of trajectories into advantages.

An algorithm is a subclass of :class:`Algorithm` in a file of its own; the setting ``training.algorithm`` names the one
that a training uses. Commands that never train import these files too, so an algorithm imports torch only inside its
functions.
"""

import asyncio
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, Policy, ReturnOf, Trajectory, Turn, weighted_utility
from ..settings import Section, Settings, algorithm_class, restrict_to_algorithm

if TYPE_CHECKING:
    import torch

Group = Sequence[Trajectory]
"""The ``training.group_size`` trajectories of one case."""
PerToken = float | tuple[float, ...]
"""The values (advantages, say) of a reply's tokens: a tuple with one number per token, or one number for all."""
EPSILON = 1e-6  # added to standard deviations by which values are divided, as in verl


def group_relative(scores: "torch.Tensor", normalise: str = "group_std") -> "torch.Tensor":
    """Compute the group-relative advantages of trajectories, A = (G - mean_G) / (sigma_G + 1e-6) within each group
    (paper, section "Group-relative Advantage").

    ``scores`` (G) and the result have the shape (groups, n). sigma_G is the sample standard deviation of the group, as
    in verl. With ``normalise="none"`` the difference is not divided by it. A group of one trajectory has no deviation:
    as in verl, mean 0 and deviation 1 are assumed. A group of equal scores gets exactly 0, without rounding errors."""
    if scores.shape[1] == 1:
        return scores.clone() if normalise == "none" else scores / (1 + EPSILON)
    equal = (scores == scores[:, :1]).all(dim=1, keepdim=True)  # groups whose scores are all equal
    centred = (scores - scores.mean(dim=1, keepdim=True)).masked_fill(equal, 0.0)
    return centred if normalise == "none" else centred / (scores.std(dim=1, keepdim=True) + EPSILON)


@dataclass(frozen=True)
class Context:
    """Everything that an algorithm can use in a training run.

    ``settings`` are those of the run; :func:`open_algorithm` removes the ones that the algorithm does not declare
    (:attr:`Algorithm.reads`). ``environment`` answers requests for examinations and judges diagnoses. ``policy`` is the
    policy in training; ``load_frozen_policy()`` loads a policy with the initial weights, which never change. ``seed``
    is the seed of the run, ``steps`` the number of its iterations, and ``cases`` are its training cases.
    ``load_initial_model()`` returns a new torch module with the initial weights. A context that no engine made has
    none (None).
    """

    settings: Settings
    environment: DiagnosticEnvironment
    policy: Policy
    load_frozen_policy: Callable[[], Policy]
    seed: int
    cases: Sequence[CaseRecord] = ()
    steps: int = 0
    load_initial_model: "Callable[[], torch.nn.Module] | None" = None


class Alternative(NamedTuple):
    """Replies to train on that are in no trajectory of the group. They branch off at one of the states of a trajectory,
    whose index in the group is ``i``.

    ``turns`` are one reply, or several consecutive ones with observations between them. ``advantages`` and ``weights``
    have one entry per turn; a token of weight w counts in the loss like w tokens of weight 1. A reply that was not
    sampled from the policy, but written by the algorithm, is learned by maximum likelihood if its advantage is 1: the
    gradient of its loss is that of its negative log-likelihood.
    """

    i: int
    turns: Sequence[Turn]
    advantages: Sequence[PerToken]
    weights: Sequence[PerToken]


@dataclass(kw_only=True)
class GroupAdvantages:
    """The advantages of one group, which :meth:`Algorithm.score_group` returns.

    ``decisions[i][t]`` is the advantage of decision t of trajectory i, a :data:`PerToken`; ``weights[i][t]`` is its
    weight in the loss, by default 1. ``alternatives`` are further replies to train on. ``scores`` has one score per
    trajectory; None where the algorithm does not compare whole trajectories. ``counts`` are metrics by name, which are
    summed over the batch. ``record`` describes the group's credit in JSON values for the file ``credit.jsonl.gz``; None
    where nothing is recorded."""

    decisions: list[list[Any]]  # of PerToken; the type is Any so that lists of plain floats are accepted
    weights: list[list[Any]] = field(default_factory=list)
    alternatives: list[Alternative] = field(default_factory=list)
    scores: Sequence[float] | None = None
    counts: Mapping[str, float] = field(default_factory=dict)
    record: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Give every decision the weight 1 where no weights were passed."""
        self.weights = self.weights or [[1.0] * len(advantages) for advantages in self.decisions]

    def token_rows(self, i: int, trajectory: Trajectory) -> Iterator[tuple[Sequence[Turn], list, list]]:
        """Yield what is trained of trajectory number ``i`` of the group: first the trajectory itself, then each
        alternative that branches off from it. A row has the turns, and for each turn a tuple with the advantages of the
        tokens of its reply, and one with their weights."""
        own = ([step.turn for step in trajectory.steps], self.decisions[i], self.weights[i])
        alternatives = [alternative[1:] for alternative in self.alternatives if alternative.i == i]
        for turns, advantages, weights in (own, *alternatives):
            yield turns, expand_to_tokens(turns, advantages), expand_to_tokens(turns, weights)


class Algorithm(ABC):
    """Base class of all training algorithms. One object serves a whole run: it computes the advantages of each group of
    trajectories. A subclass implements :meth:`score_group` (CONTRIBUTING.md, "Add an algorithm").

    ``Options`` declares the settings of this algorithm alone, ``training.options``; if one of them names a file, a
    change of that file makes Snakemake train again. ``reads`` lists the other settings that the algorithm reads, beside
    those that every training reads; it is an error to read any other, or to change any other in a variant.
    ``extra_samples``: whether it trains on :class:`Alternative` replies. ``whole_batch``: whether
    :meth:`score_batch` must get all groups of an iteration; otherwise each can be scored as soon as it has ended.
    ``requires`` maps names of settings to the only values with which the algorithm can train.
    """

    class Options(Section):
        """The settings ``training.options`` of this algorithm alone: none here, a subclass declares its own."""

    reads: ClassVar[tuple[str, ...]] = ("training.normalise",)
    extra_samples: ClassVar[bool] = False
    whole_batch: ClassVar[bool] = False
    requires: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Check a new subclass: raise TypeError where it defines a method by a name of an earlier version, because
        nothing would call the method."""
        if old := sorted({"finish", "canonical", "needs_frozen", "scores_by"} & vars(cls).keys()):
            raise TypeError(f"{cls.__name__}: the method {old[0]} of algorithms has another name now, see CHANGELOG.md")

    def __init__(self, context: Context):
        """Keep the ``context`` and its settings, and check ``training.options`` against the class ``Options``."""
        self.context, self.settings = context, context.settings
        self.options: Any = self.Options.model_validate(context.settings.training.options)

    @abstractmethod
    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute the advantages of one group of trajectories. ``iteration`` counts from 0. The groups of a batch are
        scored concurrently, in any order."""

    async def score_batch(self, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
        """Compute the advantages of all groups of an iteration, one :class:`GroupAdvantages` for each, in their order.
        By default :meth:`score_group` is called for all groups concurrently."""
        return await asyncio.gather(*(self.score_group(group, iteration) for group in groups))

    def finish_batch(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Complete the advantages of a batch after all its groups were scored, and return metrics of the batch.

        A subclass whose advantages depend on the whole batch changes them here, in place. The metrics are the sums of
        the groups' ``counts`` and, where groups have ``scores``, the share of groups whose scores are all equal."""
        metrics: dict[str, float] = {}
        if scores := [group.scores for group in batch if group.scores is not None]:
            metrics["train/equal_groups"] = share_of_equal_groups(scores)
        for name in dict.fromkeys(name for group in batch for name in group.counts):
            metrics[name] = sum(group.counts.get(name, 0) for group in batch)
        return metrics

    def state_dict(self) -> Any:
        """Return what the algorithm must restore when an interrupted run resumes, as tensors and plain values, which
        torch loads without running code; None, as here, where there is nothing."""
        return None

    def load_state_dict(self, state: Any) -> None:
        """Restore what :meth:`state_dict` returned; by default there is nothing to restore."""
        return None

    @classmethod
    def canonical_settings(cls, settings: Settings) -> Settings:
        """Return settings that train the same policy as ``settings``, by a simpler algorithm where there is one: CDPR
        without its process reward becomes GRPO. By default they are returned unchanged. Runs with equal canonical
        settings train once."""
        return settings

    @classmethod
    def needs_frozen_policy(cls, settings: Settings) -> bool:
        """Whether the algorithm uses, under these settings, a policy that keeps the initial weights; by default
        False."""
        return False

    @classmethod
    def scoring_policies(cls, settings: Settings) -> set[str]:
        """Return which policies compute log-probabilities of given replies under these settings: a set that can hold
        ``current`` (the policy in training) and ``frozen`` (the initial policy); by default it is empty."""
        return set()

    @functools.cached_property
    def return_of(self) -> ReturnOf:
        """The function that computes the return of a decision or an episode from its correctness (0, 1 or a
        probability) and its effort: the utility U with correctness multiplied by ``comparators.correctness_weight``. An
        algorithm that uses it must name ``utility`` and ``comparators`` in ``reads``."""
        return weighted_utility(self.settings)

    def normalise_scores(self, scores: Sequence[float]) -> list[float]:
        """Compute the advantages of the trajectories of one group from their ``scores``, one for each, by
        :func:`group_relative` under ``training.normalise``."""
        import torch

        # Two equal rows: torch sums a single row in another order, with other last digits than in a batch.
        rows = torch.tensor([scores, scores], dtype=torch.float64)
        return group_relative(rows, self.settings.training.normalise)[0].tolist()


def open_algorithm(context: Context) -> Algorithm:
    """Create the algorithm that the setting ``training.algorithm`` names. It gets only the settings that its class
    declares in ``reads``; reading another one raises UndeclaredSetting."""
    settings = context.settings
    return algorithm_class(settings.training.algorithm)(replace(context, settings=restrict_to_algorithm(settings)))


async def score_groups(algorithm: Algorithm, groups: Sequence[Group], iteration: int) -> list[GroupAdvantages]:
    """Compute the advantages of ``groups``, all or some of the groups of an ``iteration`` (from 0): returns one
    :class:`GroupAdvantages` for each, in their order. Raises FloatingPointError where an advantage is not finite."""
    scored = await algorithm.score_batch(groups, iteration)
    check_finite(groups, scored)
    return scored


def check_finite(groups: Sequence[Group], scored: Sequence[GroupAdvantages]) -> None:
    """Raise FloatingPointError, naming the case, if an advantage is NaN or infinite. ``scored`` has the advantages of
    ``groups``, in the same order."""
    for group, of_group in zip(groups, scored, strict=True):
        name = group[0].case.name_in_errors
        of_alternatives = [alternative.advantages for alternative in of_group.alternatives]
        for row in [*of_group.decisions, *of_alternatives]:  # each has a PerToken for each reply
            values = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in row)
            if not all(map(math.isfinite, values)):
                raise FloatingPointError(f"{name}: the advantages {row} are not finite; the step was stopped")


def expand_to_tokens(turns: Sequence[Turn], values: Sequence[PerToken]) -> list[tuple[float, ...]]:
    """Return one number per token for each reply. ``values`` has one :data:`PerToken` for each reply; a single number
    is repeated for all tokens of the reply. Raises ValueError for a value with another number of entries than tokens.

    Two replies of 2 and 3 tokens with the values 0.5 and (1, 2, 3) give [(0.5, 0.5), (1, 2, 3)]."""
    rows = []
    for turn, value in zip(turns, values, strict=True):
        row = value if isinstance(value, tuple) else (value,) * len(turn.token_ids)
        if len(row) != len(turn.token_ids):
            raise ValueError(f"{len(row)} values for a reply of {len(turn.token_ids)} tokens")
        rows.append(row)
    return rows


def credit_record(step: int, batch: Sequence[GroupAdvantages]) -> dict[str, Any] | None:
    """Make the line of ``credit.jsonl.gz`` about the iteration ``step``, as a dictionary: ``{"step": step, "groups":
    [...]}``, with an entry for each group of ``batch`` that has a record of its credit. Returns None where no group has
    one, because the algorithm records no credit."""
    rows = [scored.record for scored in batch if scored.record]
    return {"step": step, "groups": rows} if rows else None


def repeat_over_decisions(advantages: Sequence[float], group: Group) -> list[list[float]]:
    """Give every decision of a trajectory the advantage of the trajectory, as in GRPO; returns the ``decisions`` of
    :class:`GroupAdvantages`.

    ``advantages`` has one entry per trajectory of the group; raises ValueError for another number of entries. The
    advantages 1 and -1 of trajectories with 2 and 3 decisions give [[1, 1], [-1, -1, -1]]."""
    return [[advantage] * len(trajectory.steps) for advantage, trajectory in zip(advantages, group, strict=True)]


def standardise(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Standardise the numbers in ``rows`` together: each x becomes (x - mean) / (deviation + 1e-6), with one mean and
    one population standard deviation for all rows. Returns rows of the same lengths. Raises StatisticsError where no
    row has a number."""
    values = [x for row in rows for x in row]
    mean, deviation = fmean(values), pstdev(values)
    return [[(x - mean) / (deviation + EPSILON) for x in row] for row in rows]


def share_of_equal_groups(scores: Sequence[Sequence[float]]) -> float:
    """Compute the share (0 to 1) of groups whose trajectories all have the same score, and therefore the advantage 0:
    they do not train the policy. ``scores`` has a row for each group, with one score for each trajectory. Returns 0
    without groups."""
    return sum(len(set(row)) == 1 for row in scores) / max(1, len(scores))
