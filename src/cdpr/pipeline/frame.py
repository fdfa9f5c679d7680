"""The frame around every stage: its outputs appear whole or not at all, and ``run.json`` records how they were made."""

import functools
import hashlib
import os
import platform
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from ..files import path_digest, write_text
from ..job import Job
from ..locks import hold
from ..records import FileDigest, RunRecord
from .run_key import PACKAGE_FOLDER

# The packages whose versions run.json records.
_PACKAGES = ["cdpr", "torch", "transformers", "numpy", "pandas", "duckdb", "snakemake", "verl", "vllm", "sglang", "ray"]


class StageError(RuntimeError):
    """An input of a stage is missing, or the stage did not write an output."""


@contextmanager
def stage(
    begun: RunRecord, inputs: Mapping[str, Path], outputs: Mapping[str, Path], record: Path, state: Path
) -> Iterator[Job]:
    """Run a stage in this context: yields the :class:`~cdpr.job.Job` on which its function works. When the context
    ends, the outputs are renamed to their paths, and ``record`` (a ``run.json``) is written last.

    ``begun`` is the record as far as it is known before the job runs. ``inputs`` and ``outputs`` are files or folders
    by name; ``state`` is the folder of unfinished work of all jobs. After an error the outputs of an earlier run are
    unchanged and no new file remains, except in ``state``. Raises :class:`StageError` for a missing input or output.
    Waits while another process makes the same record.
    """
    name = begun.stage
    for label, path in inputs.items():
        if not path.exists():
            raise StageError(f"stage {name}: input {label!r} is missing: {path}; make it first, or correct its path")
    # The temporary path of each output: in a folder of this job, beside the path to which it is renamed at the end.
    partial = {label: path.parent / f".partial-{name}-{record.name}" / path.name for label, path in outputs.items()}
    job = Job(name, begun.run_key, dict(inputs), partial, begun.seed, state / begun.run_key, begun.options,
              tags=dict(begun.tags))  # fmt: skip
    started, clock = datetime.now(UTC), time.perf_counter()
    lock = state / "locks" / hashlib.sha256(str(record.resolve()).encode()).hexdigest()[:16]
    with _wait_for_lock(lock, f"stage {name}"), ExitStack() as cleaning:
        for folder in {path.parent for path in partial.values()}:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            cleaning.callback(shutil.rmtree, folder, ignore_errors=True)
        for left_over in job.state.glob("*.partial"):  # of a process that was killed while it saved
            shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
        yield job
        _move_outputs(name, partial, outputs)
        finished = begun.model_dump() | {
            "tags": job.tags, "metrics": job.metrics,
            "outputs": describe_files(outputs),
            "started": started.isoformat(timespec="seconds"),
            "wall_seconds": round(time.perf_counter() - clock, 3),
            "cpu_seconds": _count_cpu_seconds(),
            "peak_memory_mb": peak_memory_mb(), "versions": versions(), "commit": _find_commit(),
        }  # fmt: skip
        write_text(record, RunRecord.model_validate(finished).model_dump_json(indent=2) + "\n")


def _wait_for_lock(path: Path, name: str) -> ExitStack:
    """Acquire the lock of a job and return it as a context. A killed workflow may leave a running job behind. A later
    job for the same outputs then prints that it waits, and waits until the earlier one has ended."""
    try:
        return hold(path, wait=False)
    except TimeoutError as error:
        print(f"{name}: another process is still working on it; waiting for its end ({error})", flush=True)
        return hold(path)


def _move_outputs(name: str, partial: Mapping[str, Path], outputs: Mapping[str, Path]) -> None:
    """Rename the outputs of the stage ``name``, files or folders, from their temporary paths ``partial`` to their paths
    ``outputs``. Both are dictionaries with the same names of outputs. Raises StageError where an output was not
    written; then none is renamed."""
    for label, path in partial.items():
        if not path.exists():
            raise StageError(f"stage {name} ended without writing its output {label!r} ({outputs[label]})")
    for label, path in partial.items():
        if outputs[label].is_dir() and not outputs[label].is_symlink():  # a rename cannot replace a folder
            shutil.rmtree(outputs[label])
        os.replace(path, outputs[label])


_counted = 0.0  # CPU seconds of this process that are in records


def _count_cpu_seconds() -> float:
    """Return the CPU seconds of this process since the last call. The first call counts from the start of the process,
    so the imports count for its first job."""
    global _counted
    before, _counted = _counted, time.process_time()
    return round(_counted - before, 3)


def peak_memory_mb() -> float:
    """The largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS, in KiB elsewhere
    return round(peak / (1024 * 1024 if platform.system() == "Darwin" else 1024), 1)


@functools.cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that results may depend on, by name. No package is imported."""
    by_package = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            by_package[package] = metadata.version(package)
    return by_package


def describe_files(paths: Mapping[str, Path]) -> dict[str, FileDigest]:
    """The path and SHA-256 of files and folders, by name."""
    return {label: FileDigest(path=str(path), sha256=path_digest(path)) for label, path in paths.items()}


def _find_commit() -> str | None:
    """The git commit of the checkout that holds the package; None outside a checkout."""
    command = ["git", "-C", str(PACKAGE_FOLDER), "rev-parse", "HEAD"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip() or None
    return None
