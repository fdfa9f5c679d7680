"""Prices of examinations: fee schedules -> catalogue -> cost map -> charges."""

# ruff: noqa: F401

from .catalogue import Catalogue, Price, load_catalogue, price_of, with_overrides
from .price import charge, coverage, nearest, price_case, review
