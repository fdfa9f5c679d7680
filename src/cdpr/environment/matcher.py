"""From a requested name to an examination of the case (paper, "Exam Key Matching")."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal, Protocol

from rapidfuzz import fuzz, process

from ..cases import (
    PHYSICAL_SUFFIX,
    Meaning,
    Term,
    class_of,
    examinations,
    imaging_words,
    is_physical,
    meaning,
    modality,
    names_no_place,
    normalise,
    quantity_words,
    whole_kind,
)

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
    """Exact spelling, then the same examination in other words, then what reports it or is a part of it, then imaging
    of the same region, near-identical spelling, and last a whole that holds it ("Laboratory Tests"); else no match. A
    request that does not speak of contrast takes the study that there is, with or without it.

    ``fuzzy_cutoff`` (0-100) bounds the similarity of a misspelling; names with different digits never
    match, so that "B12" is not "B6".
    """

    def __init__(self, fuzzy_cutoff: float):
        self.fuzzy_cutoff = fuzzy_cutoff
        self._match = functools.lru_cache(maxsize=1 << 16)(self._find)

    def match(self, requested: str, keys: Iterable[str]) -> tuple[str, ...]:
        return self._match(requested, tuple(keys))

    def found(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], How]:
        return self.match(requested, keys), "table"

    def _find(self, requested: str, keys: tuple[str, ...]) -> tuple[str, ...]:
        known, plain = spellings(keys), normalise(requested)
        if plain in known:
            return known[plain]
        own = examinations().find(requested)
        physical = whole_kind(requested) == "physical" or (own is not None and own.kind == "physical")
        if physical:
            return _at_the_bedside(own, keys, known)
        said = meaning(requested)
        same = [key for key in keys if said.term is not None and said.how != "analyte" and _means(key) is said.term]
        # The key that bears the canonical name comes before keys that are a part of it.
        same.sort(key=lambda key: normalise(key) != normalise(said.terms[0].name))
        if same and (not said.terms[0].parts or normalise(same[0]) == normalise(said.terms[0].name)):
            return known[normalise(same[0])]
        if related := _related(requested, said, keys):
            return related
        words, contrast = imaging_words(requested) or (None, "")
        study = next((key for key in keys if words and not contrast and _words(key) == words), None)
        if study is not None:
            return known[normalise(study)]
        alike = self._fuzzy(plain, known) if own is None and self.fuzzy_cutoff < 100 else ()
        return alike or _in_a_whole(requested, said, keys)

    def _fuzzy(self, requested: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        alike = [name for name in known if _digits(name) == _digits(requested)]
        best = process.extractOne(requested, alike, scorer=fuzz.ratio, score_cutoff=self.fuzzy_cutoff)
        return known[best[0]] if best else ()


def _at_the_bedside(system: Term | None, keys: tuple[str, ...], known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Items of the physical examination: the one asked for, else the whole that holds it; all for all of it."""
    items = {key: key.removesuffix(PHYSICAL_SUFFIX) for key in keys if is_physical(key)}
    if system is None:
        return tuple(items)
    terms = {key: examinations().find(name) for key, name in items.items()}
    same = next((key for key, term in terms.items() if term is system), None)
    if same is not None:
        return known[normalise(same)]
    # What has no headings stands under the general appearance, alone.
    alone = sum(term is None or term.name != "Vital Signs" for term in terms.values()) == 1
    return tuple(key for key, name in items.items() if whole_kind(name) == "physical" and (alone or terms[key] is None))


def _related(requested: str, said: Meaning, keys: tuple[str, ...]) -> tuple[str, ...]:
    """For a quantity, the key of this quantity, else what reports it; for an examination, a key that names it among
    others, else its quantities and what it holds, else what holds it."""
    if not said.terms:
        return ()
    meant = {key: meaning(key) for key in keys if not is_physical(key)}
    if said.how == "analyte":
        words = quantity_words(requested)
        same = tuple(k for k, one in meant.items() if one.how == "analyte" and quantity_words(k) == words)
        reporting = (k for k, one in meant.items() if one.how != "analyte" and said.terms[0] in one.terms)
        return same or tuple(reporting)[:1] or _holding(said.terms[0], meant)[:1]
    named = tuple(k for k, one in meant.items() if set(said.terms) & set(one.terms))
    held = {name for term in said.terms for name in term.holds}
    inside = tuple(k for k, one in meant.items() if any(term.name in held for term in one.terms))
    return named or inside or _holding(said.terms[0], meant)[:1]


def _holding(term: Term, meant: dict[str, Meaning]) -> tuple[str, ...]:
    """Keys of examinations that hold this one."""
    return tuple(
        key
        for key, one in meant.items()
        if one.how != "analyte" and any(term.name in panel.holds for panel in one.terms)
    )


def _in_a_whole(requested: str, said: Meaning, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The key that gathers examinations of this kind under one heading, or names the kind alone ("CT", "Biopsy")."""
    kind = said.terms[0].kind if said.terms else said.kind
    if said.kind in ("biopsy", "pathology") or any(class_of(term) in ("biopsy", "pathology") for term in said.terms):
        kind = "pathology"
    elif modality(requested):
        kind = "imaging"
    wanted = {"microbiology": "laboratory"}.get(kind, kind)
    classes = {class_of(term) for term in said.terms} or {said.kind}
    found = []
    for key in keys:
        of_class = meaning(key).kind in classes and (names_no_place(key) or meaning(key).terms)
        if wanted and not is_physical(key) and (whole_kind(key) == wanted or of_class):
            found.append(key)
    return tuple(found)


@functools.lru_cache(maxsize=1 << 14)
def _means(key: str) -> Term | None:
    """The one examination that a key is, not a quantity of it."""
    said = meaning(key)
    return said.term if not is_physical(key) and said.how != "analyte" else None


@functools.lru_cache(maxsize=1 << 14)
def _words(key: str) -> frozenset[str]:
    """Region and modality of an imaging examination; empty for any other."""
    return (imaging_words(key) or (frozenset(), ""))[0]


@functools.lru_cache(maxsize=1 << 14)
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
