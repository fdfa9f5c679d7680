"""Stage ``sample_case``."""

from ..report.sample_case import write_sample_case as run

__all__ = ["run"]
