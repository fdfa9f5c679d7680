"""The price catalogue: examination -> code -> rate, with source, year and confidence of every row.

Tables of a catalogue's folder: ``catalogue.csv`` prices the examinations of the vocabulary (``+`` in a code adds the
rates of several, ``-26`` names a modifier); ``paper_prices.csv`` holds the prices printed in the paper's sample record
(appendix, "Unified data format"). What a name means is the vocabulary's business (:mod:`cdpr.cases.naming`).
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Literal

from ..cases import (
    PHYSICAL,
    PHYSICAL_SUFFIX,
    Found,
    Meaning,
    class_of,
    examinations,
    is_physical,
    meaning,
    no_examination,
    normalise,
    whole_kind,
)
from ..settings.schema import Costs
from .tables import CatalogueError, amount, read_table

Match = Literal[Found, "class", "override", "fallback", "physical", "none"]
CONFIDENCES = ("exact", "representative", "proxy")
TABLES = ("catalogue.csv", "paper_prices.csv")
COLUMNS = (
    "examination", "hcpcs", "rate_usd", "source", "year", "locality", "billing_group", "confidence",
)  # fmt: skip
_ASIDE = re.compile(r"\s*[(\[]([^()\[\]]*)[)\]]\s*$")
_SIDE = re.compile(r"\b(left|right|bilateral)\b", re.IGNORECASE)
# A remark that names the specimen makes it another examination: glucose in urine is not blood glucose.
# Kinds of the vocabulary as classes, where they bear another name.
_KINDS = {"laboratory": "laboratory test"}
_SPECIMENS = ("urine", "stool", "csf", "cerebrospinal", "ascites", "pleural", "joint", "fluid", "marrow", "saliva")


@dataclass(frozen=True)
class Price:
    """What one examination is priced by: US dollars before the rule of its billing group, and where they come from.

    ``how`` tells how the name was found: under its own name, another spelling, as an analyte of a panel, by its class,
    in the user's overrides, not at all, or as ``none`` where it names no examination. ``confidence`` is that of the
    code: ``exact``, ``representative`` or ``proxy``.
    """

    examination: str
    hcpcs: str
    usd: float
    source: str
    year: str
    group: str | None
    how: Match
    locality: str = ""
    confidence: str = ""


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Lookup from any spelling of an examination to its :class:`Price`.

    ``prices`` and ``paper`` by name of the vocabulary, ``overrides`` by normalised name (see :mod:`.overrides`).
    """

    prices: Mapping[str, Price]
    paper: Mapping[str, float]
    overrides: Mapping[str, Price] = field(default_factory=dict)

    @functools.cached_property
    def _remembered(self) -> Callable[[str], Price | None]:
        return functools.lru_cache(maxsize=1 << 16)(self._find)

    def find(self, exam_key: str) -> Price | None:
        """The price of an examination by what its name means; None when no code stands for it.

        A name that joins several examinations costs what they cost. The user's overrides come first: that of the name,
        else that of what the name is priced by.
        """
        return self._remembered(exam_key)

    def _find(self, exam_key: str) -> Price | None:
        said = meaning(exam_key)
        found = None if said.kind else self.total(said)
        own = next((self.overrides[name] for name in _plainer(exam_key) if name in self.overrides), None)
        return own or (found and self._with_own_price(found))

    def total(self, said: Meaning) -> Price | None:
        """What the examinations of a meaning cost together; None without any, or where one has no price."""
        prices = [replace(self.prices[term.name], how=said.how) for term in said.terms if term.name in self.prices]
        if len(prices) <= 1 or len(prices) < len(said.terms):
            return prices[0] if len(prices) == len(said.terms) == 1 else None
        one = prices[0]
        return replace(
            one, examination=" + ".join(p.examination for p in prices), hcpcs="+".join(p.hcpcs for p in prices),
            usd=round(sum(p.usd for p in prices), 2), source=" + ".join(dict.fromkeys(p.source for p in prices)),
            group=None, confidence=max((p.confidence for p in prices), key=CONFIDENCES.index),
        )  # fmt: skip

    def class_rate(self, kind: str) -> Price | None:
        """The rate of a class: the median of its members; None for a class without any."""
        return self._class_rates.get(kind)

    @functools.cached_property
    def _class_rates(self) -> dict[str, Price]:
        rates: dict[str, list[float]] = {}
        for name, price in self.prices.items():
            term = examinations().terms.get(name)
            if term is not None:
                for kind in {class_of(term), _KINDS.get(term.kind, term.kind)}:
                    rates.setdefault(kind, []).append(price.usd)
        return {
            kind: Price("", "", round(median(usd), 2), f"median of {kind} ({len(usd)} rates)", "", None, "class")
            for kind, usd in rates.items()
        }

    def _with_own_price(self, found: Price) -> Price:
        """The override of what a name is priced by; a panel that was taken out of its group leaves its analytes in."""
        own = self.overrides.get(normalise(found.examination))
        if own is None:
            return found
        return replace(own, group=own.group or (found.group if found.how == "analyte" else None))

    def knows(self, exam_key: str) -> bool:
        """Whether every word of a name is one of the vocabulary's: it holds no remark of its own."""
        if is_physical(exam_key):
            term = examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
            return term is not None and term.kind == "physical"
        said = meaning(exam_key)
        return bool(said.terms) and said.whole


def _plainer(name: str) -> Iterator[str]:
    """A name as overrides have it: as it is, without a side, without a trailing remark (but that of a specimen)."""
    aside = _ASIDE.search(name)
    names = [name]
    if aside is not None and not _names_specimen(aside[1].casefold()):
        names.append(name[: aside.start()])
    for spelling in names:
        for plain in (spelling, _SIDE.sub(" ", spelling)):
            yield normalise(general_name(plain))


def general_name(name: str) -> str:
    """The vocabulary's name for a spelling, or the spelling itself where it has none."""
    term = examinations().find(name)
    return name if term is None else term.name


def _names_specimen(remark: str) -> bool:
    return any(specimen in remark for specimen in _SPECIMENS)


def price_of(exam_key: str, settings: Costs, catalogue: Catalogue) -> Price:
    """The price of one examination, US dollars.

    Free for the physical examination; else the user's override, the paper's own price (when ``price_map`` asks for
    them), the catalogue's, the median of its class (unless ``class_rates`` is off), the fallback, whichever comes
    first. What is no examination costs nothing.
    """
    if is_physical(exam_key):
        return Price("", "", 0.0, "free of charge", "", None, "physical")
    found = catalogue.find(exam_key)
    if found is None:
        return _uncoded(exam_key, settings, catalogue)
    own = settings.price_map == "paper_prices" and found.how != "override"
    if own and found.examination in catalogue.paper:
        return replace(found, hcpcs="", usd=catalogue.paper[found.examination], source="paper", year="", locality="")
    return found


def _uncoded(exam_key: str, settings: Costs, catalogue: Catalogue) -> Price:
    """The price of a name that no code stands for."""
    if no_examination(exam_key):
        return Price("", "", 0.0, "no examination", "", None, "none")
    kind = meaning(exam_key).kind
    if kind in PHYSICAL or whole_kind(exam_key) == "physical":
        return Price("", "", 0.0, "free of charge", "", None, "physical")
    rate = catalogue.class_rate(kind) if settings.class_rates else None
    coded = catalogue.total(meaning(exam_key))
    if rate is not None and coded is not None:  # "CT + echocardiogram": the one has a code, the other a class
        return replace(rate, usd=round(rate.usd + coded.usd, 2), source=f"{coded.source} + {rate.source}")
    return rate or Price("", "", settings.fallback_usd, "fallback", "", None, "fallback")


def load_catalogue(folder: str | Path | None = None) -> Catalogue:
    """The tables of a folder (default: those that are shipped). Raises CatalogueError."""
    return _shipped() if folder is None else _read(Path(folder))


@functools.cache
def _shipped() -> Catalogue:
    return _read(shipped_folder())


def shipped_folder() -> Path:
    """Where the shipped tables lie."""
    return Path(str(resources.files(__package__)))


def _read(folder: Path) -> Catalogue:
    prices: dict[str, Price] = {}
    for where, row in read_table(folder / "catalogue.csv", COLUMNS):
        name, usd = row["examination"], amount(where, "rate_usd", row["rate_usd"])
        if name in prices:
            raise CatalogueError(f"{where}: field 'examination': {name!r} stands twice")
        if row["confidence"] not in CONFIDENCES:
            raise CatalogueError(f"{where}: field 'confidence': expected one of {', '.join(CONFIDENCES)}")
        prices[name] = Price(
            name, row["hcpcs"], usd, row["source"], row["year"], row["billing_group"] or None, "name", row["locality"],
            row["confidence"],
        )  # fmt: skip
    paper = _naming(folder / "paper_prices.csv", "examination", prices, "price_usd")
    return Catalogue(prices, {row["examination"]: amount(where, "price_usd", row["price_usd"]) for where, row in paper})


def _naming(path: Path, column: str, prices: Mapping[str, Price], *others: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Rows of a table whose ``column`` names an examination of the catalogue."""
    for where, row in read_table(path, (*others, column)):
        if row[column] not in prices:
            raise CatalogueError(f"{where}: field {column!r}: {row[column]!r} is not in catalogue.csv")
        yield where, row
