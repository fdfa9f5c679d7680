"""Rollouts with verl: the loop that runs one episode, the Ray actor that scores groups of episodes, and the buffer that
keeps the order of a batch.

A group is scored as soon as its last episode has ended, or with the whole batch where the algorithm needs it, while the
rollout servers still hold the policy's weights.
"""

import asyncio
import io
import logging
import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
import transfer_queue as tq
from pydantic import Field
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...cases import CaseRecord
from ...environment import State, Trajectory, Turn, case_seed, run_episode
from ...llm import ModelFailure, is_local
from ...llm.rollout_server import CONVERSATION, RolloutServer
from ...metrics_log import MetricsLog
from ..algorithm import GroupAdvantages, check_finite, credit_record, open_algorithm, score_groups
from ..training_run import CREDIT, VALIDATION_SEED, TrainingRun
from .session import align_with_response, read_session

_log = logging.getLogger(__name__)
# In every episode this module of verl warns that it does not know the chat template; here verl need not join any turns.
logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)


class EpisodeOutput(AgentLoopOutput):
    """An episode in verl's format, with its ``trajectory``. If the episode failed, ``trajectory`` is None and
    ``failure`` the error. ``alternatives`` are further replies to train on, each an output of its own, which branch off
    from the episode."""

    trajectory: Trajectory | None = Field(default=None, exclude=True)
    failure: Any = Field(default=None, exclude=True)  # an Exception
    alternatives: list["EpisodeOutput"] = Field(default_factory=list, exclude=True)


class DiagnosticLoop(AgentLoopBase):
    """verl's agent loop: runs one episode. An episode that fails is returned as a failed output and raises nothing,
    because verl would otherwise train on the rest of its group."""

    def __init__(self, *args: Any, hf_model_type: str | None = None, **kwargs: Any):
        """Create verl's loop without passing ``hf_model_type`` on. By this type verl would choose how it joins the
        turns of a chat; here :class:`~cdpr.environment.PromptBuilder` builds all prompts."""
        super().__init__(*args, **kwargs)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> EpisodeOutput:
        """Run one episode and return it in verl's format. ``row`` is a row of :class:`~.session.Schedule`, which says
        which case it is, with two fields of verl: ``uid``, the name of the group, and ``session_id``, the number of the
        episode in the group. verl's ``sampling_params`` are not used: training samples as the settings of the run say,
        validation decodes greedily."""
        run = read_session(self.data_config.cdpr_session).run
        cases = getattr(run, row["part"])  # ``run.train`` or ``run.validation``
        case = cases[int(row["case_index"])]
        model = RolloutServer(self.server_manager, run.tokenizer, run.settings.training.verl.server)
        if row["part"] == "validation":
            agent, seed = run.make_agent(model, temperature=0.0), case_seed(VALIDATION_SEED, case)
        else:
            agent = run.make_agent(model)
            seed = run.episode_seed(case, int(row["iteration"]), int(row.get("session_id", 0)))
        # All requests of a group go to one server, which has their prompt in its cache.
        CONVERSATION.set(str(row.get("uid", case.note_id)))
        try:
            trajectory = await run_episode(run.environment, agent, case, seed)
        except Exception as error:
            return _failed_output(run, case, error)
        turns = [step.turn for step in trajectory.steps]
        versions = model.versions or {0}  # of the weights that sampled the replies; 0 where the server named none
        output = _episode_output(turns, versions, self.rollout_config.response_length)
        output.trajectory, output.reward_score = trajectory, float(trajectory.correct)
        return output


def _failed_output(run: TrainingRun, case: CaseRecord, error: Exception) -> EpisodeOutput:
    """Log the ``error`` of a failed episode, and return an output that stands for it: a prompt and one token without
    loss. verl needs an output for every member of a group."""
    if _is_fatal(error):
        _log_stack("a fault in an episode", error)
    else:
        _log.warning("an episode failed: %s", error)
    turn = Turn("", run.prompts.context_ids(State(case)), (run.tokenizer.end_of_turn,), (0.0,))
    output = _episode_output([turn], {0})  # any version of the weights: nothing is trained
    output.response_mask, output.num_turns = [0], 1  # 0: the token has no loss
    output.failure = error
    return output


def _is_fatal(error: Exception | None) -> bool:
    """Whether an error is one of the program, not of a server."""
    return error is not None and not isinstance(error, ModelFailure)


def _episode_output(turns: Sequence[Turn], versions: set[int], limit: int | None = None) -> EpisodeOutput:
    """Make verl's output from the turns of an episode: the first prompt, then the replies and the observations between
    them, of which only replies have a loss. At most ``limit`` tokens after the first prompt are kept. ``versions`` are
    the versions of the weights that wrote the replies."""
    # The last prompt holds the first prompt and everything between it and the last reply.
    prompt, last = turns[0].prompt_ids, turns[-1]
    logprobs = align_with_response(turns, [turn.logprobs for turn in turns], limit)
    return EpisodeOutput(
        prompt_ids=list(prompt),
        response_ids=[*last.prompt_ids, *last.token_ids][len(prompt) :][:limit],
        response_mask=align_with_response(turns, [[1] * len(turn.token_ids) for turn in turns], limit),
        response_logprobs=list(map(float, logprobs)),
        num_turns=2 * len(turns),  # verl counts prompts and replies
        metrics=AgentLoopMetrics(generate_sequences=0.0),
        reward_score=0.0,
        # verl expects the oldest and the newest version of the weights, and metrics of the reward (here none).
        extra_fields={"min_global_steps": min(versions), "max_global_steps": max(versions), "reward_extra_info": {}},
    )


def _log_stack(message: str, error: Exception) -> None:
    """Log ``message`` with the type and the stack of an error. The error's own message is left out, because it may
    quote clinical text."""
    _log.error("%s: %s\n%s", message, type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))


@dataclass
class _Group:
    """The episodes of one case in one iteration. ``uid`` is verl's name of the group, ``row`` its row in the schedule,
    ``members`` has its episodes by number. ``done`` is set when all episodes have ended and scoring is over;
    ``scored`` has the group's advantages then, or None if an episode or the scoring failed."""

    uid: str
    row: int
    iteration: int
    members: dict[int, EpisodeOutput] = field(default_factory=dict)
    scored: GroupAdvantages | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def trajectories(self) -> dict[int, Trajectory]:
        """Return the trajectories of the group by the number of the episode; failed episodes are left out."""
        members = sorted(self.members.items())
        return {i: member.trajectory for i, member in members if member.trajectory is not None}


@dataclass
class BatchAdvantages:
    """The advantages of a batch, by verl's name of a row: ``GROUP_MEMBER_0`` for trajectory number MEMBER of a group,
    ``GROUP_MEMBER_1`` and so on for the alternatives that branch off from it.

    ``advantages`` has for each row one value per token: the advantage times the token's weight in the loss. ``weights``
    has for each row the sum of these weights. Rows of failed groups are missing in both: they have the advantage 0.
    ``rollouts`` are metrics of the episodes, ``metrics`` those of the algorithm.
    """

    rollouts: dict[str, float] = field(default_factory=dict)
    advantages: dict[str, list[float]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class GroupHook:
    """A mixin for verl's agent-loop worker that scores groups. All episodes of a group run in the event loop of this
    worker.

    It holds the algorithm, an object of the same class as in the torch engine, with its state between iterations.
    Groups do not wait for each other: the first is scored while episodes of the last still run. They do wait for an
    algorithm that needs the whole batch. A group with a failed episode, or whose scoring fails, has advantages of 0 in
    this step and is counted. The trainer stops the run after an error of the program or too many failures."""

    config: Any
    llm_client: Any

    def __init__(self, *args: Any, **kwargs: Any):
        """Read the description of the run, and open its algorithm and the file of its credit."""
        super().__init__(*args, **kwargs)
        self.session = read_session(self.config.data.cdpr_session)
        self.algorithm = open_algorithm(self.session.context(self.llm_client))
        self.groups: dict[str, _Group] = {}
        self.ended: list[_Group] = []  # groups whose episodes have ended and that wait for the whole batch
        self.validation: dict[int, EpisodeOutput] = {}  # by index of the case
        self.record = MetricsLog(self.session.state / CREDIT)

    async def _agent_loop_postprocess(self, output: EpisodeOutput, validate: bool, **row: Any) -> Any:
        """Called by verl after an episode, with the ``row`` of the schedule. An episode of training waits here until
        its group is scored; then the episode and its alternatives are passed to verl's method, each as a row of the
        batch, and the result of that method is returned. An episode of validation (``validate``) is passed on at once,
        and kept for :meth:`finish_validation`."""
        if validate:
            self.validation[int(row["index"])] = output
        else:
            await self._add_to_group(output, row)
        rows = [output, *output.alternatives] if output.alternatives else output
        return await super()._agent_loop_postprocess(rows, validate, **row)  # type: ignore[misc]

    async def _add_to_group(self, output: EpisodeOutput, row: dict[str, Any]) -> None:
        """Add an episode to its group, and wait until the group is scored. The call with the last episode of the group
        scores it, or where the algorithm needs the whole batch, the call with the last episode of all groups."""
        training = self.session.settings.training
        group = self.groups.setdefault(row["uid"], _Group(row["uid"], int(row["index"]), int(row["iteration"])))
        group.members[int(row["session_id"])] = output
        has_ended = len(group.members) == training.group_size
        if has_ended:
            self.ended.append(group)
        if not has_ended or (self.algorithm.whole_batch and len(self.ended) < training.prompts_per_batch):
            await group.done.wait()
            return
        ended, self.ended = self.ended, []
        try:
            await self._score_groups(sorted(ended, key=lambda group: group.row))
        finally:
            for group in ended:
                group.done.set()

    async def _score_groups(self, groups: Sequence[_Group]) -> None:
        """Compute the advantages of complete groups of one iteration, and add their alternatives to the episodes from
        which they branch off. A group with a failed episode is not scored. If the scoring fails, all episodes of these
        groups count as failed."""
        groups = [group for group in groups if len(group.trajectories()) == len(group.members)]
        if not groups:
            return
        trajectories = [list(group.trajectories().values()) for group in groups]
        try:
            scored = await score_groups(self.algorithm, trajectories, groups[0].iteration)
        except Exception as error:  # of any kind: verl must not train on half a group
            _log_stack("credit failed", error)
            for group in groups:
                for member in group.members.values():
                    member.failure = error
            return
        for group, credit in zip(groups, scored, strict=True):
            group.scored = credit
            for alternative in credit.alternatives:
                # {0}: any version of the weights, since the extra fields, which hold it, become those of the episode.
                member, output = group.members[alternative.i], _episode_output(alternative.turns, {0})
                output.reward_score, output.extra_fields = member.reward_score, member.extra_fields
                member.alternatives.append(output)

    def finish_validation(self) -> dict[str, Any]:
        """Return the metrics of the validation that has just ended (:meth:`TrainingRun.validation_metrics`), and forget
        its episodes."""
        outputs = [self.validation[index] for index in sorted(self.validation)]
        self.validation = {}
        return self.session.run.validation_metrics([output.trajectory for output in outputs])

    def finish_batch(self, uids: Sequence[str]) -> BatchAdvantages:
        """Complete the advantages of a batch after all its groups were scored, and record their credit. ``uids`` are
        verl's names of the groups, in any order. Returns the advantages with the metrics of the batch; the groups are
        forgotten. Raises FloatingPointError where an advantage is not finite."""
        # Metrics of all episodes, whether or not their group was scored, in the order of the schedule, as in the torch
        # engine. ``response_mask`` is 1 for each token that was sampled.
        groups = sorted((self.groups.pop(uid) for uid in uids), key=lambda group: group.row)
        outputs = [output for group in groups for _, output in sorted(group.members.items())]
        trajectories = [output.trajectory for output in outputs if output.trajectory is not None]
        batch = BatchAdvantages(rollouts=self.session.run.summarise("train", trajectories))
        batch.rollouts |= {
            "rollout/failed": sum(output.failure is not None for output in outputs) / max(1, len(outputs)),
            "rollout/fatal": sum(_is_fatal(output.failure) for output in outputs) / max(1, len(outputs)),
            "rollout/tokens": sum(sum(output.response_mask) for output in outputs),
        }
        # Advantages of the groups that were scored.
        groups = [group for group in groups if group.scored]
        scored = [group.scored for group in groups if group.scored]
        if not scored:
            return batch
        batch.metrics = self.algorithm.finish_batch(scored)
        check_finite([list(group.trajectories().values()) for group in groups], scored)
        for group, credit in zip(groups, scored, strict=True):
            _add_rows(batch, group, credit)
        if line := credit_record(groups[0].iteration + 1, scored):  # the file counts iterations from 1
            self.record(line)
        return batch

    def credit_state(self) -> bytes:
        """Return the state of the algorithm as a file of torch, for a checkpoint."""
        torch.save(self.algorithm.state_dict(), file := io.BytesIO())
        return file.getvalue()

    def restore_credit(self, state: bytes) -> None:
        """Restore the state of the algorithm from ``state``, a result of :meth:`credit_state`."""
        self.algorithm.load_state_dict(torch.load(io.BytesIO(state), map_location="cpu", weights_only=True))


def _add_rows(batch: BatchAdvantages, group: _Group, scored: GroupAdvantages) -> None:
    """Add the advantages and weights of a scored group to those of the batch: one row for each trajectory and for each
    alternative. A row has for each token after the first prompt its advantage times its weight, and the sum of its
    weights, by which the loss is divided."""
    for i, trajectory in group.trajectories().items():
        for number, (turns, *values) in enumerate(scored.token_rows(i, trajectory)):
            # The row of the trajectory itself, number 0, is cut as its output was.
            length = None if number else len(group.members[i].response_ids)
            advantages, weights = (align_with_response(turns, of_turns, length) for of_turns in values)
            key = f"{group.uid}_{i}_{number}"
            batch.advantages[key] = [a * weight for a, weight in zip(advantages, weights, strict=True)]
            batch.weights[key] = math.fsum(weights)


class GroupWorker(GroupHook, AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's agent-loop worker with :class:`GroupHook`: it runs the episodes of a run and scores their groups."""


class GroupManager(AgentLoopManagerTQ):
    """verl's manager of agent loops, which starts :class:`GroupWorker`. verl finds it by the setting
    ``rollout.agent.agent_loop_manager_class``."""

    def __init__(self, *args: Any, **kwargs: Any):
        """Choose the class of the worker, and the machine on which it has to run."""
        super().__init__(*args, **kwargs)
        frozen = read_session(self.config.data.cdpr_session).settings.training.verl.frozen
        self.agent_loop_workers_class = ray.remote(**ray_options(frozen.url))(GroupWorker)


def ray_options(url: str | None) -> dict[str, Any]:
    """Return Ray's options for an actor that uses the server at ``url`` (None: no server). With a local address the
    actor must run on the cluster's first machine, where the server is; otherwise Ray chooses any machine."""
    # Only the first machine has this resource; a tiny amount of it is enough to bind the actor.
    return {"num_cpus": 0, "resources": {"node:__internal_head__": 1e-3} if url and is_local(url) else {}}


class ScheduledBatch(ReplayBuffer):
    """verl's buffer of finished episodes (``trainer.v1.sampler.custom_sampler``), with each batch in the order of the
    schedule. verl's own batches are in the order in which episodes end: the first mini-batch would have the short
    ones, and sums of floats would differ between runs."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Take ``batch_size`` groups whose episodes have all ended from the buffer, and wait until there are as many.
        Called by verl: ``partition_id`` is ``train`` or ``val``, ``global_steps`` is the step of the training. Returns
        the batch, which has the names of its rows, and verl's metrics of the buffer.

        The rows are sorted by their case's row in the schedule, then by the number of the episode in its group, then by
        the number of the output: 0 is the episode, alternatives follow from 1."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=["index"])["index"]
        # The keys are UID_MEMBER_OUTPUT. verl takes the present numbers of the rows, in their new order.
        members = [tuple(map(int, key.rsplit("_", 2)[1:])) for key in batch.keys]
        batch.reorder(sorted(range(len(members)), key=lambda number: (int(rows[number]), members[number])))
        return batch, metrics
