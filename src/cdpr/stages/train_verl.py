"""Stage ``train`` with the engine verl."""

from __future__ import annotations

from ..job import Job
from ..settings import Settings
from ..training.verl.run import train_policy
from .train import followed


def run(settings: Settings, job: Job) -> None:
    """Train, followed by live tracking."""
    followed(train_policy, settings, job)
