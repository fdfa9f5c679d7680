"""The price of every examination of the cases, and the names without a code."""

import functools
from collections.abc import Mapping
from typing import Any

from rapidfuzz import fuzz, process

from ..cases import PHYSICAL_SUFFIX, examinations, is_physical, meaning, normalise
from ..settings.schema import Costs
from .catalogue import Catalogue, price_of

POOLED = "(names that only the source uses)"
COVERAGE_COLUMNS = (
    *("exam_key", "cases", "names", "examination", "hcpcs", "price_usd", "catalogue_usd", "paper_usd"),
    *("source", "year", "locality", "billing_group", "confidence", "how"),
)
REVIEW_COLUMNS = ("examination", "price_usd", "billing_group", "cases", "nearest", "score")
_SPECIMENS = {
    "arterial", "ascites", "ascitic", "blood", "capillary", "cerebrospinal", "csf", "fluid", "peritoneal", "plasma",
    "pleural", "saliva", "serum", "sputum", "stool", "swab", "synovial", "tissue", "urine", "venous", "whole",
}  # fmt: skip
_RESEMBLES = 75  # of 100, below which a name has no nearest known one


def coverage(
    counts: Mapping[str, int], settings: Costs, catalogue: Catalogue, pool_unknown: bool = False
) -> list[dict[str, Any]]:
    """One row of :data:`COVERAGE_COLUMNS` per examination key from the number of cases that have it, sorted by key.

    ``price_usd`` is its own price, before the rule of its billing group; ``catalogue_usd`` and ``paper_usd`` are the
    corrected price and the paper's, where there is one. With ``pool_unknown``, names with words outside the vocabulary
    and the catalogue are pooled, one row for each way of pricing, its price on average over the cases: a heading of a
    note may be a patient's words. ``names`` is 1 except in a pooled row.
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
        (pools.setdefault(price.how, []) if pool_unknown and not _is_known(key) else rows).append(row)
    for how, pool in sorted(pools.items()):
        cases = sum(row["cases"] for row in pool)
        usd = round(sum(row["cases"] * row["price_usd"] for row in pool) / cases, 2)
        rows.append({"exam_key": POOLED, "cases": cases, "names": len(pool), "price_usd": usd, "how": how})
    return rows


def _is_known(exam_key: str) -> bool:
    """Whether every word of a name is in the vocabulary, so that it cannot be a patient's words."""
    if is_physical(exam_key):
        term = examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
        return term is not None and term.kind == "physical"
    sense = meaning(exam_key)
    return bool(sense.terms) and sense.whole


def review(counts: Mapping[str, int], settings: Costs, catalogue: Catalogue) -> list[dict[str, str | int | float]]:
    """Examinations without a code, at the price of their class or at the fallback price, most frequent first, each with
    the most similar known name, if any.

    With ``price_usd`` filled in, the table is one of overrides.
    """
    rows = []
    for key, cases in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if price_of(key, settings, catalogue).how in ("class", "fallback"):
            alike, score = nearest(key, catalogue) or ("", "")
            rows.append({"examination": key, "cases": cases, "nearest": alike, "score": score})
    return rows


def nearest(name: str, catalogue: Catalogue) -> tuple[str, float] | None:
    """The priced examination with the most similar spelling, and the similarity (to 100); None if none is similar."""
    if not set(normalise(name).split()) - _SPECIMENS:
        return None  # every examination of that specimen begins so
    known = _known(catalogue)
    best = process.extractOne(normalise(name), known.keys(), scorer=fuzz.token_sort_ratio, score_cutoff=_RESEMBLES)
    return (known[best[0]], round(best[1], 1)) if best else None


@functools.lru_cache(maxsize=4)
def _known(catalogue: Catalogue) -> dict[str, str]:
    known = {normalise(part): part for term in examinations().terms.values() for part in term.parts}
    known |= {normalise(name): name for name in catalogue.prices}
    return known | {name: term.name for name, term in examinations().spellings.items() if term.kind != "physical"}
