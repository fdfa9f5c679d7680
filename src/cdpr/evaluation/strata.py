"""A few of many, spread evenly over kinds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from ..seeding import derive_seed

Item = TypeVar("Item")


def stratified(items: Iterable[Item], count: int, kind: Callable[[Item], Hashable], name: Callable[[Item], str],
               seed: int) -> list[Item]:  # fmt: skip
    """At most ``count`` items, one of each ``kind`` in turn. Within a kind a digest of the seed and the item's ``name``
    decides, so the order of the items does not matter, and a larger sample holds every smaller one."""
    strata: dict[Hashable, list[Item]] = {}
    for item in sorted(items, key=lambda item: derive_seed(seed, name(item))):
        strata.setdefault(kind(item), []).append(item)
    ranked = [(rank, place, item) for place, stratum in enumerate(strata.values()) for rank, item in enumerate(stratum)]
    return [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])[:count]]
