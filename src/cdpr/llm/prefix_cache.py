"""Keys and values of token prefixes that were computed before: a radix tree over a bounded pool of slots."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import torch

from .transformer import Cache, Transformer

_BYTES = 4  # of a token in a path


def as_path(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes, four each: prefixes are then compared by the C library."""
    return np.asarray(tokens, dtype=np.int32).tobytes()


class _Node:
    __slots__ = ("children", "edge", "number", "parent", "slots", "used")

    def __init__(self, edge: bytes, slots: np.ndarray, parent: _Node | None, used: int, number: int) -> None:
        self.edge, self.slots, self.parent, self.used, self.number = edge, slots, parent, used, number
        self.children: dict[bytes, _Node] = {}


class PrefixCache:
    """``capacity`` tokens' keys and values; the least recently used leaves make room.

    A slot holds one token's keys and values of all layers. Slot 0 is zero and stands for "nothing here".
    """

    def __init__(self, transformer: Transformer, capacity: int) -> None:
        arch = transformer.architecture
        shape = (capacity + 1, arch.kv_heads * arch.head_dim)
        # Not zeroed: the system gives memory to the pool only as slots are written.
        pools = [torch.empty(shape, dtype=transformer.dtype, device=transformer.device) for _ in range(2 * arch.layers)]
        for pool in pools:
            pool[0] = 0
        self._keys, self._values = pools[: arch.layers], pools[arch.layers :]
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget everything (the weights changed)."""
        self._free = np.arange(self.capacity, 0, -1, dtype=np.int32)  # a stack: low slots are used again first
        self._n_free = self.capacity
        self._clock = 0
        self._created = 0
        self._root = _Node(b"", np.empty(0, np.int32), None, 0, 0)

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return self.capacity - self._n_free

    def tick(self) -> None:
        """Begin a batch: what is touched from here on is not evicted before the next tick."""
        self._clock += 1

    def match(self, path: bytes) -> np.ndarray:
        """Slots of the longest known prefix of ``path``, int32 ``[tokens]``."""
        node, found, at = self._root, [], 0
        while (child := node.children.get(path[at : at + _BYTES])) is not None:
            common = _common(child.edge, path, at)
            child.used = self._clock
            found.append(child.slots[:common])
            at += common * _BYTES
            if common * _BYTES < len(child.edge):
                break
            node = child
        return np.concatenate(found) if found else self._root.slots

    def insert(self, path: bytes) -> tuple[int, np.ndarray]:
        """Make room for ``path``: the token from which it was not known, and the slots to fill from there on.

        The caller writes the slots with :meth:`store`. Fewer slots than tokens come back when the pool is full.
        """
        node, at = self._root, 0
        while (child := node.children.get(path[at : at + _BYTES])) is not None:
            common = _common(child.edge, path, at)
            at += common * _BYTES
            if common * _BYTES < len(child.edge):
                child = self._split(child, common)
            child.used = self._clock
            node = child
        slots = self._allocate((len(path) - at) // _BYTES)
        if len(slots):
            self._created += 1
            edge = path[at : at + len(slots) * _BYTES]
            node.children[edge[:_BYTES]] = _Node(edge, slots, node, self._clock, self._created)
        return at // _BYTES, slots

    def gather(self, slots: np.ndarray) -> Cache:
        """A contiguous cache from slots, int ``[rows, capacity]``; 0 leaves a position empty."""
        index = torch.from_numpy(slots.reshape(-1)).to(self._keys[0].device)
        shape = (*slots.shape, -1)
        return Cache(
            [pool.index_select(0, index).view(shape) for pool in self._keys],
            [pool.index_select(0, index).view(shape) for pool in self._values],
        )

    def store(self, cache: Cache, source: np.ndarray, slots: np.ndarray) -> None:
        """Fill ``slots`` from the flat positions ``source`` (row times capacity plus position) of ``cache``."""
        if not len(slots):
            return
        source, slots = (torch.from_numpy(a).to(self._keys[0].device) for a in (source, slots.astype(np.int64)))
        for pools, held in ((self._keys, cache.keys), (self._values, cache.values)):
            for pool, layer in zip(pools, held, strict=True):
                pool.index_copy_(0, slots, layer.view(-1, layer.shape[-1]).index_select(0, source))

    def _split(self, node: _Node, tokens: int) -> _Node:
        """Cut ``node`` behind ``tokens``; returns the upper part."""
        self._created += 1
        cut = tokens * _BYTES
        upper = _Node(node.edge[:cut], node.slots[:tokens], node.parent, node.used, self._created)
        node.parent.children[upper.edge[:_BYTES]] = upper
        node.edge, node.slots, node.parent = node.edge[cut:], node.slots[tokens:], upper
        upper.children[node.edge[:_BYTES]] = node
        return upper

    def _allocate(self, count: int) -> np.ndarray:
        if count > self._n_free:
            self._evict(max(count, self.capacity // 8))
        count = min(count, self._n_free)
        self._n_free -= count
        return self._free[self._n_free : self._n_free + count][::-1].copy()

    def _evict(self, wanted: int) -> None:
        """Free leaves not used in this batch, least recently used first, until ``wanted`` slots are free."""
        leaves, stack = [], list(self._root.children.values())
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and node.used < self._clock:
                leaves.append((node.used, node.number, node))
        heapq.heapify(leaves)
        while leaves and self._n_free < wanted:
            _, _, node = heapq.heappop(leaves)
            self._free[self._n_free : self._n_free + len(node.slots)] = node.slots
            self._n_free += len(node.slots)
            parent = node.parent
            del parent.children[node.edge[:_BYTES]]
            if parent is not self._root and not parent.children and parent.used < self._clock:
                heapq.heappush(leaves, (parent.used, parent.number, parent))


def _common(edge: bytes, path: bytes, at: int) -> int:
    """Tokens that ``edge`` shares with ``path`` from byte ``at`` on."""
    if path.startswith(edge, at):
        return len(edge) // _BYTES
    ours, theirs = np.frombuffer(edge, np.int32), np.frombuffer(path[at : at + len(edge)], np.int32)
    differs = np.flatnonzero(ours[: len(theirs)] != theirs)
    return int(differs[0]) if len(differs) else len(theirs)
