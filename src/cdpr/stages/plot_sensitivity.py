"""Stage ``plot_sensitivity``: one figure as PNG and PDF, its numbers as CSV."""

from __future__ import annotations

from ..job import Job
from ..report.sensitivity import plot_sweeps
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Draw the figure and write its numbers."""
    plot_sweeps(settings, job.inputs["results"], job.out["png"].with_suffix(""), "sensitivity")
