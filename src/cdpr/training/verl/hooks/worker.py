"""The Ray actors in which groups are worked up and credited."""

from __future__ import annotations

from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from ....llm.guard import is_local
from ..session import read_session
from .group import GroupHook


class GroupWorker(GroupHook, AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """The worker of a run."""


class GroupManager(AgentLoopManagerTQ):
    """Starts :class:`GroupWorker`; verl's ``rollout.agent.agent_loop_manager_class``."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        frozen = read_session(self.config.data.cdpr_session).settings.training.verl.frozen
        self.agent_loop_workers_class = ray.remote(**needs_of(frozen.url))(GroupWorker)


def needs_of(url: str | None) -> dict[str, Any]:
    """What an actor that asks the server at ``url`` needs of its machine, as Ray's options. An address that means its
    own machine holds on the cluster's first one alone, where the run and its server started; verl would choose any."""
    return {"num_cpus": 0, "resources": {"node:__internal_head__": 1e-3} if url and is_local(url) else {}}
