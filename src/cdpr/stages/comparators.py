"""Stage ``comparators``."""

from ..report.comparators import write_comparators as run

__all__ = ["run"]
