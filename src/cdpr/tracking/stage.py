"""The frame around every stage: outputs appear whole or not at all, and ``run.json`` says how they came about."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
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
from typing import Any

from ..files import path_digest, write_text
from ..job import Job
from ..records import PIPELINE, FileDigest, RunRecord
from ..run_key import package_folder

_PACKAGES = ("cdpr", "torch", "transformers", "numpy", "pandas", "duckdb", "snakemake", "verl", "vllm", "sglang",
             "ray")  # fmt: skip


class StageError(RuntimeError):
    """A stage that broke its contract: an input is missing or an output was not written."""


@contextmanager
def stage(
    name: str,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str | Path],
    outputs: Mapping[str, str | Path],
    key: str,
    *,
    record: str | Path,
    state: str | Path = "state",
    options: Mapping[str, str] | None = None,
    code: str = "",
    tier: str = "demo",
    tags: Mapping[str, str] | None = None,
    seed: int | None = None,
    experiment: str = PIPELINE,
) -> Iterator[Job]:
    """Time a stage, keep its outputs whole, and write ``record`` (a ``run.json``) last, all atomically.

    ``inputs`` and ``outputs`` map names to files or folders; ``parameters`` is the slice of settings that the stage
    reads, ``state`` the root of the state folders, ``experiment`` where MLflow lists the run. On any error the outputs
    of an earlier run stay as they were and nothing new is left behind. Raises :class:`StageError` for a missing input
    or an output that was not written.
    """
    for label, path in inputs.items():
        if not Path(path).exists():
            raise StageError(f"stage {name}: input {label!r} is missing: {path}; make it first, or correct its path")
    record = Path(record)
    final = {label: Path(path) for label, path in outputs.items()}
    out = {label: path.parent / f".partial-{name}-{record.name}" / path.name for label, path in final.items()}
    staging = {path.parent for path in out.values()}
    run = Job(name, key, {label: Path(path) for label, path in inputs.items()}, out, seed, Path(state) / key,
              dict(options or {}), tags=dict(tags or {}))  # fmt: skip
    started, clock = datetime.now(UTC), time.perf_counter()
    lock = hashlib.sha256(str(record.resolve()).encode()).hexdigest()[:16]
    with exclusive(Path(state) / "locks" / lock, f"stage {name}"):
        for folder in staging:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        try:
            yield run
            _put_all(run, final)
            done = RunRecord(
                stage=name, experiment=experiment, run_key=key, tier=tier, seed=seed, options=run.options,
                tags=run.tags, parameters=dict(parameters), metrics=run.metrics, code_digest=code,
                inputs=_describe(inputs), outputs=_describe(final), started=started.isoformat(timespec="seconds"),
                wall_seconds=round(time.perf_counter() - clock, 3), cpu_seconds=round(time.process_time(), 3),
                peak_memory_mb=peak_memory_mb(), versions=versions(), commit=_commit(),
            )  # fmt: skip
            write_text(record, json.dumps(done.model_dump(), indent=2, ensure_ascii=False) + "\n")
        finally:
            for folder in staging:
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def exclusive(path: Path, who: str) -> Iterator[None]:
    """Hold a file lock that ends with the process, however it ends; wait while another process holds it.

    A workflow that was killed may leave a job behind: the next one for the same outputs lets it finish first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{who}: another process is still at work on it; waiting for its end", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 * 1024 if platform.system() == "Darwin" else 1024), 1)


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results may depend on, read without importing them."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _put_all(run: Job, final: Mapping[str, Path]) -> None:
    """All outputs to their places, or none where one was not written."""
    for label, path in run.out.items():
        if not path.exists():
            raise StageError(f"stage {run.name} ended without writing its output {label!r} ({final[label]})")
    for label, path in run.out.items():
        if final[label].is_dir() and not final[label].is_symlink():  # a rename cannot replace a folder
            shutil.rmtree(final[label])
        os.replace(path, final[label])


def _describe(paths: Mapping[str, str | Path]) -> dict[str, FileDigest]:
    return {label: FileDigest(path=str(path), sha256=path_digest(path)) for label, path in paths.items()}


def _commit() -> str | None:
    """Commit of the checkout that the package lies in, if it lies in one."""
    command = ["git", "-C", str(package_folder()), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None
