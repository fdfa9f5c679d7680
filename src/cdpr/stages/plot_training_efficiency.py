"""Stage ``plot_training_efficiency``: one figure as PNG and PDF."""

from __future__ import annotations

from ..job import Job
from ..report.figures import plot_training_efficiency
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Draw the figure."""
    plot_training_efficiency(settings, job.inputs["results"], job.out["png"].with_suffix(""))
