"""Stage ``plot_engines``."""

from ..report.engines import plot_engines as run

__all__ = ["run"]
