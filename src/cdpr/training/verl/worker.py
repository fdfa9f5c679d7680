"""The Ray actors in which groups are worked up and credited."""

from __future__ import annotations

from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from .group import GroupHook


class GroupWorker(GroupHook, AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """The worker of a run."""


class GroupManager(AgentLoopManagerTQ):
    """Starts :class:`GroupWorker`; verl's ``rollout.agent.agent_loop_manager_class``."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(GroupWorker)
