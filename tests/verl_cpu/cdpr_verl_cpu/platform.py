"""Registers the CPU as one of verl's platforms. Ray counts logical "GPUs", on which verl places its processes."""

import contextlib
import os
import types
from typing import Any

import torch
import torch.distributed as dist
from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.plugin.platform.platform_manager import PlatformRegistry


def _do_nothing(*_: Any, **__: Any) -> None:
    """Replaces a function of an accelerator that has no meaning on a CPU."""


def _device_module() -> types.ModuleType:
    """Make a module that verl can use instead of ``torch.cuda``. Its functions are those of ``torch.cpu``; others that
    verl calls do nothing or report a memory of 0 bytes."""
    functions: dict[str, Any] = {name: value for name, value in vars(torch.cpu).items() if not name.startswith("__")}
    actions = "empty_cache init ipc_collect manual_seed manual_seed_all reset_peak_memory_stats set_device synchronize"
    functions |= dict.fromkeys(actions.split(), _do_nothing)
    memory = "max_memory_allocated max_memory_reserved memory_allocated memory_reserved"
    functions |= dict.fromkeys(memory.split(), lambda *_, **__: 0)
    functions |= {"get_device_name": lambda *_: "cpu", "is_available": lambda: False, "mem_get_info": lambda *_: (0, 0)}
    functions |= {"get_rng_state": torch.get_rng_state, "set_rng_state": torch.set_rng_state}
    module = types.ModuleType("cdpr_cpu_device")
    vars(module).update(functions)
    return module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformCUDA):
    """verl's platform of a CPU: one device, named ``cpu``, with collective operations over gloo. To Ray it is a GPU."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    set_device = synchronize = set_allocator_settings = empty_cache = _do_nothing
    profiler_start = profiler_stop = cudart = _do_nothing
    nvtx_range = contextlib.nullcontext  # on a CPU no GPU profiler displays a range

    def is_available(self) -> bool:
        """Return True: every machine has a CPU."""
        return True

    def current_device(self):
        """Return the name of the only device, ``cpu``."""
        return "cpu"

    def device_count(self) -> int:
        """Return 1, the number of devices of a process."""
        return 1

    def manual_seed(self, seed: int) -> None:
        """Seed torch's random numbers; verl calls it for the seed of the accelerator."""
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def communication_backend_name(self) -> str:
        """Return ``gloo``, the backend of collective operations. As a side effect, create the process group that the
        environment variables describe, if it does not exist yet."""
        # verl calls this before it creates the process group, with a backend that torch refuses ("cpu:gloo,cpu:gloo").
        # Where a group exists already, verl creates none.
        if not dist.is_initialized() and {"MASTER_ADDR", "RANK", "WORLD_SIZE"} <= os.environ.keys():
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            dist.init_process_group("cpu:gloo", os.environ.get("DIST_INIT_METHOD"), rank=rank, world_size=size)
        return "gloo"

    def is_ipc_supported(self) -> bool:
        """Return False: processes cannot share the memory of an accelerator."""
        return False
