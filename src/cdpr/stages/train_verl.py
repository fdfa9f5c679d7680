"""Stage ``train`` with ``training.engine: verl``."""

from __future__ import annotations

from ..job import Job
from ..settings import Settings
from ..training.verl.run import disclosure, train
from .train import following


def run(settings: Settings, job: Job) -> None:
    """Train with the run's variant and seed; a killed run goes on from verl's last checkpoint."""
    if told := disclosure(settings, job.inputs["cases"]):
        job.tags.update(told.tags())
    with following(settings, job) as log:
        train(settings, job.inputs["cases"], job.inputs["init_policy"], job.out["policy"], job.state, job.seed, log)
