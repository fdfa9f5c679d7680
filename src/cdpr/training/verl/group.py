"""The group hook: credit for a group as soon as its last episode has ended, while the policy's servers are awake."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import pickle
import traceback
from dataclasses import dataclass, field
from typing import Any

from ...credit.summary import summarise_workups
from .agent_loop import EpisodeOutput
from .credit import GroupCredit
from .session import read_session
from .tokens import tokens_of

_log = logging.getLogger(__name__)

# verl wants the same names of every episode, the failed ones too.
_MEASURES = ("accuracy", "aen", "aec", "n_na", "physical", "utility", "forced", "turns")


@dataclass
class _Group:
    members: dict[int, EpisodeOutput] = field(default_factory=dict)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class GroupHook:
    """Over one of verl's agent-loop workers, all of whose sessions of a prompt run in one event loop.

    No group waits for another: the continuations of the first are drawn while the episodes of the last still run.
    A group of which an episode failed, or whose credit failed, teaches nothing in this step (its advantages are 0) and
    is counted; the trainer stops the run where it is told of a fault or of too many failures.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.session = read_session(self.config.data.cdpr_session)
        self.credit = GroupCredit(self.session, self.llm_client)
        self.groups: dict[str, _Group] = {}

    async def _agent_loop_postprocess(self, output: EpisodeOutput, validate: bool, **row: Any) -> Any:
        if validate:
            self._report(output, {})
        else:
            await self._join(output, row)
        return await super()._agent_loop_postprocess(output, validate, **row)  # type: ignore[misc]

    async def _join(self, output: EpisodeOutput, row: dict[str, Any]) -> None:
        """Wait until the whole group is there; who comes last assigns credit to all."""
        group = self.groups.setdefault(row["uid"], _Group())
        group.members[int(row["session_id"])] = output
        if len(group.members) < self.session.settings.training.group_size:
            await group.done.wait()
            return
        del self.groups[row["uid"]]
        try:
            await self._assign([output for _, output in sorted(group.members.items())], int(row["iteration"]))
        finally:
            group.done.set()

    async def _assign(self, members: list[EpisodeOutput], iteration: int) -> None:
        trajectories = [member.trajectory for member in members if member.trajectory is not None]
        advantages, metrics = None, {}
        if len(trajectories) == len(members):
            try:
                credit = await self.credit.of(trajectories, iteration)
                advantages, metrics = credit.decisions[0], credit.metrics
                self._record(iteration, credit.records)
            except Exception as error:  # whatever it is, verl must not train on half a group
                _log.error("credit failed: %s\n%s", type(error).__name__,
                           "".join(traceback.format_tb(error.__traceback__)))  # fmt: skip
                for member in members:
                    member.failure, member.fatal = type(error).__name__, True
        for i, member in enumerate(members):
            given = advantages[i] if advantages else None
            if member.trajectory is None or given is None:
                member.token_rewards = [0.0] * len(member.response_ids)
            else:
                member.token_rewards = tokens_of(member.trajectory, given, len(member.response_ids)).advantages
            self._report(member, metrics)

    def _report(self, output: EpisodeOutput, metrics: dict[str, float]) -> None:
        """The outcome as verl's reward (it only shows it: advantages are given), and what is logged of an episode."""
        settings, trajectory = self.session.settings, output.trajectory
        output.reward_score = float(bool(trajectory and trajectory.correct))
        known = trajectory and summarise_workups([trajectory], settings.utility, settings.environment.tests)
        output.extra_fields["credit"] = metrics
        output.extra_fields["reward_extra_info"] = {
            **{name: float(known[name]) if known else math.nan for name in _MEASURES},
            "failed": float(bool(output.failure)),
            "fatal": float(output.fatal),
        }

    def _record(self, iteration: int, records: list[dict[str, Any]]) -> None:
        if records:
            with (self.session.state / "credit.jsonl").open("a", encoding="utf-8") as out:
                out.write(json.dumps({"step": iteration + 1, "groups": records}, ensure_ascii=False) + "\n")

    def credit_state(self) -> bytes:
        """What the algorithm must not lose when the run is interrupted."""
        return pickle.dumps(self.credit.algorithm.state())

    def restore_credit(self, state: bytes) -> None:
        """The inverse of :meth:`credit_state`; the state is this program's own file."""
        self.credit.algorithm.restore(pickle.loads(state))
