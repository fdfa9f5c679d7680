"""Whether a predicted diagnosis is the true one (paper, "Diagnosis Evaluation"), by tables of names."""

from __future__ import annotations

import functools
from typing import Protocol

from ..cases import diagnoses, leading_disease, normalise


class Judge(Protocol):
    """Compares a predicted diagnosis with the true one."""

    async def prepare(self, predicted: str, truth: str) -> None:
        """Find the verdict, where that takes time (a language model); :meth:`judge` is asked after it."""
        return None

    def judge(self, predicted: str, truth: str) -> bool:
        """Whether they name the same disease; the same question has the same answer."""
        ...


class TableJudge(Judge):
    """Correct when prediction and truth are the same name, or names of the same disease.

    Only the disease named first counts, so that a list of guesses earns nothing for its second entry;
    what follows it may add details (rule 3); a broader category is another name and therefore wrong (rule 4).
    """

    def judge(self, predicted: str, truth: str) -> bool:
        """Verdict on normalised text."""
        return _same_disease(predicted, truth)


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
