"""Seeds that depend only on what they are for, so that any order of computation gives the same random numbers."""

import hashlib
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from the representation of its parts (numbers, strings, tuples of them)."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def stratified_sample(
    items: Iterable[Item], count: int, kind: Callable[[Item], Hashable], name: Callable[[Item], str], seed: int
) -> list[Item]:
    """A sample of at most ``count`` items that takes one item of each ``kind`` in turn.

    Within a kind, items are ordered by a digest of the seed and their ``name``. So the order of ``items`` does not
    matter, and a larger sample contains every smaller one.
    """
    strata: dict[Hashable, list[Item]] = {}
    for item in sorted(items, key=lambda item: derive_seed(seed, name(item))):
        strata.setdefault(kind(item), []).append(item)
    ranked = [(rank, k, item) for k, stratum in enumerate(strata.values()) for rank, item in enumerate(stratum)]
    return [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])[:count]]
