"""Prices of examinations: fee schedules -> catalogue -> cost map -> charges."""

from .catalogue import Catalogue, CatalogueError, Price, load_catalogue, price_of, with_overrides
from .coverage import Coverage, coverage, nearest, review
from .price import charge, price_case

__all__ = ["Catalogue", "CatalogueError", "Coverage", "Price", "charge", "coverage", "load_catalogue", "nearest"]
__all__ += ["price_case", "price_of", "review", "with_overrides"]
