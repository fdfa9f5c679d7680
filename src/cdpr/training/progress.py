"""The learning curve of a run: as it is made to the folder of its state, to who listens and to the terminal; at the end
to its outputs."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..job import Job
from ..metrics_log import MetricsLog

Log = Callable[[Mapping[str, Any]], None]
"""Receives one row of metrics."""

METRICS, CREDIT = "metrics.jsonl", "credit.jsonl"
_SHOWN = ("accuracy", "aen", "aec", "n_na", "utility")
_EVERY = 5


@contextmanager
def following(job: Job) -> Iterator[Log]:
    """Take rows of metrics to ``state``, the job's listener and the terminal as they come; when all is well make them
    outputs, with what credit assignment found (``credit.jsonl`` of the same folder)."""
    log = MetricsLog(job.state / METRICS, job.listener)

    def show(row: Mapping[str, Any]) -> None:
        log(row)
        if "diverged" in row:
            job.tags["diverged"] = str(row["step"])
            print(f"{job.options['run']}  diverged at step {row['step']}: the run ends with the weights before it")
        line = progress(row)
        if line and (row["step"] % _EVERY == 0 or "validation/accuracy" in row):
            print(f"{job.options['run']}  {line}")

    yield show
    shutil.copyfile(log.path, job.out["metrics"])
    _pack(job.state / CREDIT, job.out["credit"])


def _pack(rows: Path, out: Path) -> None:
    """Compress without a time, so that equal rows are equal files."""
    with out.open("wb") as target, gzip.GzipFile("", "wb", fileobj=target, mtime=0) as packed:
        if rows.exists():
            with rows.open("rb") as source:
                shutil.copyfileobj(source, packed)


def progress(row: Mapping[str, Any]) -> str:
    """One line of a learning curve: step, seconds, and the metrics of training and validation."""
    parts = []
    for split in ("train", "validation"):
        shown = [f"{name} {row[f'{split}/{name}']:.3f}" for name in _SHOWN if f"{split}/{name}" in row]
        parts += [f"{split}: " + " ".join(shown)] if shown else []
    return "  ".join([f"step {row['step']:>4}  {row.get('seconds', 0):6.0f} s", *parts]) if parts else ""
