"""Finds where the parts of a text begin and end: headings with the text below them, sentences, and clauses."""

import functools
import re
from collections.abc import Iterable, Sequence

from .texts import LONG_CLAUSE, patterns

_PATTERN = patterns("texts")


def numbered_groups(expressions: Iterable[str]) -> str:
    """Return a regular expression that matches any of ``expressions``, each as a group: ``(a)|(b)``. The expressions
    have no groups of their own, so ``match.lastindex`` is the number of the one that matched, counted from 1."""
    return "|".join(f"({expression})" for expression in expressions)


def spans_between(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (start, end) of each piece of text between ``spans``: before the first one, between each two, and after
    the last. The comma and space of "ab, c", the span (2, 4), leave (0, 2) and (4, 5)."""
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return list(zip(starts, ends, strict=True))


def split_at_headings(text: str, headings: Iterable[re.Match[str]]) -> list[tuple[re.Match[str] | None, str]]:
    """Split a text at its headings. Returns pairs (heading, text below it); the first pair has None and the text before
    the first heading."""
    headings = list(headings)
    bodies = [text[start:end].strip() for start, end in spans_between(text, [heading.span() for heading in headings])]
    return list(zip([None, *headings], bodies, strict=True))


@functools.lru_cache(maxsize=8)  # several readers of one text need them
def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Return (start, end) of every sentence of a text, without the white space between sentences."""
    breaks = [match.span() for match in _PATTERN.sentence_end.finditer(text)]
    return tuple((start, end) for start, end in spans_between(text, breaks) if text[start:end].strip())


def clause_start(text: str, sentence_start: int, position: int) -> int:
    """Return where the clause that contains ``position`` begins, in the sentence that begins at ``sentence_start``.
    Returns ``position`` itself where more than 80 characters are between them, which are too many for a clause."""
    clause_ends = [match.end() for match in _PATTERN.clause.finditer(text[sentence_start:position])]
    start = sentence_start + max(clause_ends, default=0)
    return start if position - start <= LONG_CLAUSE else position
