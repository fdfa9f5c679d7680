"""Stage ``dynamic_vs_static``."""

from ..report.dynamic_vs_static import write_dynamic_vs_static as run

__all__ = ["run"]
