"""Prices of examinations. Published fee schedules give a catalogue of prices, the catalogue gives each case its prices,
and these give the charge of a request."""

# ruff: noqa: F401

from .price import Catalogue, Price, charge, load_catalogue, price_case, price_of, review, with_overrides
