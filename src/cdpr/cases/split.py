"""Splitting by patient: no patient stands on two sides."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def split_by_subject(subjects: Sequence[str], sizes: Mapping[str, int], seed: int) -> dict[str, str]:
    """Assign each distinct subject to a split.

    Subjects are ordered by a keyed hash, so the assignment depends neither on the order of the input
    nor on which other subjects are present before them. ``sizes`` maps split names to numbers of
    *cases*; a patient with several cases takes all of them along, so a split may exceed its size by
    the cases of its last patient. Subjects beyond the sizes get no split.
    """
    cases: dict[str, int] = {}
    for subject in subjects:
        cases[subject] = cases.get(subject, 0) + 1
    order = sorted(cases, key=lambda s: hashlib.sha256(f"{seed}:{s}".encode()).digest())
    assigned: dict[str, str] = {}
    position = 0
    for name, size in sizes.items():
        filled = 0
        while filled < size and position < len(order):
            assigned[order[position]] = name
            filled += cases[order[position]]
            position += 1
    return assigned
