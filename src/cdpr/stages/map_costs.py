"""Stage ``map_costs``."""

from ..costs.price import map_costs as run

__all__ = ["run"]
