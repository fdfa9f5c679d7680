"""Stage ``plot_training_efficiency``: one figure as PNG and PDF."""

from __future__ import annotations

from ..report.figures import plot_training_efficiency
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Draw the figure."""
    plot_training_efficiency(settings, job.inputs["results"], job.out["png"].with_suffix(""))
