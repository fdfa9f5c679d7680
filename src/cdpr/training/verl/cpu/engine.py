"""verl's FSDP engines on a CPU; loaded through ``model.external_lib``."""

from __future__ import annotations

from typing import Any

from torch.distributed.fsdp import FullyShardedDataParallel
from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead
from verl.workers.engine.fsdp import transformer_impl


class _CpuFsdp(FullyShardedDataParallel):
    def __init__(self, module: Any, **options: Any):
        super().__init__(module, **options | {"sync_module_states": False})


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device=["cpu"])
class CpuEngine(FSDPEngineWithLMHead):
    """As it is, but for two things that need an accelerator: FSDP2 would pin the memory of models that are only read,
    and FSDP1 would broadcast the weights, which every process has read itself."""

    def _build_fsdp_module(self, module: Any) -> Any:
        read_only, self.engine_config.forward_only = self.engine_config.forward_only, False
        transformer_impl.FSDP = _CpuFsdp
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config.forward_only = read_only
            transformer_impl.FSDP = FullyShardedDataParallel
