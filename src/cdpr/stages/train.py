"""Stage ``train``: one run of reinforcement learning."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..job import Job
from ..settings import Settings
from ..tracking import MetricsLog
from ..tracking.live import live_run
from ..training.model import Log
from ..training.trainer import train

_SHOWN = ("accuracy", "aen", "aec", "n_na", "utility")
_EVERY = 5


def run(settings: Settings, job: Job) -> None:
    """Train with the run's variant and seed; a killed run goes on from its last checkpoint."""
    with following(settings, job) as log:
        credit = MetricsLog(job.state / "credit.jsonl")
        cases, policy = job.inputs["cases"], job.inputs["init_policy"]
        train(settings, cases, policy, job.out["policy"], job.state, job.seed, log, credit)


@contextmanager
def following(settings: Settings, job: Job) -> Iterator[Log]:
    """Take rows of metrics to ``state``, MLflow and the log as they come; at the end make them outputs, with
    ``credit.jsonl`` of the same folder, what credit assignment found."""
    live = live_run(settings, job)
    log = MetricsLog(job.state / "metrics.jsonl", live)

    def show(row: Mapping[str, Any]) -> None:
        log(row)
        if "diverged" in row:
            job.tags["diverged"] = str(row["step"])
            print(f"{job.options['run']}  diverged at step {row['step']}: the run ends with the weights before it")
        line = progress(row)
        if line and (row["step"] % _EVERY == 0 or "validation/accuracy" in row):
            print(f"{job.options['run']}  {line}")

    yield show
    if live is not None:
        live.close()
    shutil.copyfile(log.path, job.out["metrics"])
    credit = job.state / "credit.jsonl"
    with open(job.out["credit"], "wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
        if credit.exists():
            with credit.open("rb") as rows:
                shutil.copyfileobj(rows, packed)


def progress(row: Mapping[str, Any]) -> str:
    """One line of a learning curve: step, seconds, and the metrics of training and validation."""
    parts = []
    for split in ("train", "validation"):
        shown = [f"{name} {row[f'{split}/{name}']:.3f}" for name in _SHOWN if f"{split}/{name}" in row]
        parts += [f"{split}: " + " ".join(shown)] if shown else []
    return "  ".join([f"step {row['step']:>4}  {row.get('seconds', 0):6.0f} s", *parts]) if parts else ""
