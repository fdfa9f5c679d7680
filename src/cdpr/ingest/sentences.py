"""Where headed parts, sentences and clauses of a clinical text begin and end."""

import re
from collections.abc import Iterable, Sequence

# A line end within a sentence is a wrapped line: the next begins with a small letter, or the one before cannot end so.
_JOINING = (
    "or", "and", "of", "no", "the", "a", "an", "in", "to", "with", "at", "for", "on", "by", "from", "his", "her",
)  # fmt: skip
# What a match begins with is asked first: nearly everywhere it is not there, and looking behind is dear.
LINE_END = (
    r"(?=\s)(?<!,)" + "".join(rf"(?<!\b{word})" for word in _JOINING) + r"[^\S\n]*\n+\s*(?=[-*•#(A-Z0-9_\u3400-\u9fff])"
)
_STOP = r"(?=\s)(?<=[.!?;])(?<!\bMr\.)(?<!\bMrs\.)(?<!\bMs\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\bvs\.)\s+|(?<=[。！？；])"
SENTENCE_END = re.compile(rf"{_STOP}|{LINE_END}")
_CLAUSE = re.compile(r"(?<=[,:])\s+|\s+(?=(?:and|then|but|where|when)\s)", re.IGNORECASE)
_LONG_CLAUSE = 80  # characters


def gaps(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Start and end of what stands before the first of some places, between them, and behind the last."""
    return list(zip([0, *(end for _, end in places)], [*(start for start, _ in places), len(text)], strict=True))


def headed(text: str, headings: Iterable[re.Match[str]]) -> list[tuple[re.Match[str] | None, str]]:
    """What stands before the first heading, then each heading with the text below it."""
    headings = list(headings)
    bodies = [text[start:end].strip() for start, end in gaps(text, [heading.span() for heading in headings])]
    return list(zip([None, *headings], bodies, strict=True))


def spans(text: str) -> list[tuple[int, int]]:
    """Start and end of every sentence, without the white space between them."""
    ends = [match.span() for match in SENTENCE_END.finditer(text)]
    return [(start, end) for start, end in gaps(text, ends) if text[start:end].strip()]


def clause_start(text: str, sentence: int, place: int) -> int:
    """Where the clause that holds ``place`` begins, in the sentence from ``sentence`` on; ``place`` itself where the
    clause is too long to be one."""
    starts = [sentence, *(sentence + match.end() for match in _CLAUSE.finditer(text[sentence:place]))]
    return starts[-1] if place - starts[-1] <= _LONG_CLAUSE else place
