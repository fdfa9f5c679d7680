"""The Ray actors in which groups are worked up and credited, and the order of a batch."""

from __future__ import annotations

from typing import Any

import ray
import transfer_queue as tq
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from ...llm.guard import is_local
from .agent_loop import GroupHook
from .session import read_session


class GroupWorker(GroupHook, AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """The worker of a run."""


class GroupManager(AgentLoopManagerTQ):
    """Starts :class:`GroupWorker`; verl's ``rollout.agent.agent_loop_manager_class``."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        frozen = read_session(self.config.data.cdpr_session).settings.training.verl.frozen
        self.agent_loop_workers_class = ray.remote(**needs_of(frozen.url))(GroupWorker)


def needs_of(url: str | None) -> dict[str, Any]:
    """Ray's options of an actor that uses the server at ``url``. A local address is valid only on the cluster's first
    machine, where the run and its server started; verl would choose any machine."""
    return {"num_cpus": 0, "resources": {"node:__internal_head__": 1e-3} if url and is_local(url) else {}}


class ScheduledBatch(ReplayBuffer):
    """verl's buffer of finished episodes (``trainer.v1.sampler.custom_sampler``), in the order of the schedule. In the
    order of their ends the first mini-batch would hold the short workups; sums of floats depend on the order too."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Keys of ``batch_size`` groups, by row of the schedule and number in the group, and verl's metrics. Raises
        RuntimeError, as verl does, where no episode of them is there."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=["index"])
        numbers = (map(int, key.rsplit("_", 2)[1:]) for key in batch.keys)  # {uid}_{session}_{output}
        places = [(int(row), *number) for row, number in zip(rows["index"], numbers, strict=True)]
        batch.reorder(sorted(range(len(places)), key=places.__getitem__))
        return batch, metrics
