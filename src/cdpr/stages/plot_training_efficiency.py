"""Stage ``plot_training_efficiency``."""

from ..report.training_efficiency import plot_training_efficiency as run

__all__ = ["run"]
