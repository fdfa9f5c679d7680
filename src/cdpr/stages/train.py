"""Stage ``train``: one run of reinforcement learning."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from ..settings import Settings
from ..tracking import MetricsLog, Run
from ..tracking.live import live_run
from ..training.trainer import train

_SHOWN = ("accuracy", "aen", "aec", "n_na", "utility")
_EVERY = 5


def run(settings: Settings, job: Run) -> None:
    """Train with the run's variant and seed; a killed run goes on from its last checkpoint."""
    live = live_run(settings, job)
    log = MetricsLog(job.state / "metrics.jsonl", live)

    def show(row: Mapping[str, Any]) -> None:
        log(row)
        line = progress(row)
        if line and (row["step"] % _EVERY == 0 or "validation/accuracy" in row):
            print(f"{job.options['run']}  {line}")

    train(settings, job.inputs["cases"], job.inputs["init_policy"], job.out["policy"], job.state, job.seed, show)
    if live is not None:
        live.close()
    shutil.copyfile(log.path, job.out["metrics"])


def progress(row: Mapping[str, Any]) -> str:
    """One line of a learning curve: step, seconds, and the metrics of training and validation."""
    parts = []
    for split in ("train", "validation"):
        shown = [f"{name} {row[f'{split}/{name}']:.3f}" for name in _SHOWN if f"{split}/{name}" in row]
        parts += [f"{split}: " + " ".join(shown)] if shown else []
    return "  ".join([f"step {row['step']:>4}  {row.get('seconds', 0):6.0f} s", *parts]) if parts else ""
