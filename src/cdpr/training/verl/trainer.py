"""verl's synchronous trainer with our advantages and metrics and with a frozen server. It stops the run where too many
episodes or requests fail."""

import copy
import importlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.workers.rollout.llm_server import LLMServerManager

from ...metrics_log import read_metrics
from ...settings import Training, algorithm_class
from ..training_run import METRICS, open_training_log
from .agent_loop import BatchAdvantages
from .checkpoints import checkpoint_folder, keep_only
from .session import read_session, reason_to_stop, translate_metrics

_CREDIT = "credit.pt"  # the state of the algorithm, in the folder of a checkpoint


@register_adv_est("cdpr")
def pass_on(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """An advantage estimator of verl that computes nothing. The trainer has put our advantages where verl expects the
    rewards of tokens, ``token_level_rewards`` [rows, tokens]. They are returned, 0 where ``response_mask`` is 0, both
    as the advantages and as the returns that verl asks for."""
    advantages = token_level_rewards * response_mask
    return advantages, advantages


def token_rewards(
    keys: Sequence[str], masks: Sequence[torch.Tensor], batch: BatchAdvantages, training: Training
) -> list[torch.Tensor]:
    """Compute what verl gets as the rewards of tokens: our advantages, 0 for the rows of a failed group. ``keys`` are
    verl's names of the rows, ``masks`` are True for their sampled tokens. Returns a float32 tensor [tokens] for each
    row.

    verl knows no weights of tokens, so each advantage already has the weight of its token as a factor. The loss must
    also be divided as in the torch engine: by the sum of the weights, or under ``sequence_sum`` by the number of
    trajectories. verl divides the loss by the number of tokens, or of rows. So all advantages are multiplied by the
    quotient of the two divisors. (It is 1 for an algorithm without alternatives, where all weights are 1.)
    """
    if training.loss_aggregation == "token_mean":
        # A row of a failed group has no weights: each of its sampled tokens counts as 1.
        weights = [batch.weights.get(key, float(mask.sum())) for key, mask in zip(keys, masks, strict=True)]
        scale = float(sum(mask.sum() for mask in masks)) / (math.fsum(weights) or 1.0)
    else:
        scale = len(keys) / (training.prompts_per_batch * training.group_size)
    rewards = [batch.advantages.get(key, [0.0] * len(mask)) for key, mask in zip(keys, masks, strict=True)]
    return [torch.tensor(row, dtype=torch.float32) * scale for row in rewards]


@register_trainer("cdpr")
class DiagnosticTrainer(PPOTrainerSync):
    """verl's synchronous trainer with our advantages, metrics and checkpoints; every step is on-policy."""

    def _build_replay_buffer(self):
        """Choose verl's synchronous mode, and then make verl's buffer of finished episodes."""
        # verl has just read the mode ``cdpr`` from its configuration, by which it finds this trainer. Any mode but
        # ``sync`` it takes for asynchronous training.
        self.trainer_mode = "sync"
        return super()._build_replay_buffer()

    def _setup(self):
        """Run verl's own setup, which restores a checkpoint if the run resumes. Then open our log of metrics, restore
        the seconds and tokens that the run took before this step, and start the frozen server."""
        self.session = read_session(self.config.data.cdpr_session)
        self.session.announce("the training processes with their weights, then the rollout servers")
        super()._setup()
        self.training_settings = self.session.settings.training
        earlier = [row for row in read_metrics(self.session.state / METRICS) if row["step"] <= self.global_steps]
        self.seconds = earlier[-1]["seconds"] if earlier else 0.0
        self.tokens = earlier[-1]["tokens"] if earlier else 0
        # ``start`` is the step at which this process begins: 0, or that of the checkpoint.
        self.start, self.log = self.global_steps, open_training_log(self.session.state)
        self.validation: dict[str, Any] = {}  # metrics of the last validation, until they are logged
        self.frozen = self._start_frozen()

    def _start_frozen(self) -> Any:
        """Start verl's server of the frozen initial policy on a GPU of its own. Returns its manager; None where the
        settings do not ask for such a server."""
        custom = self.config.actor_rollout_ref.rollout.get("custom") or {}
        if "frozen_memory" not in custom:
            return None
        self.session.announce("the frozen server")
        config = copy.deepcopy(self.config)
        with open_dict(config):
            rollout = config.actor_rollout_ref.rollout
            rollout.nnodes, rollout.n_gpus_per_node = 1, 1
            rollout.tensor_model_parallel_size, rollout.quantization = 1, None
            # "auto": it reads its weights from the folder of the policy, since the trainer sends it none.
            rollout.gpu_memory_utilization, rollout.load_format = custom["frozen_memory"], "auto"
            config.actor_rollout_ref.model.lora_rank = 0
        # Servers are numbered: this one follows the rollout servers.
        return LLMServerManager.create(config=config, start_rank=len(self.llm_server_manager.get_replicas()))

    def get_llm_client(self):
        """Return verl's client of the rollout servers; its attribute ``frozen`` is the client of the server of the
        frozen initial policy, or None."""
        client = super().get_llm_client()
        client.frozen = self.frozen and self.frozen.get_client()
        return client

    @property
    def _worker(self) -> Any:
        """The agent-loop worker, in which groups are scored; there is only one."""
        [worker] = self.agent_loop_manager.agent_loop_workers
        return worker

    def fit(self, agent_loop_manager):
        """Run verl's training. If the run resumes, the algorithm's state is restored first from the checkpoint.
        ``agent_loop_manager`` is verl's manager of the agent-loop workers."""
        self.session.announce("the first weights of the rollout servers")
        [worker] = agent_loop_manager.agent_loop_workers  # as ``_worker``, which works only after verl's ``fit`` began
        if (path := self._folder() / _CREDIT).exists():
            ray.get(worker.restore_credit.remote(path.read_bytes()))
        super().fit(agent_loop_manager)

    def _save_checkpoint(self):
        """Write verl's checkpoint and the state of the algorithm, and then remove older checkpoints."""
        folder = self._folder()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _CREDIT).write_bytes(ray.get(self._worker.credit_state.remote()))
        super()._save_checkpoint()
        keep_only(folder.parent, self.global_steps)

    def _folder(self) -> Path:
        """Return the folder of the checkpoint of the current step."""
        return checkpoint_folder(Path(self.config.trainer.default_local_dir), self.global_steps)

    def _validate(self):
        """Run verl's validation, and keep our metrics of it for the next row of the log. Before the first step they are
        logged at once, as step 0; a resumed run does not log them again. Returns verl's metrics."""
        self.session.announce()  # the run has started: verl validates before the first step
        metrics = super()._validate()
        self.validation = ray.get(self._worker.finish_validation.remote())
        if self.global_steps == self.start:  # before the first step; a resumed run has that row already
            if self.start == 0:
                self._write({"step": 0, "seconds": 0.0, "tokens": 0})
            self.validation = {}
        return metrics

    @property
    def _has_alternatives(self) -> bool:
        """Whether a batch can have further rows beside its trajectories (alternatives); all rows of the batch are then
        one mini-batch."""
        return algorithm_class(self.training_settings.algorithm).extra_samples

    def _get_required_batch_multiple(self, dp_size):
        """Return a number that must divide the number of rows of a batch; verl adds empty rows until it does. Without
        alternatives it is verl's own number. With alternatives it is the least common multiple of the rows that all
        ``dp_size`` data-parallel processes take in one pass, and of the group size, by which :meth:`_update_actor`
        divides the number of rows."""
        if not self._has_alternatives:
            return super()._get_required_batch_multiple(dp_size)
        actor = self.config.actor_rollout_ref.actor
        return math.lcm(dp_size * actor.ppo_micro_batch_size_per_gpu, self.training_settings.group_size)

    def _update_actor(self, batch, metrics):
        """Run verl's update of the policy. A batch with alternatives is one mini-batch: for this call its size is set
        to that of the batch, in verl's unit, cases of ``group_size`` rows each."""
        actor = self.config.actor_rollout_ref.actor
        mini_batch_size = actor.ppo_mini_batch_size
        if self._has_alternatives:
            actor.ppo_mini_batch_size = len(batch) // self.training_settings.group_size
        try:
            return super()._update_actor(batch, metrics)
        finally:
            actor.ppo_mini_batch_size = mini_batch_size

    def _compute_advantage(self, batch, metrics):
        """Get our advantages of the batch from the worker, and store them where verl expects rewards. Then run verl's
        own method, in which the estimator :func:`pass_on` returns them as advantages."""
        # The UID of each group, from the keys UID_MEMBER_OUTPUT of all rows but those with which verl pads a batch.
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")]
        uids = dict.fromkeys(uid for uid, _member, _output in (key.rsplit("_", 2) for key in keys))
        self.batch_advantages = ray.get(self._worker.finish_batch.remote(list(uids)))
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask"])
        masks = data["response_mask"].unbind()
        # Stored as rewards ("rm_scores"), one tensor per row.
        rewards = token_rewards(batch.keys, masks, self.batch_advantages, self.training_settings)
        nested = torch.nested.as_nested_tensor(rewards, layout=torch.jagged)
        fields = TensorDict({"rm_scores": nested}, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        return super()._compute_advantage(batch, metrics)

    def _compute_metrics(self, batch, metrics, timing_raw, global_steps, epoch):
        """Log the metrics of the step under our names, and add them to ``metrics``, those of verl. ``timing_raw`` has
        the seconds of each part of the step. Raises RuntimeError, after saving a checkpoint, where the run has to stop
        (:func:`~.session.reason_to_stop`)."""
        row = translate_metrics(self.batch_advantages.rollouts | self.batch_advantages.metrics, metrics, timing_raw)
        self.seconds += timing_raw["step"]
        credit_tokens = row.get("credit/probe_tokens", 0) + row.get("credit/continuation_tokens", 0)
        self.tokens += row["rollout/tokens"] + int(credit_tokens)
        self._write({"step": global_steps, "seconds": self.seconds, "tokens": self.tokens, **row})
        metrics.update(row)
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        if why := reason_to_stop(row):
            self._save_checkpoint()
            raise RuntimeError(
                f"step {global_steps}: {why} The state of this step is saved; the run continues from it."
            )

    def _write(self, row: dict[str, Any]) -> None:
        """Log a row of metrics, together with those of the last validation if these are not logged yet."""
        self.log(row | self.validation)
        self.validation = {}


@ray.remote
class DiagnosticTaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's task runner, in a process that knows our trainer and our advantage estimator."""

    def run(self, config):
        """Register our trainer and estimator in this process, and run verl's training under the configuration
        ``config``."""
        # Ray sends the class alone; importing its module registers trainer and estimator.
        importlib.import_module("cdpr.training.verl.trainer")
        read_session(config.data.cdpr_session).announce("the processes that hold a batch (TransferQueue)")
        return super().run(config)
