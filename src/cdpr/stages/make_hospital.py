"""Stage ``make_hospital``."""

from ..hospital.write import make_hospital as run

__all__ = ["run"]
