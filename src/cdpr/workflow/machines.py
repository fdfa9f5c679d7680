"""What jobs ask of a cluster, as Snakemake and `snakemake-executor-plugin-slurm` name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..settings import Machine, Settings

_MEMORY_OF_A_GPU = 64_000  # MB of main memory that a job with a GPU asks for: weights, optimiser state, caches


def training_machine(settings: Settings) -> dict[str, Any]:
    """Resources of a training job."""
    verl = settings.training.verl
    if settings.training.engine == "verl":
        # The plugin would ask for `--ntasks-per-gpu` beside `--ntasks`, which Slurm refuses; 0 tells it not to.
        several = {"nodes": verl.nodes, "tasks": verl.nodes, "tasks_per_gpu": 0, "mpi": "srun"}
        many = several if verl.nodes > 1 else {}
        if verl.without_gpu:
            return {"mem_mb": 8000, **many}
        gpus = verl.gpus_per_node + (0 if verl.frozen.url or verl.frozen.beside else verl.frozen.gpus)
        return {"gres": f"gpu:{gpus}", "mem_mb": _MEMORY_OF_A_GPU * gpus, **many}
    if settings.policy.model != "tiny":
        return {"gpu": 1, "mem_mb": _MEMORY_OF_A_GPU}
    return {"mem_mb": 4000}


def evaluation_machine(settings: Settings, without_model: Callable[[str], bool]) -> dict[str, Any]:
    """Resources of an evaluation job; reference policies need no GPU."""
    if settings.policy.model == "tiny":
        return {"mem_mb": 4000}
    return {"mem_mb": _MEMORY_OF_A_GPU, "gpu": lambda wildcards: int(not without_model(wildcards.run))}


def serving_machine(asked: Machine) -> dict[str, Any]:
    """Resources of a job with a model server; ``servers`` lets a profile say how many run on one machine at a time."""
    gpus = {"gpu": asked.gpus} if asked.gpus else {}
    return {"mem_mb": 1000 * asked.memory_gb, "runtime": 60 * asked.hours, "servers": 1, **gpus}
