"""What jobs request of a machine, in the words that Snakemake, its Slurm plugin and its Kubernetes plugin share.

``gpu`` counts a job's GPUs. Slurm and Kubernetes allocate them; on one machine the profile runs such jobs one by one.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..settings import Machine, Settings

_MEMORY_OF_A_GPU = 64_000  # MB of main memory for each GPU: weights, optimiser state, caches
_CORES_OF_A_GPU = 8
_CORES_OF_VERL = 16  # trainer, servers, agent loop and Ray's own processes
_CPU = {"mem_mb": 4000}


def shell_prefix(settings_file: str, source: Path | None) -> str:
    """What a shell does before the command of a job, as a pattern of Snakemake.

    Every job reads the resolved settings. Without an activated environment the ``cdpr`` beside this Python serves; a
    conda environment has all packages but this one, which is in the folder ``source``. glibc keeps the memory of
    tensors, which it would return to the kernel and request again in every step: a quarter of an update's time.
    """
    beside = f'export PATH="$PATH":{shlex.quote(os.path.dirname(sys.executable))}; '
    checkout = f'export PYTHONPATH={shlex.quote(str(source))}; cdpr() {{ python -m cdpr.pipeline.cli "$@"; }}; '
    prefix = (
        f"set -euo pipefail; export CDPR_SETTINGS={shlex.quote(settings_file)}; "
        f"export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824; {checkout if source else beside}"
    )
    return prefix.replace("{", "{{").replace("}", "}}")  # a folder's name is no pattern


def follow_jobs(executor: Any) -> str:
    """Have Slurm's jobs followed by `squeue` where `sacct` does not answer, as without accounting: the plugin would ask
    it for minutes after a job has ended. ``executor``: its settings. Returns a line that says so, else nothing."""
    if getattr(executor, "status_command", None) != "sacct":
        return ""
    try:
        answer = subprocess.run(["sacct", "--noheader", "--starttime", "now"], capture_output=True, timeout=60)
        if answer.returncode == 0:
            return ""
    except (OSError, subprocess.TimeoutExpired):
        pass
    executor.status_command = "squeue"
    return "\n`sacct` does not answer (this Slurm keeps no accounts): `squeue` is asked how jobs end."


def training_machine(settings: Settings) -> dict[str, Any]:
    """Resources of a training job."""
    verl = settings.training.verl
    if settings.training.engine != "verl":
        return _with_gpus(1) if _uses_gpu(settings) else dict(_CPU)
    # The Slurm plugin would add `--ntasks-per-gpu` to `--ntasks`, which Slurm refuses; 0 keeps it from that.
    several = {"nodes": verl.nodes, "tasks": verl.nodes, "tasks_per_gpu": 0, "mpi": "srun"} if verl.nodes > 1 else {}
    if verl.without_gpu:
        return {"mem_mb": 8000, **several}
    if verl.nodes == 1:
        return {**_with_gpus(verl.gpus_of_node), "nodes": 1}
    gpus = verl.gpus_of_node
    return {**_with_gpus(gpus), "gpu": gpus * verl.nodes, "gres": f"gpu:{gpus}", **several}


def training_threads(settings: Settings) -> int:
    """Cores of a training job, on each of its machines; Snakemake lowers them to those of one's own machine."""
    if settings.training.engine == "verl" and not settings.training.verl.without_gpu:
        return max(_CORES_OF_VERL, _CORES_OF_A_GPU * settings.training.verl.gpus_of_node)
    if settings.training.engine == "verl":
        return max(2, settings.training.threads)
    return _CORES_OF_A_GPU if _uses_gpu(settings) else settings.training.threads


def acting_machine(settings: Settings, elsewhere: Collection[str] = ()) -> dict[str, Any]:
    """Resources of a job in which a policy acts. Reference policies need no model, and runs ``elsewhere`` have theirs
    in another job: they request no GPU."""
    if not _uses_gpu(settings):
        return dict(_CPU)
    without = {name for name, entry in settings.agents.items() if entry.knows_hospital} | {*elsewhere}
    whole = _with_gpus(1)
    return by_job(lambda job: {"mem_mb": whole["mem_mb"]} if getattr(job, "run", "") in without else whole, whole)


def by_job(resources: Callable[[Any], Mapping[str, Any]], names: Iterable[str]) -> dict[str, Callable[[Any], Any]]:
    """Resources with these names that depend on a job's wildcards. One that a job lacks is None, which is none at all:
    the Kubernetes plugin takes even 0 GPUs for a request."""

    def resource(name: str) -> Callable[[Any], Any]:
        return lambda wildcards: resources(wildcards).get(name)

    return {name: resource(name) for name in names}


def acting_threads(settings: Settings) -> int:
    """Cores of such a job."""
    return _CORES_OF_A_GPU if _uses_gpu(settings) else 1


def serving_machine(machine: Machine) -> dict[str, Any]:
    """Resources of a job with a model server; ``servers`` lets a profile say how many run on one machine at a time."""
    gpus = _with_gpus(machine.gpus) if machine.gpus else {}
    return {**gpus, "mem_mb": 1000 * machine.memory_gb, "runtime": 60 * machine.hours, "servers": 1}


def serving_machines(machine_of: Callable[[Any], Machine]) -> dict[str, Callable[[Any], Any]]:
    """Map each resource of :func:`serving_machine` to a function that finds it by a job's wildcards."""
    names = ("gpu", "gpu_manufacturer", "scale", "mem_mb", "runtime", "servers")
    return by_job(lambda wildcards: serving_machine(machine_of(wildcards)), names)


def _uses_gpu(settings: Settings) -> bool:
    """Whether the policy computes on a GPU; the tiny one is as quick on a CPU."""
    return settings.policy.model != "tiny" and settings.policy.device != "cpu"


def _with_gpus(count: int) -> dict[str, Any]:
    """Kubernetes wants to know whose GPUs, and for GPUs a limit too, which ``scale`` 0 sets."""
    return {"gpu": count, "gpu_manufacturer": "nvidia", "scale": 0, "mem_mb": _MEMORY_OF_A_GPU * count}
