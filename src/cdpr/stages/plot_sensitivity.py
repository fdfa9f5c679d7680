"""Stage ``plot_sensitivity``."""

from ..report.sensitivity import plot_sensitivity as run

__all__ = ["run"]
