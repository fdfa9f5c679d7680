"""verl's FSDP training engine on a CPU. verl imports this module through ``model.external_lib``."""

from typing import Any

from torch.distributed.fsdp import FullyShardedDataParallel
from verl.workers.engine.fsdp import transformer_impl

from cdpr.training.verl import engine  # noqa: F401  (registers it)


class CpuFsdp(FullyShardedDataParallel):
    """FSDP1 without the broadcast of the first weights. The broadcast needs an accelerator; here every process has read
    the weights itself."""

    def __init__(self, module: Any, **options: Any):
        """Wrap ``module`` with the ``options`` of FSDP, but without ``sync_module_states``."""
        super().__init__(module, **options | {"sync_module_states": False})


def _do_nothing(*_: Any, **__: Any) -> None:
    """Replaces verl's functions that move weights between devices: here there is only one device."""


transformer_impl.FSDP = CpuFsdp
for name in ("load_fsdp_model_to_gpu", "load_fsdp_optimizer", "offload_fsdp_model_to_cpu", "offload_fsdp_optimizer"):
    setattr(transformer_impl, name, _do_nothing)
