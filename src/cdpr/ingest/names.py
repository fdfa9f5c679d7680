"""Examination keys of records, from the names that a source uses, and which analytes make up which examination."""

import functools
import re
from collections.abc import Iterable

from ..cases import PHYSICAL_SUFFIX, examinations, normalise
from ..files import shipped_table
from .phrases import phrases
from .summary import one_line

_WORDS = phrases("names")
ANY_LABEL = "*"


def exam_key(name: str) -> str:
    """The general name where the vocabulary knows the spelling, else the source's own, cleaned."""
    name = one_line(name)
    term = examinations().find(name)
    return term.name if term is not None and term.kind != "physical" else name


def physical_key(name: str) -> str:
    """Key of an item of the physical examination, with its suffix; synonyms share the general name."""
    name = one_line(name).removesuffix(PHYSICAL_SUFFIX)
    for spelling in (name, *_shortened(name)):
        term = examinations().find(spelling)
        if term is not None and term.kind == "physical":
            return term.name + PHYSICAL_SUFFIX
    return name + PHYSICAL_SUFFIX


def _shortened(name: str) -> Iterable[str]:
    for ending in (" Examination", " Exam", " System"):
        if name.casefold().endswith(ending.casefold()):
            yield name[: -len(ending)]


def add_text(results: dict[str, str], key: str, text: str) -> None:
    """Add a result; texts under one key follow one another."""
    results[key] = f"{results[key]} {text}" if key in results else text


def examination_of(analyte: str, fluid: str = "Blood") -> str | None:
    """The examination that reports an analyte of a fluid, whatever the order and number of the words that name it."""
    return _analytes().get((fluid, _analyte_words(analyte)))


@functools.cache
def _analytes() -> dict[tuple[str, frozenset[str]], str]:
    found: dict[tuple[str, frozenset[str]], str] = {}
    for examination, label, fluid, _, _ in panels():
        aside = re.fullmatch(r"(.+?)\s*\(([^)]+)\)", label)
        for name in (label, *(aside.groups() if aside else ())):
            found.setdefault((fluid, _analyte_words(name)), examination)
    return found


def _analyte_words(name: str) -> frozenset[str]:
    words = [word.rstrip("+") for word in normalise(name).split()]
    words = [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]
    plain = " ".join(word for word in words if word not in _WORDS["filling"])
    return frozenset(_WORDS["short"].get(plain, plain).split())


@functools.cache
def panels() -> tuple[tuple[str, str, str, int, int], ...]:
    """Rows of ``panels.csv`` in report order: (examination, label, fluid, place of the examination, place of the
    label); label ``*`` takes what no other row of its fluid names.

    Raises ValueError when one analyte stands in two examinations.
    """
    owner: dict[tuple[str, str], str] = {}
    first: dict[str, int] = {}
    rows = []
    for place, row in enumerate(shipped_table("cdpr.ingest", "panels.csv")):
        examination, label, fluid = row["examination"], row["label"], row["fluid"]
        if owner.setdefault((label, fluid), examination) != examination:
            raise ValueError(f"panels.csv: {label!r} ({fluid}) stands in {owner[label, fluid]!r} and {examination!r}")
        rows.append((examination, label, fluid, first.setdefault(examination, place), place))
    return tuple(rows)
