"""Stage ``train`` with the engine torch."""

from __future__ import annotations

from collections.abc import Callable

from ..job import Job
from ..settings import Settings
from ..tracking.live import live_run
from ..training.torch.trainer import train_policy


def run(settings: Settings, job: Job) -> None:
    """Train, followed by live tracking."""
    followed(train_policy, settings, job)


def followed(train: Callable[[Settings, Job], None], settings: Settings, job: Job) -> None:
    """Have every row of the learning curve sent to MLflow as it comes."""
    job.listener = live = live_run(settings, job)
    train(settings, job)
    if live is not None:
        live.close()
