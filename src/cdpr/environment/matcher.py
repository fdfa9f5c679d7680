"""From a requested name to an examination of the case (paper, "Exam Key Matching")."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal, Protocol

from rapidfuzz import fuzz, process

from ..cases import PHYSICAL_SUFFIX, Term, examinations, imaging_words, is_physical, normalise

How = Literal["table", "model", "invalid"]
"""Who answered a request: the tables; a model; or nobody, since the model's answer was no examination."""


class Matcher(Protocol):
    """Finds the examinations of a record that a request names."""

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Find the answer, where that takes time (a language model); :meth:`match` is asked after it."""
        return None

    def match(self, requested: str, keys: Iterable[str]) -> tuple[str, ...]:
        """Keys that the request names, in the record's order: several when a record spells one examination twice;
        empty for NO_MATCH. The same question has the same answer. A matcher that counts requests counts this one."""
        return self.found(requested, keys)[0]

    def found(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], How]:
        """The same, and who says so."""
        ...


class TableMatcher(Matcher):
    """Exact spelling, then the vocabulary's synonyms, then imaging of the same region, then near-identical spelling;
    else no match. A request that does not speak of contrast takes the study that there is, with or without it.

    ``fuzzy_cutoff`` (0-100) bounds the similarity of a misspelling; names with different digits never
    match, so that "B12" is not "B6".
    """

    def __init__(self, fuzzy_cutoff: float):
        self.fuzzy_cutoff = fuzzy_cutoff
        self._match = functools.lru_cache(maxsize=1 << 16)(self._find)

    def match(self, requested: str, keys: Iterable[str]) -> tuple[str, ...]:
        return self._match(normalise(requested), tuple(keys))

    def found(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], How]:
        return self.match(requested, keys), "table"

    def _find(self, requested: str, keys: tuple[str, ...]) -> tuple[str, ...]:
        known = spellings(keys)
        if requested in known:
            return known[requested]
        term = examinations().find(requested)
        if term is not None:
            same = [key for key in keys if _term(key) is term]
            # The key that bears the canonical name comes before keys that are a part of it.
            same.sort(key=lambda key: normalise(key) != normalise(term.name))
            if same:
                return known[normalise(same[0])]
        words, contrast = imaging_words(requested) or (None, "")
        study = next((key for key in keys if words and not contrast and _words(key) == words), None)
        if study is not None:
            return known[normalise(study)]
        if term is not None or self.fuzzy_cutoff >= 100:
            return ()
        return self._fuzzy(requested, known)

    def _fuzzy(self, requested: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        alike = [name for name in known if _digits(name) == _digits(requested)]
        best = process.extractOne(requested, alike, scorer=fuzz.ratio, score_cutoff=self.fuzzy_cutoff)
        return known[best[0]] if best else ()


@functools.lru_cache(maxsize=1 << 14)
def _term(key: str) -> Term | None:
    vocabulary = examinations()
    return vocabulary.find(key) or (vocabulary.find(key.removesuffix(PHYSICAL_SUFFIX)) if is_physical(key) else None)


@functools.lru_cache(maxsize=1 << 14)
def _words(key: str) -> frozenset[str]:
    """Region and modality of an imaging examination; empty for any other."""
    return (imaging_words(key) or (frozenset(), ""))[0]


def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdigit())


@functools.lru_cache(maxsize=1 << 14)
def spellings(keys: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Normalised spellings of the keys; items of the physical examination also without their suffix,
    unless another examination bears that name."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(normalise(key), []).append(key)
    for key in filter(is_physical, keys):
        bare = normalise(key.removesuffix(PHYSICAL_SUFFIX))
        for spelling in (bare, f"{bare} exam", f"{bare} examination"):
            found.setdefault(spelling, [key])
    return {name: tuple(group) for name, group in found.items()}
