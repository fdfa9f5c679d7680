"""Seeds of random numbers that depend only on their purpose, so that any order of computation gives the same
numbers."""

import hashlib
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
_NOTHING: Any = object()  # in a round of `stratified_sample`, replaces the item of a kind that has no more items


def derive_seed(*parts: object) -> int:
    """Compute a 63-bit seed from ``parts``: numbers, strings and tuples of them. Equal parts give equal seeds. For
    example ``derive_seed(1, "case")`` and ``derive_seed(2, "case")`` give independent random numbers."""
    # Shifted by one bit, so that the seed fits a signed number of 64 bits too.
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def stratified_sample(
    items: Iterable[Item], count: int, kind: Callable[[Item], Hashable], name: Callable[[Item], str], seed: int
) -> list[Item]:
    """Sample at most ``count`` items, one item of each kind in turn.

    ``kind`` and ``name`` return the kind and the name of an item. Items of a kind are ordered by a digest of ``seed``
    and name, kinds by the digest of their first item. So the order of ``items`` does not matter, and a larger sample
    contains every smaller one.
    """
    strata: dict[Hashable, list[Item]] = {}
    for item in sorted(items, key=lambda item: derive_seed(seed, name(item))):
        strata.setdefault(kind(item), []).append(item)
    rounds = itertools.zip_longest(*strata.values(), fillvalue=_NOTHING)  # round r has item r of each kind
    return [item for items in rounds for item in items if item is not _NOTHING][:count]
