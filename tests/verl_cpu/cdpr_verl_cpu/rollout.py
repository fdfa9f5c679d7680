"""The in-process sampler as a rollout server of verl: the Ray actor with the weights, the handle that starts it, and
the adapter that sends new weights to it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
import torch
from verl.workers.rollout import base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.training.torch.weights import load_model

from .reply import answer_request

NAME = "cpu"


async def _do_nothing(self: Any, *_: Any, **__: Any) -> None:
    """Replaces verl's calls that have no meaning here, such as waking the server, which never sleeps."""


class CpuServer:
    """The Ray actor with model and sampler, one of verl's rollout servers. It never sleeps, so most of verl's calls do
    nothing."""

    def __init__(self, folder: str):
        """Load the model in the Hugging Face folder ``folder``; its weights have the version 0."""
        self.model, self.version = load_model(Path(folder)), 0
        self.sampler = InProcessSampler.from_model(self.model, ChatTokenizer(folder))

    async def generate(self, request_id: str, prompt_ids: Any, sampling_params: Any, **_: Any) -> TokenOutput:
        """Sample a reply to ``prompt_ids``, or score the prompt (:func:`~.reply.answer_request`)."""
        return TokenOutput(**await answer_request(self.sampler, prompt_ids, sampling_params, self.version))

    async def load_weights(self, weights: Mapping[str, torch.Tensor], version: int | None) -> None:
        """Replace the model's weights by ``weights``, and keep their ``version`` (None: leave it as it was). Raises
        KeyError where the names of the weights are not those of the model."""
        keys = self.model.load_state_dict(weights, strict=False)
        missing = [name for name in keys.missing_keys if name != "lm_head.weight"]  # tied to the embedding
        if missing or keys.unexpected_keys:
            raise KeyError(f"weights do not match the model: missing {missing[:3]}, unknown {keys.unexpected_keys[:3]}")
        self.sampler.refresh()
        self.version = self.version if version is None else version

    async def set_global_steps(self, version: int) -> None:
        """Set the version of the weights, which every reply reports."""
        self.version = version

    ready = wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _do_nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = _do_nothing


def _actor_name(rank: int) -> str:
    """Return Ray's name of the server actor with this ``rank`` among the servers."""
    return f"cdpr_cpu_server_{rank}"


class Replica(RolloutReplica):
    """verl's handle of one rollout server; it starts the server's actor."""

    async def launch_servers(self) -> None:
        """Start the actor with the weights in the model's folder, and wait until they are loaded."""
        name, config = _actor_name(self.replica_rank), self.model_config
        folder = config.local_path if hasattr(config, "local_path") else config["path"]
        actor = ray.remote(CpuServer).options(name=name, num_cpus=1, max_concurrency=self.max_concurrency)
        server = actor.remote(str(folder))
        await server.ready.remote()  # when the weights are loaded
        self.servers, self._server_handle, self._server_address = [server], server, name


class Adapter(base.BaseRollout):
    """verl's weight adapter in the trainer's process: after every step it sends the new weights to the server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, *_: Any, **__: Any):
        """Find the rank of the server that this process serves. Training processes are numbered (``RANK``), and
        ``tensor_model_parallel_size`` consecutive ones share a server; the first of them, its leader, sends the
        weights. A ``replica_rank`` other than -1 is the rank of the server itself."""
        super().__init__(config, model_config, device_mesh)
        rank, size = int(os.environ["RANK"]), self.config.tensor_model_parallel_size
        self.replica_rank = rank // size if replica_rank == -1 else replica_rank
        self.is_leader_rank = rank % size == 0
        self.sleep_level = 2  # in verl's words: a server that lost its weights while asleep, and needs all of them

    resume = release = _do_nothing

    async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
        """Send all ``weights`` (pairs of name and tensor) to the server in one call, in float32; ``global_steps`` is
        their version."""
        tensors = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        if self.is_leader_rank:
            await ray.get_actor(_actor_name(self.replica_rank)).load_weights.remote(tensors, global_steps)


def _vllm_replica() -> type[RolloutReplica]:
    """Return the class of verl's handle of a vLLM server. Importing it imports vLLM, so this is called only where vLLM
    serves."""
    from .vllm_server import Replica

    return Replica


RolloutReplicaRegistry.register(NAME, lambda: Replica)
RolloutReplicaRegistry.register("vllm", _vllm_replica)
# No public function registers an adapter: verl 0.9.1 looks only in this table.
base._ROLLOUT_REGISTRY[NAME, "async"] = f"{__name__}.Adapter"
