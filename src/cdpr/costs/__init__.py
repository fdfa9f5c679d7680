"""Prices of examinations: fee schedules -> catalogue -> cost map -> charges."""

from .billing import charge
from .catalogue import Catalogue, Price, load_catalogue, price_of
from .coverage import Coverage, coverage, nearest, review
from .overrides import with_overrides
from .price import price_case
from .tables import CatalogueError

__all__ = ["Catalogue", "CatalogueError", "Coverage", "Price", "charge", "coverage", "load_catalogue", "nearest"]
__all__ += ["price_case", "price_of", "review", "with_overrides"]
