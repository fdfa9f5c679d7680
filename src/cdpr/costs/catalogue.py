"""The catalogue of prices: the billing code and the price of each examination, with source, year and confidence.

A catalogue is a folder with two tables. ``catalogue.csv`` prices the known examinations
(``cases/data/examinations.csv``); ``+`` in a code adds the prices of several codes, ``-26`` is a modifier.
``paper_prices.csv`` has the prices printed in the paper's sample record (appendix, "Unified data format").
:mod:`cdpr.cases.naming` finds out which examination a name means.
"""

import functools
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Literal

from ..cases.naming import PHYSICAL, MatchKind, Meaning, class_of, meaning, no_examination, plainer_names, whole_kind
from ..cases.record import is_physical
from ..cases.vocabulary import examinations, normalise
from ..escape import unescape_csv_cell
from ..files import TableError, read_table
from ..settings.schema import Costs

Match = Literal[MatchKind, "class", "override", "fallback", "physical", "none"]
CONFIDENCES = ("exact", "representative", "proxy")  # how well a billing code fits, the best first
TABLES = ("catalogue.csv", "paper_prices.csv")  # of a catalogue
SHIPPED = Path(__file__).parent  # the folder of the shipped catalogue
ORIGIN = ("source", "year", "locality")  # of a price
COLUMNS = ("examination", "hcpcs", "rate_usd", *ORIGIN, "billing_group", "confidence", "office_usd")
NO_GROUP = "none"  # in overrides: the examination leaves its billing group
_AMOUNT = re.compile(r"\d{1,6}(\.\d+)?")  # US dollars below a million


@dataclass(frozen=True)
class Price:
    """The price of one examination and its source. ``usd`` is its price in US dollars when it is billed alone;
    examinations that are billed together share one price.

    ``how`` says how the name was matched: by its own name, an alias, as an analyte of a panel, by its class, in the
    user's ``override``, not at all (``fallback``), as a ``physical`` examination, or as ``none`` where it means no
    examination. ``confidence`` says how well the billing code fits: ``exact``, ``representative`` or ``proxy``.
    ``group`` is the billing group, None without one. ``office`` is the price in a physician's office, None where it is
    unknown. ``panel_usd`` is the price of the whole ``examination`` where ``usd`` is that of a single quantity of it,
    which has a code of its own; None otherwise.
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
    office: float | None = None
    panel_usd: float | None = None


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Finds the :class:`Price` of an examination by any spelling of its name.

    ``prices`` are by the canonical name of an examination, or of a quantity that has a billing code of its own.
    ``paper`` (the paper's prices in US dollars) are by that of an examination, ``overrides`` (the user's prices, see
    :func:`with_overrides`) by normalised name.
    """

    prices: Mapping[str, Price]
    paper: Mapping[str, float]
    overrides: Mapping[str, Price] = field(default_factory=dict)

    @functools.lru_cache(maxsize=1 << 16)  # noqa: B019
    def find(self, exam_key: str) -> Price | None:
        """Return the price of the examination that a name means; None where neither the catalogue nor the user has one.

        A name that joins several examinations costs their sum. The user's overrides come first: the one for the name,
        then the one for the examination that it means. An analyte with an override stays in the group of its panel.
        """
        sense = meaning(exam_key)
        price = None if sense.kind else self.total(sense)
        names = (normalise(examinations().general_name(name)) for name in plainer_names(exam_key))
        # The user's price for the name, for the first of its spellings that has one.
        override = next((self.overrides[name] for name in names if name in self.overrides), None)
        if override is not None or price is None:
            return override
        override = self.overrides.get(normalise(price.examination))  # for the examination that is meant
        if override is None:
            return price
        return replace(override, group=override.group or (price.group if price.how == "analyte" else None))

    def total(self, sense: Meaning) -> Price | None:
        """Return the sum of the prices of all examinations in a meaning, in US dollars, rounded to cents. Where a
        single quantity of an examination is meant, and has a price of its own, this counts instead. None where the
        meaning has no examination, or one of them has no price."""
        panels = [self.prices[term.name] for term in sense.terms if term.name in self.prices]
        if not panels or len(panels) < len(sense.terms):
            return None
        pairs = itertools.zip_longest(sense.quantities, panels)
        prices = [self.prices.get(quantity or "", panel) for quantity, panel in pairs]
        return replace(
            prices[0],
            how=sense.how,
            examination=" + ".join(p.examination for p in panels),
            hcpcs="+".join(p.hcpcs for p in prices),
            usd=round(math.fsum(p.usd for p in prices), 2),
            source=" + ".join(dict.fromkeys(p.source for p in prices)),
            group=panels[0].group if len(panels) == 1 else None,
            panel_usd=panels[0].usd if sense.term and prices != panels else None,
            confidence=max((p.confidence for p in prices), key=CONFIDENCES.index),
        )

    @functools.cached_property
    def class_rates(self) -> dict[str, Price]:
        """The price of each class of examinations, such as ``biopsy``: the median price of its members. Names without a
        billing code cost this."""
        rates: dict[str, list[float]] = {}
        for name, price in self.prices.items():
            if term := examinations().terms.get(name):
                # Its own class, and the class of all examinations of its kind.
                for kind in {class_of(term), "laboratory test" if term.kind == "laboratory" else term.kind}:
                    rates.setdefault(kind, []).append(price.usd)
        return {
            kind: Price("", "", round(median(usd), 2), f"median of {kind} ({len(usd)} rates)", "", None, "class")
            for kind, usd in rates.items()
        }


def price_of(exam_key: str, settings: Costs, catalogue: Catalogue | None = None) -> Price:
    """Return the price of one examination in US dollars, by ``catalogue`` or by default by the shipped one.

    The physical examination is free, and so is a name that means no examination. Otherwise the price is the first of:
    the user's override, the paper's own price (if the setting ``price_map`` says so), the catalogue's, the median of
    the examination's class (unless the setting ``class_rates`` is off), the setting ``fallback_usd``. A name that joins
    an examination with a billing code and one that has only a class costs the sum of both.
    """
    catalogue = catalogue or load_catalogue(place_of_service=settings.place_of_service)
    price = None if is_physical(exam_key) else catalogue.find(exam_key)
    if price is not None:
        paper = catalogue.paper.get(price.examination) if settings.price_map == "paper_prices" else None
        if paper is None or price.how == "override":
            return price
        return replace(price, hcpcs="", usd=paper, source="paper", year="", locality="")
    # No price in the catalogue: free, no examination, the median of its class, or the fallback.
    kind = meaning(exam_key).kind
    if is_physical(exam_key) or kind in PHYSICAL or whole_kind(exam_key) == "physical":
        return Price("", "", 0.0, "free of charge", "", None, "physical")
    if no_examination(exam_key, is_unread=not kind):
        return Price("", "", 0.0, "no examination", "", None, "none")
    rate = catalogue.class_rates.get(kind) if settings.class_rates else None
    coded = catalogue.total(meaning(exam_key))
    if rate is not None and coded is not None:  # "CT + echocardiogram": the second has a code, the first only a class
        return replace(rate, usd=round(rate.usd + coded.usd, 2), source=f"{coded.source} + {rate.source}")
    return rate or Price("", "", settings.fallback_usd, "fallback", "", None, "fallback")


@functools.cache
def load_catalogue(folder: Path | None = None, place_of_service: str = "outpatient") -> Catalogue:
    """Read the catalogue in ``folder``, by default the shipped one. Unless ``place_of_service`` is ``outpatient``, a
    procedure has its price in a physician's office, if the table has one. Raises TableError for a table that cannot be
    read."""
    folder = folder or SHIPPED
    prices: dict[str, Price] = {}
    for where, row in read_table(folder / TABLES[0], COLUMNS):
        name, usd, group = row["examination"], amount(where, "rate_usd", row["rate_usd"]), row["billing_group"] or None
        office = amount(where, "office_usd", row["office_usd"]) if row["office_usd"] else None
        usd = usd if office is None or place_of_service == "outpatient" else office
        origin, confidence = (row["source"], row["year"], group), row["confidence"]
        prices[name] = Price(name, row["hcpcs"], usd, *origin, "name", row["locality"], confidence, office)
    paper = read_table(folder / TABLES[1], ("examination", "price_usd"))
    return Catalogue(prices, {row["examination"]: amount(where, "price_usd", row["price_usd"]) for where, row in paper})


def with_overrides(catalogue: Catalogue, path: str | Path) -> Catalogue:
    """Return the catalogue with the user's prices added, which come before all others. ``path`` is a CSV file
    ``examination,price_usd,billing_group`` in US dollars.

    The price of a known examination holds for all its spellings, that of any other name for this name alone; both hold
    also where a side or a final remark is added to the name. The price of a panel holds for the analytes that are
    billed within it. Rows without a price are skipped, so that a table for review can be filled in step by step.

    An empty ``billing_group`` keeps the group that the examination is in, ``none`` takes it out. Messages never repeat
    a name, because names that come from notes may be a patient's words. Raises TableError for a file that cannot be
    used.
    """
    overrides: dict[str, Price] = {}
    lines: dict[str, str] = {}
    for where, cells in read_table(path, ("examination", "price_usd")):
        row = {"billing_group": ""} | {column: unescape_csv_cell(cell.strip()) for column, cell in cells.items()}
        if not row["price_usd"]:
            continue
        if not normalise(row["examination"]):
            raise TableError(f"{where}: field 'examination': empty")
        if is_physical(row["examination"]):
            raise TableError(f"{where}: field 'examination': the physical examination is free of charge")
        usd = amount(where, "price_usd", row["price_usd"])
        name = examinations().general_name(row["examination"])
        key = normalise(name)
        if key in lines:
            raise TableError(f"{where}: field 'examination': stands in line {lines[key]} already")
        lines[key] = where.rpartition(":")[2]
        price = catalogue.find(name)
        group = row["billing_group"] or (price.group if price is not None else None)
        overrides[key] = Price(name, "", usd, "override", "", None if group == NO_GROUP else group, "override")
    return replace(catalogue, overrides=overrides)


def amount(where: str, field: str, text: str) -> float:
    """Return ``text`` as an amount in US dollars, 0 to 999,999.99. Raises TableError, naming the place ``where`` and
    the ``field`` but not the text, which may be a patient's."""
    if not _AMOUNT.fullmatch(text):
        raise TableError(f"{where}: field {field!r}: not an amount in US dollars, such as 12.50")
    return float(text)
