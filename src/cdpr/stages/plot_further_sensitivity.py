"""Stage ``plot_further_sensitivity``."""

from ..report.sensitivity import plot_further_sensitivity as run

__all__ = ["run"]
