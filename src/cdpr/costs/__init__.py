"""Prices of examinations. Published fee schedules give a catalogue of prices, the catalogue gives each case its prices,
and these give the charge of a request."""

# ruff: noqa: F401

from .catalogue import Catalogue, Price, load_catalogue, price_of, with_overrides
from .price import charge, coverage, nearest, price_case, review
