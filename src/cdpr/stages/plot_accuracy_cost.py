"""Stage ``plot_accuracy_cost``: one figure as PNG and PDF."""

from __future__ import annotations

from ..report.figures import plot_accuracy_cost
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Draw the figure."""
    plot_accuracy_cost(settings, job.inputs["results"], job.out["png"].with_suffix(""))
