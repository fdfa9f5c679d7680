"""Stage ``plot_learning_curves``: one figure as PNG and PDF."""

from __future__ import annotations

from ..report.figures import plot_learning_curves
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Draw the figure."""
    plot_learning_curves(settings, job.inputs["results"], job.out["png"].with_suffix(""))
