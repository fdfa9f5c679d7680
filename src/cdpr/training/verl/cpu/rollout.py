"""Our sampler as a rollout server of verl: actor with the weights, replica that starts it, adapter for new weights."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import torch
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from ....llm.sampler import InProcessSampler
from ....llm.tokenizer import ChatTokenizer
from ...torch.weights import load_model
from .reply import answer_request

NAME = "cpu"


class CpuServer:
    """The Ray actor with model and sampler. It never sleeps, so most of verl's calls do nothing."""

    def __init__(self, folder: str):
        self.model, self.version = load_model(Path(folder)), 0
        self.sampler = InProcessSampler.from_model(self.model, ChatTokenizer(folder))

    async def generate(self, request_id: str, prompt_ids: Any, sampling_params: Any, **_: Any) -> TokenOutput:
        """Answer a request (:func:`~.reply.answer_request`)."""
        return TokenOutput(**await answer_request(self.sampler, prompt_ids, sampling_params, self.version))

    async def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace the weights by those of a ``version`` (None: unknown). Raises KeyError where their names are not
        those of the model."""
        keys = self.model.load_state_dict(weights, strict=False)
        missing = [name for name in keys.missing_keys if name != "lm_head.weight"]  # tied to the embedding
        if missing or keys.unexpected_keys:
            raise KeyError(f"weights do not match the model: missing {missing[:3]}, unknown {keys.unexpected_keys[:3]}")
        self.sampler.refresh()
        self.version = self.version if version is None else version

    async def set_global_steps(self, version: int) -> None:
        """Set the version of the weights, which replies carry."""
        self.version = version

    async def _do_nothing(self, *_: Any, **__: Any) -> None:
        """Replace verl's calls that have no meaning here."""
        return None

    ready = wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _do_nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = _do_nothing


def _actor_name(rank: int) -> str:
    """Return the name in Ray of the actor of the replica with this rank."""
    return f"cdpr_cpu_server_{rank}"


class Replica(RolloutReplica):
    """verl's handle of one server, which starts its actor."""

    async def launch_servers(self) -> None:
        """Start the actor with the weights of the model's folder, and wait until they are loaded."""
        name, config = _actor_name(self.replica_rank), self.model_config
        folder = config.local_path if hasattr(config, "local_path") else config["path"]
        actor = ray.remote(CpuServer).options(name=name, num_cpus=1, max_concurrency=self.max_concurrency)
        server = actor.remote(str(folder))
        await server.ready.remote()  # when the weights are loaded
        self.servers, self._server_handle, self._server_address = [server], server, name


class Adapter(base.BaseRollout):
    """verl's adapter in the trainer's process: sends the weights to the server after every step."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, *_: Any, **__: Any):
        super().__init__(config, model_config, device_mesh)
        rank, size = int(os.environ["RANK"]), self.config.tensor_model_parallel_size
        self.replica_rank = rank // size if replica_rank == -1 else replica_rank
        self.is_leader_rank = rank % size == 0
        self.sleep_level = 2

    async def resume(self, tags: Any) -> None:
        """Do nothing: the server never sleeps."""

    async def release(self) -> None:
        """Do nothing: the server never sleeps."""

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        """Send all weights to the server in one call."""
        tensors = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        if self.is_leader_rank:
            await ray.get_actor(_actor_name(self.replica_rank)).load_weights.remote(tensors, global_steps)


def _vllm_replica() -> type[RolloutReplica]:
    """Return the class of verl's handle of a vLLM server; vLLM is imported only where it serves."""
    from .vllm_server import Replica

    return Replica


RolloutReplicaRegistry.register(NAME, lambda: Replica)
RolloutReplicaRegistry.register("vllm", _vllm_replica)
# No public function registers an adapter: verl 0.9.1 looks only in this table.
base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.Adapter"
