"""Stage ``plot_accuracy_cost``."""

from ..report.accuracy_cost import plot_accuracy_cost as run

__all__ = ["run"]
