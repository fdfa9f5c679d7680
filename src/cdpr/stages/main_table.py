"""Stage ``main_table``."""

from ..report.main_table import write_main_table as run

__all__ = ["run"]
