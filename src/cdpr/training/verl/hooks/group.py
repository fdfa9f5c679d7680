"""The group hook: a group is scored as soon as its last episode has ended, while the policy's servers are awake."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from ....credit.summary import summarise_workups
from ....llm.types import ModelFailure
from ....metrics_log import MetricsLog
from ....settings.algorithms import algorithm_class
from ...algorithm import Alternative, GroupAdvantages, credit_line, score_groups
from ...progress import CREDIT
from ..session import read_session
from .agent_loop import EpisodeOutput
from .tokens import tokens_of

_log = logging.getLogger(__name__)

# verl wants the same names of every episode, the failed ones too.
_MEASURES = ("accuracy", "aen", "aec", "n_na", "physical", "utility", "forced", "turns")


@dataclass
class _Group:
    """One case of an iteration: its place in the schedule, its episodes by number, and what they teach."""

    place: int
    iteration: int
    members: dict[int, EpisodeOutput] = field(default_factory=dict)
    scored: GroupAdvantages | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Finished:
    """What a batch teaches, by verl's key of a row (group, member, 0 for the trajectory or number of the alternative).

    ``advantages``: of each of its tokens, times the token's weight in the loss; ``weights``: the sum of these weights,
    where they are not all 1. Rows of groups that failed are missing. ``metrics`` are those of the algorithm.
    """

    advantages: dict[str, list[float]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class GroupHook:
    """Over one of verl's agent-loop workers, all of whose sessions of a prompt run in one event loop.

    It holds the algorithm, the torch trainer's own code, with what that remembers between iterations. No group waits
    for another: the continuations of the first are drawn while the episodes of the last still run. A group of which an
    episode failed, or whose credit failed, teaches nothing in this step (its advantages are 0) and is counted; the
    trainer stops the run where it is told of a fault or of too many failures.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.session = read_session(self.config.data.cdpr_session)
        algorithm = algorithm_class(self.session.settings.training.algorithm)
        self.algorithm = algorithm(self.session.context(self.llm_client))
        self.groups: dict[str, _Group] = {}
        self.record = MetricsLog(self.session.state / CREDIT)

    async def _agent_loop_postprocess(self, output: EpisodeOutput, validate: bool, **row: Any) -> Any:
        if validate:
            self._report(output)
        else:
            await self._join(output, row)
        rows = [output, *output.alternatives] if output.alternatives else output
        return await super()._agent_loop_postprocess(rows, validate, **row)  # type: ignore[misc]

    async def _join(self, output: EpisodeOutput, row: dict[str, Any]) -> None:
        """Wait until the whole group is there; who comes last has it scored."""
        group = self.groups.setdefault(row["uid"], _Group(int(row["index"]), int(row["iteration"])))
        group.members[int(row["session_id"])] = output
        if len(group.members) < self.session.settings.training.group_size:
            await group.done.wait()
            return
        try:
            await self._score(group)
        finally:
            group.done.set()

    async def _score(self, group: _Group) -> None:
        members = [group.members[i] for i in sorted(group.members)]
        trajectories = [member.trajectory for member in members if member.trajectory is not None]
        if len(trajectories) == len(members):
            try:
                [group.scored] = await score_groups(self.algorithm, [trajectories], group.iteration)
            except Exception as error:  # whatever it is, verl must not train on half a group
                _log.error("credit failed: %s\n%s", type(error).__name__,
                           "".join(traceback.format_tb(error.__traceback__)))  # fmt: skip
                for member in members:
                    member.failure, member.fatal = type(error).__name__, not isinstance(error, ModelFailure)
        for member in members:
            self._report(member)
        for other in group.scored.alternatives if group.scored else ():
            members[other.i].alternatives.append(_row_of(other, members[other.i]))

    def _report(self, output: EpisodeOutput) -> None:
        """The outcome as verl's reward (it only shows it: advantages are given), and what is logged of an episode."""
        settings, trajectory = self.session.settings, output.trajectory
        output.reward_score = float(bool(trajectory and trajectory.correct))
        known = trajectory and summarise_workups([trajectory], settings.utility, settings.environment.tests)
        output.extra_fields["reward_extra_info"] = {
            **{name: float(known[name]) if known else math.nan for name in _MEASURES},
            "failed": float(bool(output.failure)),
            "fatal": float(output.fatal),
        }

    def finish(self, uids: Sequence[str]) -> Finished:
        """What the batch of these groups teaches, now that all of them are there: in the order of the schedule, as the
        torch trainer finishes it."""
        groups = {uid: self.groups.pop(uid) for uid in uids}
        scored = {uid: g for uid, g in sorted(groups.items(), key=lambda item: item[1].place) if g.scored}
        if not scored:
            return Finished()
        batch = [group.scored for group in scored.values()]
        found = Finished(metrics=self.algorithm.finish(batch))
        for uid, group in scored.items():
            for key, advantages, weights in _rows(uid, group):
                found.advantages[key] = [a * w for a, w in zip(advantages, weights, strict=True)]
                if self.algorithm.extra_samples:
                    found.weights[key] = sum(weights)
        step = max(group.iteration for group in scored.values()) + 1
        if line := credit_line(step, batch):
            self.record(line)
        return found

    def credit_state(self) -> bytes:
        """What the algorithm must not lose when the run is interrupted."""
        return pickle.dumps(self.algorithm.state_dict())

    def restore_credit(self, state: bytes) -> None:
        """The inverse of :meth:`credit_state`; the state is this program's own file."""
        self.algorithm.load_state_dict(pickle.loads(state))


def _row_of(other: Alternative, member: EpisodeOutput) -> EpisodeOutput:
    """An alternative as a row beside the trajectory that it parts from; verl shows the trajectory's reward for both."""
    turn = other.turn
    return EpisodeOutput(
        prompt_ids=list(turn.prompt_ids), response_ids=list(turn.token_ids), response_mask=[1] * len(turn.token_ids),
        response_logprobs=list(turn.logprobs), reward_score=member.reward_score, num_turns=1,
        metrics=AgentLoopMetrics(), extra_fields=member.extra_fields,
    )  # fmt: skip


def _rows(uid: str, group: _Group):
    """Verl's keys of the rows of a scored group, with advantages and weights of their tokens."""
    scored, count = group.scored, Counter()
    assert scored is not None
    for i, decisions in enumerate(scored.decisions):
        member = group.members[i]
        weights = scored.weights[i] if scored.weights else None
        tokens = tokens_of(member.trajectory, decisions, weights, len(member.response_ids))
        yield f"{uid}_{i}_0", tokens.advantages, tokens.weights
    for other in scored.alternatives:
        count[other.i] += 1
        n = len(other.turn.token_ids)
        yield f"{uid}_{other.i}_{count[other.i]}", [other.advantage] * n, [other.weight] * n
