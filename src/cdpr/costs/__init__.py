"""Prices of examinations: fee schedules -> shipped catalogue -> cost map -> charges."""

from .billing import charge
from .catalogue import Catalogue, CatalogueError, Price, load_catalogue
from .price import Coverage, coverage, price_case, price_cases, price_of

__all__ = [
    "Catalogue",
    "CatalogueError",
    "Coverage",
    "Price",
    "charge",
    "coverage",
    "load_catalogue",
    "price_case",
    "price_cases",
    "price_of",
]
