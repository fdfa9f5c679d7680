"""Results that the present illness tells: what the emergency department found, and sentences about examinations."""

import re

from .phrases import phrases
from .sentences import clause_start, spans


def _pattern(words: str) -> re.Pattern[str]:
    """Words in any case; a space stands for any white space, so that a line may be wrapped within."""
    return re.compile(words.replace(" ", r"\s+"), re.IGNORECASE)


_SAID = phrases("told_results")
_EMERGENCY, _ELSEWHEN = _pattern(_SAID["emergency"]), _pattern(_SAID["elsewhen"])
_VISITED, _WORKS = _pattern(_SAID["visited"]), _pattern(_SAID["works"])
_LOOSE_END = re.compile(r"(?:[\s,;:-]|\b(?:and|then|but|where|when)\b)+$", re.IGNORECASE)

_RESULT = re.compile(_SAID["result"])


def before_emergency(text: str) -> str | None:
    """The present illness up to where it turns to what the emergency department of this visit found; None where it
    does not."""
    for sentence, end in spans(text):
        for found in _EMERGENCY.finditer(text, sentence, end):
            start = clause_start(text, sentence, found.start())
            if not _another_visit(text[sentence : found.start()], text[start : found.start()], text[found.end() : end]):
                return _LOOSE_END.sub("", text[: found.start() if found["heading"] or found["line"] else start])
    return None


def _another_visit(sentence: str, clause: str, after: str) -> bool:
    """Whether "in the ED" tells of an earlier visit, one elsewhere, or of a place of work; the arguments are the words
    of the sentence and of its clause up to there, and those that follow."""
    if _WORKS.search(clause):
        return True
    opening = sentence.partition(",")[0]
    when = clause + " " + re.split(r"[,;]| and ", after)[0]
    return bool(_VISITED.search(clause) and (_ELSEWHEN.search(when) or _ELSEWHEN.search(opening)))


def tells_result(sentence: str) -> bool:
    """Whether a sentence says what an examination showed."""
    return _RESULT.search(sentence) is not None
