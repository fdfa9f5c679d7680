"""Where the parts of a text begin and end: headings with what is below them, sentences, clauses."""

import functools
import re
from collections.abc import Iterable, Sequence

from .texts import LONG_CLAUSE, patterns

_PATTERN = patterns("texts")


def alternatives(expressions: Iterable[str]) -> str:
    """A regular expression for any of these, which :func:`matched` tells apart."""
    return "|".join(f"(?P<s{i}>{expression})" for i, expression in enumerate(expressions))


def matched(match: re.Match[str]) -> int:
    """Which of some :func:`alternatives` a match is of."""
    return int(str(match.lastgroup)[1:])


def gaps(text: str, matches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of the text before the first of these spans, between them, and behind the last."""
    return list(zip([0, *(end for _, end in matches)], [*(start for start, _ in matches), len(text)], strict=True))


def headed(text: str, headings: Iterable[re.Match[str]]) -> list[tuple[re.Match[str] | None, str]]:
    """The text before the first heading, with None; then each heading with the text below it."""
    headings = list(headings)
    bodies = [text[start:end].strip() for start, end in gaps(text, [heading.span() for heading in headings])]
    return list(zip([None, *headings], bodies, strict=True))


@functools.lru_cache(maxsize=8)  # several readers of one text need them
def spans(text: str) -> tuple[tuple[int, int], ...]:
    """Start and end of every sentence, without the white space between them."""
    ends = [match.span() for match in _PATTERN.sentence_end.finditer(text)]
    return tuple((start, end) for start, end in gaps(text, ends) if text[start:end].strip())


def clause_start(text: str, sentence: int, place: int) -> int:
    """Where the clause that holds ``place`` begins, in the sentence from ``sentence`` on; ``place`` itself where the
    clause is too long to be one."""
    starts = [sentence, *(sentence + match.end() for match in _PATTERN.clause.finditer(text[sentence:place]))]
    return starts[-1] if place - starts[-1] <= LONG_CLAUSE else place
