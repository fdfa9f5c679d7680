"""Stage ``plot_learning_curves``: one figure as PNG and PDF."""

from __future__ import annotations

from ..job import Job
from ..report.figures import plot_learning_curves
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Draw the figure."""
    plot_learning_curves(settings, job.inputs["results"], job.out["png"].with_suffix(""))
