"""Attaching the cost map to case records (paper, appendix "Unified examination cost")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..cases import CaseRecord, is_physical
from ..settings.schema import Costs
from .catalogue import Catalogue, Price


def price_of(exam_key: str, settings: Costs, catalogue: Catalogue) -> Price:
    """The price of one examination, US dollars.

    Free for the physical examination; else the user's override, the paper's own price (when ``price_map`` asks for
    them), the catalogue's, the fallback, whichever comes first.
    """
    if is_physical(exam_key):
        return Price("", "", 0.0, "free of charge", "", None, "physical")
    found = catalogue.find(exam_key)
    if found is None:
        return Price("", "", settings.fallback_usd, "fallback", "", None, "fallback")
    own = settings.price_map == "paper_prices" and found.how != "override"
    if own and found.examination in catalogue.paper:
        return replace(found, hcpcs="", usd=catalogue.paper[found.examination], source="paper", year="", locality="")
    return found


def price_case(record: CaseRecord, settings: Costs, catalogue: Catalogue) -> CaseRecord:
    """The record with ``exam_cost_map`` and ``exam_billing_group`` filled.

    Every member of a billing group carries the price of the whole group, so that whichever is ordered first
    is charged the same; :func:`cdpr.costs.billing.charge` charges it once.
    """
    prices = {key: price_of(key, settings, catalogue) for key in record.key_pertinent_results_dict}
    costs, groups = group_prices(prices, settings.group_price)
    return CaseRecord.model_validate(record.model_dump() | {"exam_cost_map": costs, "exam_billing_group": groups})


def group_prices(prices: Mapping[str, Price], rule: str) -> tuple[dict[str, float], dict[str, str]]:
    """(US dollars, billing group) by examination key, with the rule of the billing groups applied."""
    groups = {key: price.group for key, price in prices.items() if price.group is not None}
    group_usd = {
        group: _group_price([prices[key] for key in groups if groups[key] == group], rule)
        for group in set(groups.values())
    }
    return {key: group_usd[groups[key]] if key in groups else price.usd for key, price in prices.items()}, groups


def _group_price(members: list[Price], rule: str) -> float:
    """Price of a billing group from its members in a case, in the record's order.

    Members that are priced by the same examination (analytes of one panel) are one item, at its highest price.
    """
    items: dict[str, float] = {}
    for price in members:
        items[price.examination] = max(price.usd, items.get(price.examination, 0.0))
    amounts = list(items.values())
    if rule == "sum":
        return round(sum(amounts), 2)
    return max(amounts) if rule == "max" else amounts[0]
