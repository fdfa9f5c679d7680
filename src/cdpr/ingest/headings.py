"""Where the parts of a text begin and end: headings with what is below them, sentences, clauses."""

import functools
import re
from collections.abc import Iterable, Sequence

from .texts import LONG_CLAUSE, patterns

_PATTERN = patterns("texts")


def numbered_groups(expressions: Iterable[str]) -> str:
    """A regular expression that matches any of ``expressions``; :func:`group_number` says which one."""
    return "|".join(f"(?P<s{number}>{expression})" for number, expression in enumerate(expressions))


def group_number(match: re.Match[str]) -> int:
    """The index of the expression of :func:`numbered_groups` that matched."""
    return int(str(match.lastgroup)[1:])


def spans_between(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of the text before the first of some spans (start, end), between each two, and after the last."""
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return list(zip(starts, ends, strict=True))


def split_at_headings(text: str, headings: Iterable[re.Match[str]]) -> list[tuple[re.Match[str] | None, str]]:
    """Split a text at its headings. Returns None with the text before the first heading, then each heading with the
    text below it."""
    headings = list(headings)
    bodies = [text[start:end].strip() for start, end in spans_between(text, [heading.span() for heading in headings])]
    return list(zip([None, *headings], bodies, strict=True))


@functools.lru_cache(maxsize=8)  # several readers of one text need them
def sentence_spans(text: str) -> tuple[tuple[int, int], ...]:
    """Start and end of every sentence, without the white space between them."""
    breaks = [match.span() for match in _PATTERN.sentence_end.finditer(text)]
    return tuple((start, end) for start, end in spans_between(text, breaks) if text[start:end].strip())


def clause_start(text: str, sentence_start: int, position: int) -> int:
    """The start of the clause that contains ``position``, in the sentence that begins at ``sentence_start``; the
    position itself where the clause is longer than 80 characters, too long to be one."""
    breaks = [match.end() for match in _PATTERN.clause.finditer(text[sentence_start:position])]
    start = sentence_start + max(breaks, default=0)
    return start if position - start <= LONG_CLAUSE else position
