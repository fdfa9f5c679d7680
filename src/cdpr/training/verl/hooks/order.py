"""The order of a batch: that of the schedule, not that in which episodes happened to end."""

from __future__ import annotations

from typing import Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer


class ScheduledBatch(ReplayBuffer):
    """verl's buffer of finished episodes (``trainer.v1.sampler.custom_sampler``). By the order in which they ended, the
    first mini-batch would be that of short workups; sums of floats depend on the order too."""

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Keys of ``batch_size`` groups, by row of the schedule and number in the group, and verl's metrics. Raises
        RuntimeError, as verl does, where no episode of them is there."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        rows = tq.kv_batch_get(keys=batch.keys, partition_id=partition_id, select_fields=["index"])
        numbers = (map(int, key.rsplit("_", 2)[1:]) for key in batch.keys)  # {uid}_{session}_{output}
        places = [(int(row), *number) for row, number in zip(rows["index"], numbers, strict=True)]
        batch.reorder(sorted(range(len(places)), key=places.__getitem__))
        return batch, metrics
