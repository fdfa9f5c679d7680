"""Stage ``plot_cost_distribution``: one figure as PNG and PDF."""

from __future__ import annotations

from ..job import Job
from ..report.cost_distribution import plot_cost_distribution
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Draw the figure."""
    plot_cost_distribution(settings, job.inputs["results"], job.out["png"].with_suffix(""))
