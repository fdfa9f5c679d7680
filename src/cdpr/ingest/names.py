"""Examination keys of records, from the names that a source uses."""

from __future__ import annotations

from collections.abc import Iterable

from ..cases import PHYSICAL_SUFFIX, examinations
from .summary import one_line


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
