"""Prices the examinations in case records, computes the charge of a request (paper, appendix "Unified examination
cost"), and lists names of examinations without a billing code."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from rapidfuzz import fuzz, process

from ..cases import PHYSICAL_SUFFIX, CaseRecord, is_physical, iterate_records, meaning, write_records
from ..cases.naming import BLOOD, is_specimen, words_of
from ..cases.vocabulary import examinations, normalise
from ..files import write_csv
from ..job import Job
from ..settings.schema import Costs, Settings
from .catalogue import Catalogue, Price, load_catalogue, price_of, with_overrides

POOLED = "(names that only the source uses)"  # in place of names that may be a patient's words
COVERAGE_COLUMNS = (
    *("exam_key", "cases", "names", "examination", "hcpcs", "price_usd", "catalogue_usd", "paper_usd"),
    *("source", "year", "locality", "billing_group", "confidence", "how"),
)
REVIEW_COLUMNS = ("examination", "price_usd", "billing_group", "cases", "nearest", "score")
# By the setting ``group_price``: computes the price of a billing group from those of its examinations.
_GROUP_PRICE: dict[str, Callable[[Iterable[float]], float]] = {
    "max": max,
    "sum": lambda usd: round(math.fsum(usd), 2),
    "first": lambda usd: next(iter(usd)),
}
_LEAST_SCORE = 75  # of 100: the least similarity for which a known name is shown as the nearest one


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
    credentialed = False  # whether any case is

    def price_cases() -> Iterator[CaseRecord]:
        """Yield each record with its prices; meanwhile count the examinations, and note whether any case is
        credentialed."""
        nonlocal credentialed
        for record in iterate_records(job.inputs["records"]):
            counts.update(list(record.key_pertinent_results_dict))
            credentialed |= record.credentialed
            yield price_case(record, settings.costs, catalogue)

    cases = write_records(job.out["cases"], price_cases())
    write_csv(job.out["coverage"], COVERAGE_COLUMNS, coverage(counts, settings.costs, catalogue, credentialed))
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
    usd = {group: _GROUP_PRICE[rule](amounts.values()) for group, amounts in items.items()}  # by group
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
        is_pooled = pool_unknown and not _is_known(key)
        destination = pools.setdefault(price.how, []) if is_pooled else rows
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
    spelling, similarity, _ = best or ("", 0.0, 0)
    return (known[spelling], round(similarity, 1)) if best else None


@functools.lru_cache(maxsize=4)
def _index_names(catalogue: Catalogue) -> dict[str, str]:
    """Return names by their normalised spelling: the name of each priced examination by all of its spellings, and that
    of each quantity that an examination reports."""
    # Where a quantity and an examination have the same spelling, the examination, which is added later, is kept.
    known = {normalise(part): part for term in examinations().terms.values() for part in term.parts}
    known |= {normalise(name): name for name in catalogue.prices}
    return known | {name: term.name for name, term in examinations().spellings.items() if term.kind != "physical"}
