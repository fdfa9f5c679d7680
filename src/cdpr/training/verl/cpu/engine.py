"""verl's FSDP engine on a CPU; loaded through ``model.external_lib``."""

from typing import Any

from torch.distributed.fsdp import FullyShardedDataParallel
from verl.workers.engine.fsdp import transformer_impl

from .. import engine  # noqa: F401  (registers it)


class CpuFsdp(FullyShardedDataParallel):
    """FSDP1 without the broadcast of the first weights, which needs an accelerator: every process has read them."""

    def __init__(self, module: Any, **options: Any):
        super().__init__(module, **options | {"sync_module_states": False})


def _do_nothing(*_: Any, **__: Any) -> None:
    """Replace verl's functions that move weights between devices: there is only one device."""


transformer_impl.FSDP = CpuFsdp
for name in ("load_fsdp_model_to_gpu", "load_fsdp_optimizer", "offload_fsdp_model_to_cpu", "offload_fsdp_optimizer"):
    setattr(transformer_impl, name, _do_nothing)
