"""Stage ``timings``."""

from ..report.timings import write_timings as run

__all__ = ["run"]
