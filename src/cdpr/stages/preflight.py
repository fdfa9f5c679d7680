"""Stage ``preflight``."""

from ..evaluation.preflight import check_headroom as run

__all__ = ["run"]
