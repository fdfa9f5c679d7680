"""Stage ``plot_cost_distribution``: one figure as PNG and PDF."""

from __future__ import annotations

from ..report.cost_distribution import plot_cost_distribution
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Draw the figure."""
    plot_cost_distribution(settings, job.inputs["results"], job.out["png"].with_suffix(""))
