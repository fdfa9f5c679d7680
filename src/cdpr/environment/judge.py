"""Whether a predicted diagnosis is the true one (paper, "Diagnosis Evaluation"), by tables of names."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal, Protocol

from ..cases import diagnoses, leading_disease, normalise

# Between alternatives; "with or without" is none.
_ALTERNATIVE = re.compile(
    r"\s*(?:[;|\n]|\band/or\b|(?<!\bwith )\bor\b|\bversus\b|\bvs\b\.?|(?:^|(?<=\s))#?\(?\d{1,2}[.)](?=\s))\s*",
    re.IGNORECASE,
)
_COMMA = re.compile(r"\s*,\s*(?:and\s+)?")


@dataclass(frozen=True)
class Verdict:
    """Whether a diagnosis is right, and the source: the ``table`` of names, a ``model``, or the table because the
    model's answer was no verdict (``invalid``). ``several``: it lists several diseases; the first was judged."""

    correct: bool
    by: Literal["table", "model", "invalid"]
    several: bool


class Judge(Protocol):
    """Compares a predicted diagnosis with the true one; equal questions have equal answers."""

    async def prepare(self, predicted: str, truth: str) -> None:
        """Get the verdict where that takes time (a language model); call it before :meth:`judge`."""
        return None

    def judge(self, predicted: str, truth: str) -> bool:
        """Whether they name the same disease; judges that count their verdicts count this one."""
        return self.verdict(predicted, truth).correct

    def verdict(self, predicted: str, truth: str) -> Verdict:
        """The verdict with its source, not counted."""
        ...


class TableJudge(Judge):
    """Correct when prediction and truth are the same name, or names of the same disease.

    Only the disease named first counts, so that a list of guesses earns nothing for its second entry;
    what follows it may add details (rule 3); a broader category is another name and therefore wrong (rule 4).
    """

    def judge(self, predicted: str, truth: str) -> bool:
        return _same_disease(predicted, truth)

    def verdict(self, predicted: str, truth: str) -> Verdict:
        return Verdict(_same_disease(predicted, truth), "table", named_first(predicted)[1])


def named_first(diagnosis: str) -> tuple[str, bool]:
    """The diagnosis without further alternatives, and whether there were any: a numbered list, "a or b", "a vs b",
    "a; b", or three and more known diseases in a row. (Two in a row may be a disease and its complication.)"""
    parts = [part for piece in _ALTERNATIVE.split(diagnosis) if (part := piece.strip(" ,."))]
    if len(parts) > 1:
        return parts[0], True
    row = [part.strip(" .") for part in _COMMA.split(diagnosis.strip())]
    if len(row) > 2 and all(diagnoses().find(part) for part in row):
        return row[0], True
    return (parts or [diagnosis])[0], False


@functools.lru_cache(maxsize=1 << 16)
def _same_disease(predicted: str, truth: str) -> bool:
    return not _names(predicted).isdisjoint(_names(truth))


def _names(text: str) -> frozenset[str]:
    """Comparable names of a diagnosis: the whole text and its head, each as spelt and as canonical."""
    names = set()
    for spelling in (text, leading_disease(text)):
        term = diagnoses().find(spelling)
        plain = normalise(spelling)
        if plain:
            names.add(normalise(term.name) if term else plain)
    return frozenset(names)
