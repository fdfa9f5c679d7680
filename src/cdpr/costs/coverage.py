"""The price of every examination of the cases, and the names without a code."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields

from rapidfuzz import fuzz, process

from ..cases import examinations, normalise
from ..settings.schema import Costs
from .catalogue import Catalogue, price_of

POOLED = "(names that only the source uses)"
_SPECIMENS = {
    "arterial", "ascites", "ascitic", "blood", "capillary", "cerebrospinal", "csf", "fluid", "peritoneal", "plasma",
    "pleural", "saliva", "serum", "sputum", "stool", "swab", "synovial", "tissue", "urine", "venous", "whole",
}  # fmt: skip
_RESEMBLES = 75  # of 100, below which a name has no nearest known one


@dataclass(frozen=True)
class Coverage:
    """The source of the price of one examination key, and the number of its cases.

    ``price_usd`` is its own price, before the rule of its billing group; ``catalogue_usd`` and ``paper_usd`` are the
    corrected price and the paper's, where there is one. ``names`` is 1 except in a pooled row.
    """

    exam_key: str
    cases: int
    names: int
    examination: str
    hcpcs: str
    price_usd: float
    catalogue_usd: float | str
    paper_usd: float | str
    source: str
    year: str
    locality: str
    billing_group: str
    confidence: str
    how: str


COVERAGE_COLUMNS = tuple(field.name for field in fields(Coverage))
REVIEW_COLUMNS = ("examination", "price_usd", "billing_group", "cases", "nearest", "score")


def coverage(
    counts: Mapping[str, int], settings: Costs, catalogue: Catalogue, pool_unknown: bool = False
) -> list[Coverage]:
    """One row per examination key from the number of cases that have it, sorted by key.

    With ``pool_unknown``, names with words outside the vocabulary and the catalogue are pooled, one row for each way of
    pricing: a heading of a note may be a patient's words.
    """
    rows: list[Coverage] = []
    pools: dict[str, list[Coverage]] = {}
    for key in sorted(counts):
        row = _row(key, counts[key], settings, catalogue)
        pooled = pool_unknown and not catalogue.knows(key)
        (pools.setdefault(row.how, []) if pooled else rows).append(row)
    return rows + [_pool(pools[how]) for how in sorted(pools)]


def _row(key: str, cases: int, settings: Costs, catalogue: Catalogue) -> Coverage:
    price = price_of(key, settings, catalogue)
    listed = catalogue.prices.get(price.examination)
    return Coverage(
        key, cases, 1, price.examination, price.hcpcs, price.usd,
        "" if listed is None else listed.usd, catalogue.paper.get(price.examination, ""),
        price.source, price.year, price.locality, price.group or "", price.confidence, price.how,
    )  # fmt: skip


def _pool(rows: list[Coverage]) -> Coverage:
    """One row for several names: their cases added up, their price on average over these."""
    cases = sum(row.cases for row in rows)
    mean = round(sum(row.cases * row.price_usd for row in rows) / cases, 2)
    return Coverage(POOLED, cases, len(rows), "", "", mean, "", "", "", "", "", "", "", rows[0].how)


def review(counts: Mapping[str, int], settings: Costs, catalogue: Catalogue) -> list[dict[str, str | int | float]]:
    """Examinations without a code, at the price of their class or at the fallback price, most frequent first, each with
    the most similar known name, if any.

    With ``price_usd`` filled in, the table is one of overrides.
    """
    rows = []
    for key, cases in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if price_of(key, settings, catalogue).how not in ("class", "fallback"):
            continue
        alike, score = nearest(key, catalogue) or ("", "")
        blank = {"price_usd": "", "billing_group": ""}
        rows.append({"examination": key, **blank, "cases": cases, "nearest": alike, "score": score})
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
