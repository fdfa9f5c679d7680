"""Splitting by patient: no patient stands on two sides."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence


def split_by_subject(subjects: Sequence[str], sizes: Mapping[str, int], seed: int) -> dict[str, str]:
    """Assign each distinct subject to a split.

    Subjects are ordered by a keyed hash, so the assignment depends neither on the order of the input
    nor on which other subjects are present before them. ``sizes`` maps split names to numbers of
    *cases*; a patient with several cases takes all of them along, so a split may exceed its size by
    the cases of its last patient. Subjects beyond the sizes get no split.
    """
    cases = Counter(subjects)
    order = iter(sorted(cases, key=lambda s: hashlib.sha256(f"{seed}:{s}".encode()).digest()))
    assigned: dict[str, str] = {}
    for name, size in sizes.items():
        filled = 0
        while filled < size and (subject := next(order, None)) is not None:
            assigned[subject] = name
            filled += cases[subject]
    return assigned
