"""Stage ``warm_start``: the supervised start of the tiny policy."""

from __future__ import annotations

import shutil

from ..job import Job
from ..settings import Settings
from ..tracking import MetricsLog
from ..training.warm_start import warm_start


def run(settings: Settings, job: Job) -> None:
    """Build and teach the policy; a killed run goes on after its last epoch."""
    log = MetricsLog(job.state / "metrics.jsonl")

    def show(row: dict) -> None:
        log(row)
        print("  ".join(f"{k.rpartition('/')[2]} {v:.4g}" for k, v in row.items() if isinstance(v, (int, float))))

    warm_start(settings, job.inputs["cases"], job.out["policy"], job.state, show)
    shutil.copyfile(log.path, job.out["metrics"])
