"""Stage ``plot_cost_distribution``."""

from ..report.cost_distribution import plot_cost_distribution as run

__all__ = ["run"]
