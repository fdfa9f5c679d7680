"""Stage ``build_catalogue``."""

from ..costs.build import build_catalogue as run

__all__ = ["run"]
