"""Finds where the parts of a text begin and end: headings with the text below them, sentences, and clauses."""

import functools
import re
from collections.abc import Iterable, Sequence

from .texts import LONG_CLAUSE, patterns

_PATTERN = patterns("texts")


def numbered_groups(expressions: Iterable[str]) -> str:
    """Return a regular expression that matches any of ``expressions``, each as a named group "s0", "s1", ... By the
    name :func:`group_number` finds which one matched."""
    return "|".join(f"(?P<s{number}>{expression})" for number, expression in enumerate(expressions))


def group_number(match: re.Match[str]) -> int:
    """Return the index of the expression that matched: of a match of :func:`numbered_groups`, whose groups are called
    "s0", "s1", ..."""
    return int(str(match.lastgroup)[1:])


def spans_between(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (start, end) of each piece of text between ``spans``: before the first one, between each two, and after
    the last."""
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
    breaks = [match.end() for match in _PATTERN.clause.finditer(text[sentence_start:position])]
    start = sentence_start + max(breaks, default=0)
    return start if position - start <= LONG_CLAUSE else position
