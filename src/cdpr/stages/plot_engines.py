"""Stage ``plot_engines``: one figure as PNG and PDF, its numbers as CSV."""

from __future__ import annotations

from ..report.engines import plot_engines
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Draw the figure and write its numbers."""
    plot_engines(settings, job.inputs["results"], job.out["png"].with_suffix(""))
