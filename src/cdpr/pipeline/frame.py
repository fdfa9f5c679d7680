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
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from ..files import path_digest, write_text
from ..job import Job
from ..locks import hold
from ..records import FileDigest, RunRecord
from .run_key import package_folder

_PACKAGES = ["cdpr", "torch", "transformers", "numpy", "pandas", "duckdb", "snakemake", "verl", "vllm", "sglang", "ray"]


class StageError(RuntimeError):
    """An input of a stage is missing, or the stage did not write an output."""


@contextmanager
def stage(
    job: RunRecord, inputs: Mapping[str, Path], outputs: Mapping[str, Path], record: Path, state: Path
) -> Iterator[Job]:
    """Time a stage, move its outputs to their places when it succeeds, and write ``record`` (a ``run.json``) last.

    ``job`` holds what is known before; ``inputs`` and ``outputs`` map names to files or folders, ``state`` is the root
    of the state folders. After an error the outputs of an earlier run are unchanged and no new file remains. Raises
    :class:`StageError` for a missing input or output.
    """
    name = job.stage
    for label, path in inputs.items():
        if not path.exists():
            raise StageError(f"stage {name}: input {label!r} is missing: {path}; make it first, or correct its path")
    out = {label: path.parent / f".partial-{name}-{record.name}" / path.name for label, path in outputs.items()}
    staging = {path.parent for path in out.values()}
    at_work = Job(name, job.run_key, dict(inputs), out, job.seed, state / job.run_key, job.options, tags=dict(job.tags))
    started, clock = datetime.now(UTC), time.perf_counter()
    lock = hashlib.sha256(str(record.resolve()).encode()).hexdigest()[:16]
    with exclusive(state / "locks" / lock, f"stage {name}"):
        for folder in staging:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        for partial in at_work.state.glob("*.partial"):  # of a process that was killed while it saved
            shutil.rmtree(partial) if partial.is_dir() else partial.unlink()
        try:
            yield at_work
            for label, path in out.items():
                if not path.exists():
                    raise StageError(f"stage {name} ended without writing its output {label!r} ({outputs[label]})")
            for label, path in out.items():
                if outputs[label].is_dir() and not outputs[label].is_symlink():  # a rename cannot replace a folder
                    shutil.rmtree(outputs[label])
                os.replace(path, outputs[label])
            finished = job.model_dump() | {
                "tags": at_work.tags, "metrics": at_work.metrics,
                "inputs": job.inputs or _describe(inputs), "outputs": _describe(outputs),
                "started": started.isoformat(timespec="seconds"),
                "wall_seconds": round(time.perf_counter() - clock, 3), "cpu_seconds": _cpu_seconds(),
                "peak_memory_mb": peak_memory_mb(), "versions": versions(), "commit": _commit(),
            }  # fmt: skip
            write_text(record, RunRecord.model_validate(finished).model_dump_json(indent=2) + "\n")
        finally:
            for folder in staging:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def exclusive(path: Path, name: str) -> Iterator[None]:
    """Hold a file lock until the block or the process ends; wait while another process holds it.

    A killed workflow may leave a running job behind: the next job for the same outputs lets it finish first.
    """
    try:
        lock = hold(path, wait=False)
    except TimeoutError as error:
        print(f"{name}: another process is still working on it; waiting for its end ({error})", flush=True)
        lock = hold(path)
    with lock:
        yield


_counted = 0.0  # CPU seconds of this process that are in records


def _cpu_seconds() -> float:
    """CPU seconds of this process since the stage before, or since its start."""
    global _counted
    before, _counted = _counted, time.process_time()
    return round(_counted - before, 3)


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if platform.system() == "Darwin" else 1024), 1)


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results may depend on, read without importing them."""
    by_package = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            by_package[package] = metadata.version(package)
    return by_package


def _describe(paths: Mapping[str, Path]) -> dict[str, FileDigest]:
    return {label: FileDigest(path=str(path), sha256=path_digest(path)) for label, path in paths.items()}


def _commit() -> str | None:
    """Commit of the checkout that holds the package; None outside a checkout."""
    command = ["git", "-C", str(package_folder()), "rev-parse", "HEAD"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip() or None
    return None
