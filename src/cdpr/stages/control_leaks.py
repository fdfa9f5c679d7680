"""Stage ``control_leaks``."""

from ..ingest.controlled import remove_leaks as run

__all__ = ["run"]
