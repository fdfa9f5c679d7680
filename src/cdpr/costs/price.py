"""Prices of examinations: finds the price of a name in the catalogue, prices case records, computes the charge of a
request (paper, appendix "Unified examination cost"), and lists names of examinations without a billing code.

A catalogue is a folder with two tables. ``catalogue.csv`` has the billing code and the price of each known examination
(``cases/data/examinations.csv``), with source, year and confidence; ``+`` in a code adds the prices of several codes,
``-26`` is a modifier. ``paper_prices.csv`` has the prices printed in the paper's sample record (appendix, "Unified data
format"). :mod:`cdpr.cases.naming` finds out which examination a name means.
"""

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from rapidfuzz import fuzz, process

from ..cases import PHYSICAL, Meaning, class_of, meaning, no_examination, whole_kind
from ..cases.naming import BLOOD, GUESSED, MatchKind, is_specimen, plainer_names, words_of
from ..cases.record import PHYSICAL_SUFFIX, CaseRecord, is_physical, iterate_records, write_records
from ..cases.vocabulary import examinations, normalise
from ..escape import unescape_csv_cell
from ..files import TableError, read_table, write_csv
from ..job import Job
from ..settings.schema import Costs, Settings

Match = Literal[MatchKind, "class", "override", "fallback", "physical", "none"]
CONFIDENCES = ("exact", "representative", "proxy")  # how well a billing code fits, the best first
TABLES = ("catalogue.csv", "paper_prices.csv")  # of a catalogue
SHIPPED = Path(__file__).parent  # the folder of the shipped catalogue
ORIGIN = ("source", "year", "locality")  # of a price
COLUMNS = ("examination", "hcpcs", "rate_usd", *ORIGIN, "billing_group", "confidence", "office_usd")
NO_GROUP = "none"  # in overrides: the examination leaves its billing group
_AMOUNT = re.compile(r"\d{1,6}(\.\d+)?")  # US dollars below a million
POOLED = "(names that only the source uses)"  # in place of names that may be a patient's words
COVERAGE_COLUMNS = (
    *("exam_key", "cases", "names", "examination", "hcpcs", "price_usd", "catalogue_usd", "paper_usd"),
    *("source", "year", "locality", "billing_group", "confidence", "how"),
)
REVIEW_COLUMNS = ("examination", "price_usd", "billing_group", "cases", "nearest", "score")
# By the setting ``group_price``: computes the price of a billing group from those of its examinations.
_GROUP_PRICE: dict[str, Callable[[list[float]], float]] = {"max": max, "sum": math.fsum, "first": lambda usd: usd[0]}
_LEAST_SCORE = 75  # of 100: the least similarity for which a known name is shown as the nearest one


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
    if no_examination(exam_key, is_unread=kind in GUESSED):
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


# The prices of cases, and what a request is charged.


def map_costs(settings: Settings, job: Job) -> None:
    """Stage ``map_costs``: write the cases with the price of each examination, and two tables, ``coverage`` and
    ``review``.

    The table ``coverage`` has the source of every price. It goes into reports, so if any case is credentialed (clinical
    text under a data use agreement), names of unknown examinations are pooled there. The table ``review`` has the
    examinations without a billing code under their own names, so that the user can fill in their prices; it stays
    beside the cases.
    """
    catalogue = load_catalogue(job.inputs.get("catalogue"), settings.costs.place_of_service)
    if "overrides" in job.inputs:
        catalogue = with_overrides(catalogue, job.inputs["overrides"])
        print(f"{job.inputs['overrides']}: {len(catalogue.overrides)} prices; rows without one are passed over")
    counts = Counter[str]()  # cases by the examination that they have
    marks = set[bool]()  # whether they are credentialed

    def price_cases() -> Iterator[CaseRecord]:
        """Yield each record with its prices; meanwhile count the examinations, and note whether any case is
        credentialed. One record at a time is in memory."""
        for record in iterate_records(job.inputs["records"]):
            counts.update(list(record.key_pertinent_results_dict))
            marks.add(record.credentialed)
            yield price_case(record, settings.costs, catalogue)

    cases = write_records(job.out["cases"], price_cases())
    write_csv(job.out["coverage"], COVERAGE_COLUMNS, coverage(counts, settings.costs, catalogue, True in marks))
    unmapped = review(counts, settings.costs, catalogue)
    write_csv(job.out["review"], REVIEW_COLUMNS, unmapped)
    job.metrics.update(cases=cases, examinations=len(counts), unmapped=len(unmapped))
    print(f"{job.options['dataset']}: {cases} cases, {len(counts)} examinations, {len(unmapped)} without a code")


def price_case(record: CaseRecord, settings: Costs | None = None, catalogue: Catalogue | None = None) -> CaseRecord:
    """Return the record with ``exam_cost_map`` (US dollars by examination) and ``exam_billing_group`` filled in.
    :func:`cdpr.costs.price_of` has the rules of prices; ``catalogue`` is by default the shipped one.

    Every member of a billing group has the price of the whole group, so that the first request of any member costs the
    same; :func:`charge` charges it once.
    """
    settings = settings or Costs()
    prices = {key: price_of(key, settings, catalogue) for key in record.key_pertinent_results_dict}
    costs, groups = group_prices(prices, settings.group_price)
    return CaseRecord.model_validate(record.model_dump() | {"exam_cost_map": costs, "exam_billing_group": groups})


def group_prices(prices: Mapping[str, Price], rule: str) -> tuple[dict[str, float], dict[str, str]]:
    """Compute the prices and the billing groups of the examinations of a record; returns US dollars by key, and by key
    the billing group of each examination that has one. ``prices`` are the prices of single examinations; ``rule``
    (``max``, ``sum`` or ``first``) computes that of a group.

    Each member of a group has the price of the whole group. Members that are priced as the same examination (analytes
    of one panel) count once, at the highest of their prices; quantities with a code of their own cost their sum, but
    not more than the panel. ``first`` is the first member in the record.
    """
    groups = {key: price.group for key, price in prices.items() if price.group is not None}
    items: dict[str, dict[str, float]] = {}  # by group: the price of each examination
    # Equal prices, as of two spellings of one quantity, count once.
    for group, price in dict.fromkeys((group, prices[key]) for key, group in groups.items()):
        amounts = items.setdefault(group, {})
        earlier = amounts.get(price.examination, 0.0)
        own = price.usd if price.panel_usd is None else min(earlier + price.usd, price.panel_usd)
        amounts[price.examination] = round(max(own, earlier), 2)
    usd = {group: round(_GROUP_PRICE[rule](list(amounts.values())), 2) for group, amounts in items.items()}
    return {key: usd[groups[key]] if key in groups else price.usd for key, price in prices.items()}, groups


def charge(case: CaseRecord, ordered: Collection[str], exam_key: str) -> float:
    """Return the US dollars that a request of the examination ``exam_key`` costs after the examinations ``ordered``.

    An examination that was requested before, or whose billing group was paid with another one, costs nothing. Raises
    KeyError for an examination without a price.
    """
    groups = case.exam_billing_group
    group = groups.get(exam_key)
    is_paid = exam_key in ordered or (group is not None and any(groups.get(earlier) == group for earlier in ordered))
    return 0.0 if is_paid else case.exam_cost_map[exam_key]


def whole_record_usd(case: CaseRecord) -> float:
    """Sum the US dollars of all examinations of a record, each billing group charged once."""
    # An examination without a group is a group of its own.
    groups = {case.exam_billing_group.get(exam) or (exam,): usd for exam, usd in case.exam_cost_map.items()}
    return math.fsum(groups.values())


def coverage(
    counts: Mapping[str, int], settings: Costs, catalogue: Catalogue, pool_unknown: bool = False
) -> list[dict[str, Any]]:
    """Make a table of prices with a row for each examination, sorted by its key, as dictionaries with the columns
    :data:`COVERAGE_COLUMNS`. ``counts`` has the number of cases by examination.

    ``price_usd`` is the examination's price when it is billed alone, ``catalogue_usd`` the catalogue's price and
    ``paper_usd`` the paper's, empty where there is none. With ``pool_unknown``, names of unknown examinations are
    pooled to one row for each way of pricing, because a heading of a note may be a patient's words. A pooled row has
    the mean price over cases, and in ``names`` the number of its names.
    """
    rows: list[dict[str, Any]] = []
    pools: dict[str, list[dict[str, Any]]] = {}
    for key in sorted(counts):
        price = price_of(key, settings, catalogue)
        listed, fields = catalogue.prices.get(price.examination), vars(price)
        row = {name: fields[name] for name in COVERAGE_COLUMNS if name in fields} | {
            "exam_key": key,
            "cases": counts[key],
            "names": 1,
            "price_usd": price.usd,
            "catalogue_usd": "" if listed is None else listed.usd,
            "paper_usd": catalogue.paper.get(price.examination, ""),
            "billing_group": price.group or "",
        }
        destination = pools.setdefault(price.how, []) if pool_unknown and not _is_known(key) else rows
        destination.append(row)
    # One row for each way of pricing, with the mean price over cases.
    for how, pool in sorted(pools.items()):
        cases = sum(row["cases"] for row in pool)
        usd = round(math.fsum(row["cases"] * row["price_usd"] for row in pool) / cases, 2)
        rows.append({"exam_key": POOLED, "cases": cases, "names": len(pool), "price_usd": usd, "how": how})
    return rows


def _is_known(exam_key: str) -> bool:
    """Whether a name means a known examination and has no other words, so that it cannot be a patient's own words."""
    if is_physical(exam_key):
        term = examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
        return term is not None and term.kind == "physical"
    sense = meaning(exam_key)
    return bool(sense.terms) and sense.whole


def review(counts: Mapping[str, int], settings: Costs, catalogue: Catalogue) -> list[dict[str, Any]]:
    """List the examinations that no billing code prices (they cost the median of their class, or the fallback price),
    most frequent first, each with the number of its cases and the most similar known name. ``counts`` has the number of
    cases by examination.

    In the written table, the columns ``price_usd`` and ``billing_group`` are empty: a user fills them in and uses the
    table as overrides.
    """
    rows = []
    for key, cases in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if price_of(key, settings, catalogue).how in ("class", "fallback"):
            alike, score = nearest(key, catalogue) or ("", "")
            rows.append({"examination": key, "cases": cases, "nearest": alike, "score": score})
    return rows


def nearest(name: str, catalogue: Catalogue) -> tuple[str, float] | None:
    """Return the priced examination with the spelling most similar to ``name``, and the similarity (75 to 100). None if
    none is similar, and for a name that is only a specimen."""
    if is_specimen(name) or words_of(name) <= BLOOD:
        return None  # "serum" resembles every examination of serum
    known = _index_names(catalogue)
    best = process.extractOne(normalise(name), known.keys(), scorer=fuzz.token_sort_ratio, score_cutoff=_LEAST_SCORE)
    return (known[best[0]], round(best[1], 1)) if best else None


@functools.lru_cache(maxsize=4)
def _index_names(catalogue: Catalogue) -> dict[str, str]:
    """Return names by their normalised spelling: the name of each priced examination by all of its spellings, and that
    of each quantity that an examination reports."""
    # Where a quantity and an examination have the same spelling, the examination, which is added later, is kept.
    known = {normalise(part): part for term in examinations().terms.values() for part in term.parts}
    known |= {normalise(name): name for name in catalogue.prices}
    return known | {name: term.name for name, term in examinations().spellings.items() if term.kind != "physical"}
