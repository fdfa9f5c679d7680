"""Keys and values of token prefixes that were computed before: a radix tree over a bounded pool of slots."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .transformer import Transformer

_BYTES = 4  # of a token in a path


def as_path(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes, four each: prefixes are then compared by the C library."""
    return array("i", tokens).tobytes()


class Node:
    """The tokens between two branchings of the tree. A node stands for the path that ends with it, and keeps doing so
    when it is split."""

    __slots__ = ("children", "edge", "level", "number", "parent", "slots", "used")

    def __init__(self, edge: bytes, slots: np.ndarray, parent: Node | None, used: int, number: int, level: int) -> None:
        self.edge, self.slots, self.parent = edge, slots, parent
        self.used, self.number, self.level = used, number, level
        self.children: dict[bytes, Node] = {}


class Place(NamedTuple):
    """Where a path lies in the pool."""

    node: Node
    slots: np.ndarray  # int32 [tokens], of the whole path
    known: int  # tokens that the tree held before
    level: int  # placements of this batch that must be filled before: 0 when all it builds on was filled earlier


class PrefixCache:
    """``capacity`` tokens' keys and values; the least recently used leaves make room.

    A slot holds one token's keys and values of all layers. Slot 0 is no token's: what padding reads and writes.
    """

    def __init__(self, transformer: Transformer, capacity: int) -> None:
        self._transformer = transformer
        self._heads, self._width = transformer.architecture.kv_heads, transformer.architecture.head_dim
        self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """Forget everything and hold ``capacity`` tokens from now on."""
        layers, weight = self._transformer.architecture.layers, self._transformer.embedding
        # Not zeroed: the system gives memory to the pool only as slots are written.
        pools = [weight.new_empty(capacity + 1, self._heads * self._width) for _ in range(2 * layers)]
        for pool in pools:
            pool[0] = 0
        self._keys, self._values = pools[:layers], pools[layers:]
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget everything (the weights changed)."""
        self._free = np.arange(self.capacity, 0, -1, dtype=np.int32)  # a stack: low slots are used again first
        self._n_free = self.capacity
        self._clock = 0
        self._created = 0
        self._filled = 0  # nodes up to this number were filled in an earlier batch
        self._root = Node(b"", np.empty(0, np.int32), None, 0, 0, 0)

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return self.capacity - self._n_free

    def tick(self) -> None:
        """Begin a batch: what is touched from here on is not evicted before the next tick."""
        self._clock += 1
        self._filled = self._created

    def place(self, path: bytes) -> Place | None:
        """Slots for the whole of ``path``; the caller fills those behind ``known``. None when the pool is full."""
        node, at, level, found = self._descend(self._root, path)
        known = at // _BYTES
        if at < len(path):
            slots = self._allocate(len(path) // _BYTES - known)
            if slots is None:
                return None
            node = self._attach(node, path[at:], slots, level + 1)
            found.append(slots)
        return Place(node, np.concatenate(found), known, level)

    def grow(self, node: Node, path: bytes) -> tuple[int, np.ndarray]:
        """Continue ``node`` by ``path``: the token of it from which it was not known, and the slots to fill from
        there on: fewer than tokens, or none, when the pool is full."""
        node, at, level, _ = self._descend(node, path)
        missing = (len(path) - at) // _BYTES
        slots = self._allocate(missing)
        if slots is None:
            slots = self._allocate(min(missing, self._n_free))
        if len(slots):
            self._attach(node, path[at : at + len(slots) * _BYTES], slots, level + 1)
        return at // _BYTES, slots

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Fill ``slots`` (int64 ``[T]``) of one layer with ``[T, kv_heads * head_dim]``."""
        self._keys[layer].index_copy_(0, slots, keys)
        self._values[layer].index_copy_(0, slots, values)

    def read(self, layer: int, index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Copy one layer into the contiguous ``keys`` and ``values`` ``[rows, kv_heads, tokens, head_dim]``; ``index``
        is what :meth:`index` makes of the slots."""
        for pool, out in ((self._keys[layer], keys), (self._values[layer], values)):
            torch.index_select(pool.view(-1, self._width), 0, index, out=out.view(-1, self._width))

    def index(self, slots: np.ndarray) -> Tensor:
        """Rows of the pool, head by head, for slots ``[rows, tokens]``."""
        heads = np.arange(self._heads, dtype=slots.dtype)[:, None]
        return torch.from_numpy((slots[:, None] * self._heads + heads).reshape(-1)).to(self._keys[0].device)

    def _descend(self, node: Node, path: bytes) -> tuple[Node, int, int, list[np.ndarray]]:
        """Follow ``path`` below ``node``, splitting where it leaves an edge: the last node of it, the bytes followed,
        the greatest level on the way, and the slots."""
        at, level, found, clock, filled = 0, 0, [], self._clock, self._filled
        while (child := node.children.get(path[at : at + _BYTES])) is not None:
            edge = child.edge
            if path.startswith(edge, at):
                at += len(edge)
            else:
                common = _common(edge, path, at)
                at += common * _BYTES
                child = self._split(child, common)
            child.used = clock
            if child.number > filled and child.level > level:
                level = child.level
            found.append(child.slots)
            node = child
        return node, at, level, found

    def _attach(self, parent: Node, edge: bytes, slots: np.ndarray, level: int) -> Node:
        self._created += 1
        node = Node(edge, slots, parent, self._clock, self._created, level)
        parent.children[edge[:_BYTES]] = node
        return node

    def _split(self, node: Node, tokens: int) -> Node:
        """Cut ``node`` behind ``tokens``; returns the upper part."""
        cut = tokens * _BYTES
        upper = Node(node.edge[:cut], node.slots[:tokens], node.parent, node.used, node.number, node.level)
        node.parent.children[upper.edge[:_BYTES]] = upper
        node.edge, node.slots, node.parent = node.edge[cut:], node.slots[tokens:], upper
        upper.children[node.edge[:_BYTES]] = node
        return upper

    def _allocate(self, count: int) -> np.ndarray | None:
        if count > self._n_free:
            self._evict(max(count, self.capacity // 8))
            if count > self._n_free:
                return None
        self._n_free -= count
        return self._free[self._n_free : self._n_free + count][::-1].copy()

    def _evict(self, wanted: int) -> None:
        """Free leaves not used in this batch, least recently used first, until ``wanted`` slots are free."""
        leaves, stack, order = [], list(self._root.children.values()), 0
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and node.used < self._clock:
                leaves.append((node.used, node.number, order, node))
                order += 1
        heapq.heapify(leaves)
        while leaves and self._n_free < wanted:
            *_, node = heapq.heappop(leaves)
            self._free[self._n_free : self._n_free + len(node.slots)] = node.slots
            self._n_free += len(node.slots)
            parent = node.parent
            del parent.children[node.edge[:_BYTES]]
            if parent is not self._root and not parent.children and parent.used < self._clock:
                heapq.heappush(leaves, (parent.used, parent.number, order, parent))
                order += 1


def _common(edge: bytes, path: bytes, at: int) -> int:
    """Tokens that ``edge`` shares with ``path`` from byte ``at`` on."""
    ours, theirs = np.frombuffer(edge, np.int32), np.frombuffer(path[at : at + len(edge)], np.int32)
    differs = np.flatnonzero(ours[: len(theirs)] != theirs)
    return int(differs[0]) if len(differs) else len(theirs)
