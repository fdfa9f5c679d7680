"""The shipped price catalogue: examination -> code -> rate, with source and year of every row.

Three tables in this folder. ``catalogue.csv`` prices examinations under their general names; ``+`` in a code
adds the rates of several. ``billing_groups.csv`` names single analytes that are billed as part of a panel.
``paper_prices.csv`` holds the prices printed in the paper's sample record (appendix, "Unified data format").
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Literal

from ..cases import examinations, normalise

Match = Literal["name", "alias", "analyte", "fallback", "physical"]
_AMOUNT = re.compile(r"\d+(\.\d+)?")
_ASIDE = re.compile(r"\s*[(\[]([^()\[\]]*)[)\]]\s*$")
# A remark that names the specimen makes it another examination: glucose in urine is not blood glucose.
_SPECIMENS = ("urine", "stool", "csf", "cerebrospinal", "ascites", "pleural", "joint", "fluid", "marrow", "saliva")


class CatalogueError(ValueError):
    """A price table that cannot be used; the message names file, line and field."""


@dataclass(frozen=True)
class Price:
    """What one examination is priced by: US dollars before the rule of its billing group, and where they come from.

    ``how`` tells how the name was found: under its own name, an alias, as an analyte of a panel, or not at all.
    """

    examination: str
    hcpcs: str
    usd: float
    source: str
    year: str
    group: str | None
    how: Match


class Catalogue:
    """Lookup from any spelling of an examination to its :class:`Price`."""

    def __init__(self, prices: Mapping[str, Price], analytes: Mapping[str, str], paper: Mapping[str, float]):
        """``prices`` and ``paper`` by general name, ``analytes`` from a member's name to its parent's."""
        self.prices = dict(prices)
        self.paper = dict(paper)
        self._by_name = {normalise(name): price for name, price in prices.items()}
        self._parent_of = {normalise(member): prices[parent] for member, parent in analytes.items()}

    def find(self, exam_key: str) -> Price | None:
        """The price of an examination by name, alias or membership; None when nothing maps.

        A trailing remark in brackets is ignored when the whole name is unknown, unless it names a specimen.
        """
        found = self._look_up(exam_key)
        aside = _ASIDE.search(exam_key)
        if found is not None or aside is None or any(s in aside[1].casefold() for s in _SPECIMENS):
            return found
        return self._look_up(exam_key[: aside.start()])

    def _look_up(self, name: str) -> Price | None:
        plain = normalise(name)
        term = examinations().find(plain)
        if term is not None and term.name in self.prices:
            return replace(self.prices[term.name], how="name" if normalise(term.name) == plain else "alias")
        if plain in self._by_name:
            return self._by_name[plain]
        if plain in self._parent_of:
            return replace(self._parent_of[plain], how="analyte")
        return None


def load_catalogue(folder: str | Path | None = None) -> Catalogue:
    """The three tables of a folder (default: those that are shipped). Raises CatalogueError."""
    return _shipped() if folder is None else _read(Path(folder))


@functools.cache
def _shipped() -> Catalogue:
    return _read(Path(str(resources.files(__package__))))


def _read(folder: Path) -> Catalogue:
    prices: dict[str, Price] = {}
    path = folder / "catalogue.csv"
    for line, row in _rows(path, ("examination", "hcpcs", "rate_usd", "source", "year", "billing_group")):
        name = row["examination"]
        if name in prices:
            raise CatalogueError(f"{path}:{line}: field 'examination': {name!r} stands twice")
        rate = _amount(path, line, "rate_usd", row["rate_usd"])
        group = row["billing_group"] or None
        prices[name] = Price(name, row["hcpcs"], rate, row["source"], row["year"], group, "name")
    path, analytes = folder / "billing_groups.csv", {}
    for line, row in _rows(path, ("member", "billing_group", "parent")):
        parent = prices.get(row["parent"])
        if parent is None:
            raise CatalogueError(f"{path}:{line}: field 'parent': {row['parent']!r} is not in catalogue.csv")
        if parent.group != row["billing_group"]:
            raise CatalogueError(f"{path}:{line}: field 'billing_group': {parent.examination} is in {parent.group}")
        analytes[row["member"]] = parent.examination
    path, paper = folder / "paper_prices.csv", {}
    for line, row in _rows(path, ("examination", "price_usd")):
        if row["examination"] not in prices:
            raise CatalogueError(f"{path}:{line}: field 'examination': {row['examination']!r} is not in catalogue.csv")
        paper[row["examination"]] = _amount(path, line, "price_usd", row["price_usd"])
    return Catalogue(prices, analytes, paper)


def _rows(path: Path, columns: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """Rows with their line numbers; every column must exist and every row must fill them all."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise CatalogueError(f"{path}:1: no column {missing[0]!r}; expected {', '.join(columns)}")
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CatalogueError(f"{path}: cannot be read as CSV in UTF-8: {error}") from error
    for line, row in rows:
        if None in row or None in row.values():
            raise CatalogueError(f"{path}:{line}: expected {len(columns)} fields")
    return [(line, {name: row[name].strip() for name in columns}) for line, row in rows]


def _amount(path: Path, line: int, field: str, text: str) -> float:
    if not _AMOUNT.fullmatch(text):
        raise CatalogueError(f"{path}:{line}: field {field!r}: {text!r} is not an amount in US dollars")
    return float(text)
