"""Stage ``plot_learning_curves``."""

from ..report.learning_curves import plot_learning_curves as run

__all__ = ["run"]
