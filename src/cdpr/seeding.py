"""Seeds that depend on what is drawn, not on when: any order of evaluation gives the same draws."""

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
    """At most ``count`` items, one of each ``kind`` in turn. Within a kind a digest of the seed and the item's ``name``
    decides, so the order of the items does not matter, and a larger sample contains every smaller one."""
    strata: dict[Hashable, list[Item]] = {}
    for item in sorted(items, key=lambda item: derive_seed(seed, name(item))):
        strata.setdefault(kind(item), []).append(item)
    ranked = [(rank, place, item) for place, stratum in enumerate(strata.values()) for rank, item in enumerate(stratum)]
    return [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])[:count]]
