"""Whether a predicted diagnosis is the true one (paper, "Diagnosis Evaluation"), by tables of names."""

from __future__ import annotations

import functools

from ..cases import diagnoses, leading_disease, normalise


class AliasJudge:
    """Correct when prediction and truth are the same name, or names of the same disease.

    Only the disease named first counts, so that a list of guesses earns nothing for its second entry;
    what follows it may add details (rule 3); a broader category is another name and therefore wrong (rule 4).
    """

    @staticmethod
    @functools.lru_cache(maxsize=1 << 16)
    def judge(predicted: str, truth: str) -> bool:
        """Verdict on normalised text; memoised."""
        truth_names = _names(truth)
        return any(p in truth_names for p in _names(predicted))


def _names(text: str) -> frozenset[str]:
    """Comparable names of a diagnosis: the whole text and its head, each as spelt and as canonical."""
    names = set()
    for spelling in (text, leading_disease(text)):
        term = diagnoses().find(spelling)
        plain = normalise(spelling)
        if plain:
            names.add(normalise(term.name) if term else plain)
    return frozenset(names)
