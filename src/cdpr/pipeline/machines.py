"""What jobs request of a machine: resources in the names that Snakemake and its plugins for Slurm and Kubernetes share.

``mem_mb`` is memory in MB, ``runtime`` minutes, ``gpu`` the number of GPUs. Slurm and Kubernetes allocate them; on one
machine the profile runs jobs with GPUs one by one.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..settings import Machine, Settings

_MEMORY_OF_A_GPU = 64_000  # MB of main memory for each GPU: weights, optimiser state, caches
_CORES_OF_A_GPU = 8  # of a job, for each of its GPUs
_CORES_OF_VERL = 16  # trainer, servers, agent loop and Ray's own processes
_CPU = {"mem_mb": 4000}  # the resources of a job without a GPU


def shell_prefix(settings_file: str, source: Path | None) -> str:
    """Write what a shell does before the command of a job, as a pattern of Snakemake.

    ``settings_file`` has the resolved settings, which every job reads. ``source`` is the folder of this package where
    jobs run in a conda environment, which has all packages but this one; otherwise None.
    """
    # The `cdpr` beside this Python, if no activated environment has one earlier in PATH.
    find_command = f'export PATH="$PATH":{shlex.quote(os.path.dirname(sys.executable))}; '
    if source:
        find_command = f'export PYTHONPATH={shlex.quote(str(source))}; cdpr() {{ python -m cdpr.pipeline.cli "$@"; }}; '
    # Up to 1 GiB glibc keeps the freed memory of tensors. By default it returns it to the kernel and requests it again
    # in every step, which takes a quarter of an update's time.
    memory = "export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824"
    prefix = f"set -euo pipefail; export CDPR_SETTINGS={shlex.quote(settings_file)}; {memory}; {find_command}"
    # Snakemake replaces names in braces in this pattern; doubled braces become single ones.
    return prefix.replace("{", "{{").replace("}", "}}")


def follow_jobs(executor: Any) -> str:
    """Let Slurm's jobs be followed by `squeue` where `sacct` does not answer, as on a cluster without accounting: the
    plugin would ask it for minutes after a job has ended. ``executor`` are the settings of Snakemake's executor, which
    are changed. Returns a line for the user, empty where nothing is changed."""
    if getattr(executor, "status_command", None) != "sacct":
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["sacct", "--noheader", "--starttime", "now"], capture_output=True, timeout=60, check=True)
        return ""
    executor.status_command = "squeue"
    return "\n`sacct` does not answer (this Slurm keeps no accounts): `squeue` is asked how jobs end."


def training_machine(settings: Settings) -> dict[str, Any]:
    """The resources of a training job by Snakemake's names for them: ``{"gpu": 2, "mem_mb": 128000, ...}``."""
    verl = settings.training.verl
    if settings.training.engine != "verl":
        return _with_gpus(1) if _uses_gpu(settings) else dict(_CPU)
    # The Slurm plugin would add `--ntasks-per-gpu` to `--ntasks`, which Slurm refuses; 0 keeps it from that.
    several = {"nodes": verl.nodes, "tasks": verl.nodes, "tasks_per_gpu": 0, "mpi": "srun"} if verl.nodes > 1 else {}
    if verl.without_gpu:
        return {"mem_mb": 8000, **several}
    gpus = verl.gpus_of_node
    if verl.nodes == 1:
        return {**_with_gpus(gpus), "nodes": 1}
    # `gpu` counts the GPUs of all nodes, `gres` and the memory are those of one node.
    return {**_with_gpus(gpus), "gpu": gpus * verl.nodes, "gres": f"gpu:{gpus}", **several}


def training_threads(settings: Settings) -> int:
    """The number of cores of a training job, on each of its machines; Snakemake lowers it to the cores that there
    are."""
    training = settings.training
    if training.engine != "verl":
        return _CORES_OF_A_GPU if _uses_gpu(settings) else training.threads
    if training.verl.without_gpu:
        return max(2, training.threads)
    return max(_CORES_OF_VERL, _CORES_OF_A_GPU * training.verl.gpus_of_node)


def acting_machine(settings: Settings, elsewhere: Collection[str] = ()) -> dict[str, Any]:
    """The resources of a job in which a policy acts, by name, as a rule needs them.

    They are plain values where the policy computes on the CPU. Where it computes on a GPU, they are functions of the
    job's wildcards (:func:`by_wildcards`), because some runs request no GPU all the same: reference policies, which
    have no model, and the runs ``elsewhere``, whose model is on the server of another job.
    """
    if not _uses_gpu(settings):
        return dict(_CPU)
    without_gpu = {name for name, entry in settings.agents.items() if entry.knows_hospital} | {*elsewhere}
    with_gpu = _with_gpus(1)
    memory_alone = {"mem_mb": with_gpu["mem_mb"]}
    return by_wildcards(lambda job: memory_alone if getattr(job, "run", "") in without_gpu else with_gpu, with_gpu)


def acting_threads(settings: Settings) -> int:
    """The number of cores of a job in which a policy acts."""
    return _CORES_OF_A_GPU if _uses_gpu(settings) else 1


def serving_machine(machine: Machine) -> dict[str, Any]:
    """The resources of a job with a model server on ``machine``, by name. ``servers`` is 1 for each such job, so a
    profile can limit how many run on one machine at a time."""
    gpus = _with_gpus(machine.gpus) if machine.gpus else {}
    return {**gpus, "mem_mb": 1000 * machine.memory_gb, "runtime": 60 * machine.hours, "servers": 1}


def serving_machines(machine_of: Callable[[Any], Machine]) -> dict[str, Callable[[Any], Any]]:
    """The resources of jobs with a model server, for a rule: each is a function of the job's wildcards.
    ``machine_of(wildcards)`` is the machine of a job."""
    names = serving_machine(Machine(gpus=1))  # a machine with GPUs requests resources of all kinds
    return by_wildcards(lambda wildcards: serving_machine(machine_of(wildcards)), names)


def by_wildcards(resources: Callable[[Any], Mapping], names: Iterable[str]) -> dict[str, Callable[[Any], Any]]:
    """Turn ``resources``, a function from a job's wildcards to all its resources, into one function for each of the
    ``names``, as a rule needs them. A function returns None for a resource that the job does not request; it cannot
    return 0, which the Kubernetes plugin takes for a request of GPUs."""

    def resource(name: str) -> Callable[[Any], Any]:
        """The function for one name."""
        return lambda wildcards: resources(wildcards).get(name)

    return {name: resource(name) for name in names}


def _uses_gpu(settings: Settings) -> bool:
    """Whether the policy computes on a GPU; the tiny one is as quick on a CPU."""
    return settings.policy.model != "tiny" and settings.policy.device != "cpu"


def _with_gpus(count: int) -> dict[str, Any]:
    """The resources of a job with this number of GPUs. Kubernetes also needs to know their manufacturer. With ``scale``
    0 Snakemake's plugin for Kubernetes limits a job to what it requests."""
    return {"gpu": count, "gpu_manufacturer": "nvidia", "scale": 0, "mem_mb": _MEMORY_OF_A_GPU * count}
