"""Attaching the cost map to case records (paper, appendix "Unified examination cost")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from ..cases import CaseRecord, is_physical
from ..settings.schema import Costs
from .catalogue import Catalogue, Price


@dataclass(frozen=True)
class Coverage:
    """What one examination key was priced by, and in how many cases it occurs; ``price_usd`` is its own price,
    before the rule of its billing group."""

    exam_key: str
    cases: int
    examination: str
    hcpcs: str
    price_usd: float
    source: str
    year: str
    billing_group: str
    how: str

    def row(self) -> dict[str, str | int | float]:
        """The fields as a table row."""
        return asdict(self)


def price_of(exam_key: str, settings: Costs, catalogue: Catalogue) -> Price:
    """The price of one examination: free for the physical examination, else the paper's own price (when
    ``price_map`` asks for them), else the catalogue's, else the fallback. US dollars."""
    if is_physical(exam_key):
        return Price("", "", 0.0, "free of charge", "", None, "physical")
    found = catalogue.find(exam_key)
    if found is None:
        return Price("", "", settings.fallback_usd, "fallback", "", None, "fallback")
    if settings.price_map == "paper_prices" and found.examination in catalogue.paper:
        return replace(found, hcpcs="", usd=catalogue.paper[found.examination], source="paper", year="")
    return found


def price_case(record: CaseRecord, settings: Costs, catalogue: Catalogue) -> CaseRecord:
    """The record with ``exam_cost_map`` and ``exam_billing_group`` filled.

    Every member of a billing group carries the price of the whole group, so that whichever is ordered first
    is charged the same; :func:`cdpr.costs.billing.charge` charges it once.
    """
    prices = {key: price_of(key, settings, catalogue) for key in record.key_pertinent_results_dict}
    groups = {key: price.group for key, price in prices.items() if price.group is not None}
    group_usd = {
        group: _group_price([prices[key] for key in groups if groups[key] == group], settings.group_price)
        for group in set(groups.values())
    }
    costs = {key: group_usd[groups[key]] if key in groups else price.usd for key, price in prices.items()}
    return CaseRecord.model_validate(record.model_dump() | {"exam_cost_map": costs, "exam_billing_group": groups})


def price_cases(
    records: Iterable[CaseRecord], settings: Costs, catalogue: Catalogue
) -> tuple[list[CaseRecord], list[Coverage]]:
    """Priced records, and the coverage table sorted by examination key."""
    priced = [price_case(record, settings, catalogue) for record in records]
    counts = Counter(key for record in priced for key in record.key_pertinent_results_dict)
    return priced, coverage(counts, settings, catalogue)


def coverage(counts: Mapping[str, int], settings: Costs, catalogue: Catalogue) -> list[Coverage]:
    """One row per examination key from the number of cases that have it."""
    prices = {key: price_of(key, settings, catalogue) for key in sorted(counts)}
    return [
        Coverage(key, counts[key], p.examination, p.hcpcs, p.usd, p.source, p.year, p.group or "", p.how)
        for key, p in prices.items()
    ]


def _group_price(members: list[Price], rule: str) -> float:
    """Price of a billing group from its members in a case, in the record's order.

    Members that are priced by the same examination (analytes of one panel) are one item: they add nothing.
    """
    amounts = list({price.examination: price.usd for price in members}.values())
    if rule == "sum":
        return round(sum(amounts), 2)
    return max(amounts) if rule == "max" else amounts[0]
