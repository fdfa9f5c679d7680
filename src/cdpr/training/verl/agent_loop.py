"""Rollouts with verl: the loop that runs an episode, the Ray actor that scores groups, and the order of a batch.

A group is scored as soon as its last episode has ended, while the policy's servers are awake.
"""

import asyncio
import json
import logging
import math
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import transfer_queue as tq
from pydantic import Field
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...credit.scores import summarise_episodes, verdicts
from ...environment import State, Trajectory, Turn, case_seed, run_episode
from ...llm import ModelFailure, ModelSpec, open_model
from ...llm.guard import is_local
from ...llm.rollout_server import CONVERSATION
from ...metrics_log import MetricsLog
from ..algorithm import (
    GroupAdvantages,
    PerToken,
    check_finite,
    credit_record,
    expand_to_tokens,
    open_algorithm,
    score_groups,
)
from ..training_run import CREDIT, VALIDATION_SEED
from .session import on_response, read_session

_log = logging.getLogger(__name__)
# It warns in every episode that it knows no family of chat templates, which is intended.
logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)


class EpisodeOutput(AgentLoopOutput):
    """An episode as verl's output. Where the episode failed, ``trajectory`` is None, ``failure`` is the type of the
    error, and ``fatal`` tells an error of the program from one of a server. ``alternatives`` are further training data.
    """

    trajectory: Trajectory | None = Field(default=None, exclude=True)
    failure: str = Field(default="", exclude=True)
    fatal: bool = Field(default=False, exclude=True)
    alternatives: list["EpisodeOutput"] = Field(default_factory=list, exclude=True)


class DiagnosticLoop(AgentLoopBase):
    """verl's agent loop: runs one episode. It never raises, because verl would train on the rest of the group."""

    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)  # no family of chat templates: the prompts are ours, verl joins no turns

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> EpisodeOutput:
        """Run one episode. ``row`` is a row of :class:`~.session.Schedule` with verl's ``uid`` and ``session_id``."""
        run = read_session(self.data_config.cdpr_session).run
        case = getattr(run, row["part"])[int(row["case_index"])]
        parts = {"client": self.server_manager, "tokenizer": run.tokenizer}
        model: Any = open_model(ModelSpec.of_rollouts(run.settings), **parts)
        if row["part"] == "validation":
            agent, seed = run.agent(model, temperature=0.0), case_seed(VALIDATION_SEED, case)
        else:
            agent = run.agent(model)
            seed = run.episode_seed(case, int(row["iteration"]), int(row.get("session_id", 0)))
        CONVERSATION.set(str(row.get("uid", case.note_id)))
        try:
            trajectory = await run_episode(run.environment, agent, case, seed)
        except Exception as error:
            if fatal := not isinstance(error, ModelFailure):
                _log_fault("a fault in an episode", error)
            else:
                _log.warning("an episode failed: %s", error)
            # A prompt and one token without loss: verl needs every member of a group.
            prompt, reply = run.prompts.context_ids(State(case)), [run.tokenizer.end_of_turn]
            failure: dict[str, Any] = {"failure": type(error).__name__, "fatal": fatal}
            return _output(prompt, reply, [0], [0.0], extra_fields=_extra_fields({0}), reward_score=0.0, **failure)
        turns, limit = [step.turn for step in trajectory.steps], self.rollout_config.response_length
        outcome = {"reward_score": float(trajectory.correct), "extra_fields": _extra_fields(model.versions or {0})}
        return _episode_output(turns, limit, trajectory=trajectory, **outcome)


def _extra_fields(versions: set[int]) -> dict[str, Any]:
    """The extra fields of an output that verl reads: the versions of the weights, and figures to display (none)."""
    return {"min_global_steps": min(versions), "max_global_steps": max(versions), "reward_extra_info": {}}


def _episode_output(turns: Sequence[Turn], limit: int | None = None, **more: Any) -> EpisodeOutput:
    """Make verl's output from the replies of an episode with the observations between them, which have no loss: at most
    ``limit`` tokens behind the first prompt. ``more`` are further fields."""
    response = [*turns[-1].prompt_ids, *turns[-1].token_ids][len(turns[0].prompt_ids) :][:limit]
    mask = on_response(turns, ([1] * len(turn.token_ids) for turn in turns), limit)
    logprobs = on_response(turns, (turn.logprobs for turn in turns), limit)
    return _output(turns[0].prompt_ids, response, mask, logprobs, 2 * len(turns), **more)


def _output(prompt: Sequence[int], reply: Sequence[int], mask, logprobs, turns: int = 1, **more: Any) -> EpisodeOutput:
    """Make verl's output from these tokens; ``mask`` and ``logprobs`` have one entry per token of the reply, ``more``
    are further fields."""
    return EpisodeOutput(
        prompt_ids=list(prompt),
        response_ids=list(reply),
        response_mask=mask,
        response_logprobs=list(map(float, logprobs)),
        num_turns=turns,
        metrics=AgentLoopMetrics(generate_sequences=0.0),
        **more,
    )


def _log_fault(what: str, error: Exception) -> None:
    """Log what failed (``what``) and the stack of the error, without its message, which may quote a case."""
    _log.error("%s: %s\n%s", what, type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))


@dataclass
class _Group:
    """A group of one iteration: its row in the schedule, its episodes by number, and their advantages."""

    uid: str
    row: int
    iteration: int
    members: dict[int, EpisodeOutput] = field(default_factory=dict)
    scored: GroupAdvantages | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def trajectories(self) -> dict[int, Trajectory]:
        """The trajectories of the group by number; failed episodes are left out."""
        members = sorted(self.members.items())
        return {i: member.trajectory for i, member in members if member.trajectory is not None}


@dataclass
class Finished:
    """The advantages of a batch by verl's key of a row: GROUP_MEMBER_0 for a trajectory, GROUP_MEMBER_NUMBER for an
    alternative.

    ``advantages`` has one value per token of a row, times the token's weight in the loss; ``weights`` the sum of these
    weights, where they are not all 1. Rows of failed groups are missing. ``rollouts`` are metrics of the episodes,
    ``metrics`` those of the algorithm.
    """

    rollouts: dict[str, float] = field(default_factory=dict)
    advantages: dict[str, list[float]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class GroupHook:
    """A mixin of verl's agent-loop worker that scores groups. All episodes of a group run in its event loop.

    It holds the algorithm, the same object as in the torch engine, with its state between iterations. Groups do not
    wait for each other: credit of the first is computed while episodes of the last still run. A group with a failed
    episode or failed credit has advantages of 0 in this step and is counted. The trainer stops the run after an error
    of the program or too many failures."""

    config: Any
    llm_client: Any

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.session = read_session(self.config.data.cdpr_session)
        self.algorithm = open_algorithm(self.session.context(self.llm_client))
        self.groups: dict[str, _Group] = {}
        self.validation: dict[int, EpisodeOutput] = {}  # by index of the case
        self.record = MetricsLog(self.session.state / CREDIT)

    async def _agent_loop_postprocess(self, output: EpisodeOutput, validate: bool, **row: Any) -> Any:
        """verl's call after an episode: an episode of training waits here until its group is scored."""
        if validate:
            self.validation[int(row["index"])] = output
        else:
            await self._join(output, row)
        rows = [output, *output.alternatives] if output.alternatives else output
        return await super()._agent_loop_postprocess(rows, validate, **row)  # type: ignore[misc]

    async def _join(self, output: EpisodeOutput, row: dict[str, Any]) -> None:
        """Add an episode to its group and wait until the group is scored. The call of the last episode scores it."""
        group = self.groups.setdefault(row["uid"], _Group(row["uid"], int(row["index"]), int(row["iteration"])))
        group.members[int(row["session_id"])] = output
        if len(group.members) < self.session.settings.training.group_size:
            await group.done.wait()
            return
        try:
            await self._score(group)
        finally:
            group.done.set()

    async def _score(self, group: _Group) -> None:
        """Score a complete group, and add its alternatives to the episodes from which they branch off. A group with a
        failed episode, or whose scoring fails, gets no advantages."""
        members = [group.members[i] for i in sorted(group.members)]
        trajectories = group.trajectories()
        if len(trajectories) == len(members):
            try:
                [group.scored] = await score_groups(self.algorithm, [[*trajectories.values()]], group.iteration)
            except Exception as error:  # of any kind: verl must not train on half a group
                _log_fault("credit failed", error)
                for member in members:
                    member.failure, member.fatal = type(error).__name__, not isinstance(error, ModelFailure)
        for other in group.scored.alternatives if group.scored else ():
            member = members[other.i]
            displayed = {"reward_score": member.reward_score, "extra_fields": member.extra_fields}
            member.alternatives.append(_episode_output(other.turns, **displayed))

    def _summary(self, part: str, outputs: Sequence[EpisodeOutput]) -> dict[str, float]:
        """The means over the episodes that did not fail, named ``PART/...``; none where all failed."""
        settings, episodes = self.session.settings, [output.trajectory for output in outputs if output.trajectory]
        figures = summarise_episodes(episodes, settings.utility, settings.environment.tests) if episodes else {}
        return {f"{part}/{name}": value for name, value in figures.items()}

    def finish_validation(self) -> dict[str, Any]:
        """Compute the metrics of the finished validation, with its verdicts by case, and begin a new one."""
        outputs = [self.validation[index] for index in sorted(self.validation)]
        self.validation = {}
        marks = verdicts([x.trajectory.correct if x.trajectory else math.nan for x in outputs])
        row = {"validation/decoding": "greedy", "validation/verdicts": marks}
        return row | self._summary("validation", outputs)

    def finish(self, uids: Sequence[str]) -> Finished:
        """Finish the batch of the groups ``uids``, in the order of the schedule, as in the torch engine; returns their
        advantages and the metrics."""
        groups = sorted(map(self.groups.pop, uids), key=lambda group: group.row)
        outputs = [output for group in groups for _, output in sorted(group.members.items())]
        rollouts = self._summary("train", outputs) | {
            "rollout/failed": sum(bool(output.failure) for output in outputs) / max(1, len(outputs)),
            "rollout/fatal": sum(output.fatal for output in outputs) / max(1, len(outputs)),
            "rollout/tokens": sum(sum(output.response_mask) for output in outputs),
        }
        finished = Finished(rollouts=rollouts)
        scored = [(group, group.scored) for group in groups if group.scored]
        if not scored:
            return finished
        batch = [credit for _, credit in scored]
        finished.metrics = self.algorithm.finish_batch(batch)
        check_finite([list(group.trajectories().values()) for group, _ in scored], batch)
        for group, credit in scored:
            for key, advantages, weights in _batch_rows(group, credit):
                finished.advantages[key] = [a * w for a, w in zip(advantages, weights, strict=True)]
                if self.algorithm.extra_samples:
                    finished.weights[key] = math.fsum(weights)
        if line := credit_record(scored[0][0].iteration + 1, batch):
            self.record(line)
        return finished

    def credit_state(self) -> bytes:
        """The algorithm's state as JSON, for a checkpoint."""
        return json.dumps(self.algorithm.state_dict()).encode()

    def restore_credit(self, state: bytes) -> None:
        """Restore what :meth:`credit_state` returned."""
        self.algorithm.load_state_dict(json.loads(state))


def _batch_rows(group: _Group, scored: GroupAdvantages) -> Iterator[tuple[str, list[float], list[float]]]:
    """Yield for each row of verl's batch that a scored group has: its key, and the advantages and weights of its
    tokens."""
    count: Counter[int] = Counter()

    def row(key: str, turns: Sequence[Turn], length: int | None, *columns: Sequence[PerToken]):
        """The row ``key``: one list of values per token for each of ``columns``."""
        return key, *(on_response(turns, expand_to_tokens(turns, values), length) for values in columns)

    for i, trajectory in group.trajectories().items():
        turns, length = [step.turn for step in trajectory.steps], len(group.members[i].response_ids)
        yield row(f"{group.uid}_{i}_0", turns, length, scored.decisions[i], scored.weights[i])
    for other in scored.alternatives:
        count[other.i] += 1
        yield row(f"{group.uid}_{other.i}_{count[other.i]}", other.turns, None, other.advantages, other.weights)


class GroupWorker(GroupHook, AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """The worker of a run."""


class GroupManager(AgentLoopManagerTQ):
    """Starts :class:`GroupWorker`; verl's ``rollout.agent.agent_loop_manager_class``."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        frozen = read_session(self.config.data.cdpr_session).settings.training.verl.frozen
        self.agent_loop_workers_class = ray.remote(**needs_of(frozen.url))(GroupWorker)


def needs_of(url: str | None) -> dict[str, Any]:
    """The options of Ray for an actor that uses the server at ``url``. An actor that uses a local address runs on the
    cluster's first machine, as the server does; by default Ray would choose any machine."""
    return {"num_cpus": 0, "resources": {"node:__internal_head__": 1e-3} if url and is_local(url) else {}}


class ScheduledBatch(ReplayBuffer):
    """verl's buffer of finished episodes (``trainer.v1.sampler.custom_sampler``) that returns them in the order of the
    schedule. In the order in which they end, the first mini-batch would have the short episodes, and sums of floats
    would differ between runs."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Take ``batch_size`` finished groups from the buffer; returns their keys, sorted by row of the schedule and
        number in the group, and verl's metrics."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=["index"])
        numbers = (map(int, key.rsplit("_", 2)[1:]) for key in batch.keys)  # {uid}_{session}_{output}
        order = [(int(row), *number) for row, number in zip(rows["index"], numbers, strict=True)]
        batch.reorder(sorted(range(len(order)), key=order.__getitem__))
        return batch, metrics
