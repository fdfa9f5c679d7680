"""Stage ``train`` with ``training.engine: verl``."""

from __future__ import annotations

import gzip
import shutil

from ..settings import Settings
from ..tracking import MetricsLog, Run
from ..training.verl.run import disclosure, train


def run(settings: Settings, job: Run) -> None:
    """Train with the run's variant and seed; a killed run goes on from verl's last checkpoint."""
    if told := disclosure(settings, job.inputs["cases"]):
        job.tags.update(told.tags())
    log, credit = MetricsLog(job.state / "metrics.jsonl"), job.state / "credit.jsonl"
    train(settings, job.inputs["cases"], job.inputs["init_policy"], job.out["policy"], job.state, job.seed, log)
    shutil.copyfile(log.path, job.out["metrics"])
    with open(job.out["credit"], "wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=0) as packed:
        if credit.exists():
            with credit.open("rb") as rows:
                shutil.copyfileobj(rows, packed)
