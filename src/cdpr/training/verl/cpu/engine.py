"""verl's FSDP2 engine on a CPU; loaded through ``model.external_lib``."""

from __future__ import annotations

from typing import Any

from verl.workers.engine import EngineRegistry, FSDPEngineWithLMHead


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cpu"])
class CpuEngine(FSDPEngineWithLMHead):
    """As it is, but that models which are only read are not pinned: pinning memory needs an accelerator."""

    def _build_fsdp_module(self, module: Any) -> Any:
        read_only, self.engine_config.forward_only = self.engine_config.forward_only, False
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config.forward_only = read_only
