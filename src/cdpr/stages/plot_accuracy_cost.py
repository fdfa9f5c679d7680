"""Stage ``plot_accuracy_cost``: one figure as PNG and PDF."""

from __future__ import annotations

from ..job import Job
from ..report.figures import plot_accuracy_cost
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Draw the figure."""
    plot_accuracy_cost(settings, job.inputs["results"], job.out["png"].with_suffix(""))
