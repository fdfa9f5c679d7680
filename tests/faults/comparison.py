"""What two runs of the paper must have in common, and what a finished run must not leave behind."""

import fnmatch
import hashlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

# Files below the results that are another at every run, and why.
IGNORED = {
    "logs/*": "logs hold times and numbers of processes",
    "mlflow.db": "MLflow's index holds its own ids and times",
    "mlartifacts/*": "MLflow names its folders at random",
    "figures/training_time.*": "it shows utility over seconds",
    "claims_of_time.md": "its claims are about seconds",
    "timings.jsonl": "it holds the seconds of a training",
    ".snakemake_timestamp": "Snakemake marks a folder that a job has written only if it lives until then",
}
# Fields that hold times: of a `run.json` and of its metrics.
CLOCK = ("started", "wall_seconds", "cpu_seconds", "peak_memory_mb", "seconds", "time/*")
# Files whose digest in a `run.json` is another for that reason.
TIMED = {**IGNORED, "run.json": "", "init.json": ""}
# Where a project has files that are no results; `tmp` is the TMPDIR of its runs.
BESIDE = ("state", "tmp", ".snakemake/incomplete", ".snakemake/locks")
# What may differ there from an undisturbed run, and why.
MAY_STAY = {
    "tmp/snakemake*": "an empty folder of Snakemake, which removes it at its own end only",
    "state/ci/locks/*": "an empty file for each job, whose name depends on the project's folder",
}
GRACE = 20  # seconds for processes to end by themselves


def snapshot(results: Path) -> dict[str, str]:
    """Digests of all files that must be equal in every run, by path below the folder, and its temporary folders."""
    paths = (path for path in results.rglob("*") if path.is_file() or "partial" in path.name)
    names = {path.relative_to(results).as_posix(): path for path in paths}
    return {name: _digest(path) for name, path in names.items() if not _is_like(name, IGNORED)}


def _is_like(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, f"*{pattern}") for pattern in patterns)


def _digest(path: Path) -> str:
    if path.is_dir():
        return "folder"
    content = path.read_bytes()
    if path.name.endswith(("run.json", "init.json")):
        content = json.dumps(_timeless_record(json.loads(content))).encode()
    return hashlib.sha256(content).hexdigest()


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not any(fnmatch.fnmatchcase(name, clock) for clock in CLOCK)}


def _timeless_record(record: dict[str, Any]) -> dict[str, Any]:
    sides = {side: {label: file for label, file in record.get(side, {}).items() if not _is_like(file["path"], TIMED)}
             for side in ("inputs", "outputs")}  # fmt: skip
    return _timeless(record) | sides | {"metrics": _timeless(record.get("metrics", {}))}


def differences(expected: dict[str, str], present: dict[str, str]) -> list[str]:
    """How the files of a run differ from those of another, one line each."""
    changed = [f"changed: {name}" for name in expected.keys() & present.keys() if expected[name] != present[name]]
    missing = [f"missing: {name}" for name in expected.keys() - present.keys()]
    return sorted(changed + missing + [f"extra: {name}" for name in present.keys() - expected.keys()])


def beside(folder: Path) -> set[str]:
    """Names of all files of a project that are no results."""
    return {path.relative_to(folder).as_posix() for part in BESIDE for path in (folder / part).rglob("*")}


def leftovers(folder: Path, expected: set[str]) -> list[str]:
    """Processes of a project, and files beside its results that an undisturbed run (``expected``) does not leave."""
    deadline = time.monotonic() + GRACE
    while (processes := at_work(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    names = sorted(name for name in beside(folder) - expected if not _is_like(name, MAY_STAY))
    return [f"process: {process}" for process in processes] + [f"file: {name}" for name in names]


def at_work(folder: Path) -> list[psutil.Process]:
    """Living processes whose working directory is the folder or lies below it."""
    living = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()).is_relative_to(folder):
                living.append(process)
        except (psutil.Error, OSError):  # it has ended, or is another user's
            continue
    return living
