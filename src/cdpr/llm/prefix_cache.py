"""The prefix cache: a radix tree over token ids, each of whose nodes owns slots in tensors of keys and values. Prompts
that begin alike compute and store their common prefix once.

A *path* is a sequence of token ids, encoded as bytes. A *slot* has room for the keys and values of one token, in all
layers.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .transformer import Transformer

TOKEN_BYTES = 4  # of a path, for each of its tokens


def as_path(tokens: Sequence[int]) -> bytes:
    """Encode token ids as bytes, four for each. Bytes are compared much faster than sequences of integers."""
    return array("i", tokens).tobytes()


@dataclass(slots=True, eq=False)
class CacheNode:
    """A node of the radix tree over token ids: the tokens ``edge`` (as bytes) that lead to it from its parent, and the
    ``slots`` where their keys and values are stored.

    - ``used``: the number of the batch that used it last.
    - ``number``: counts the nodes in the order of their creation.
    - ``level``: one more than the level (:attr:`CachedPath.level`) of the path for which the node was created. Any
      other path of the same batch that begins with these tokens has at least this level: it is computed later.
    """

    edge: bytes
    slots: np.ndarray
    parent: "CacheNode"  # of the root: itself
    used: int
    number: int
    level: int
    children: "dict[bytes, CacheNode]" = field(default_factory=dict)  # by the first token of their edge


class CachedPath(NamedTuple):
    """A path (token ids) in the prefix cache, which ends at ``node``. ``slots`` int32 ``[tokens]`` are those of all its
    tokens; the first ``known`` tokens were in the tree before.

    ``level`` says when a batch computes the path. A path that begins with new tokens of another path of the batch needs
    the keys and values of these, so it comes after that path. The level is 0 for a path that needs no other one, 1 for
    one that needs only paths of level 0, and so on.
    """

    node: CacheNode
    slots: np.ndarray
    known: int
    level: int


class PrefixCache:
    """A cache of the keys and values of at most ``capacity`` tokens, as a radix tree over token ids. When it is full,
    the least recently used leaves of the tree are evicted. Slot 0 belongs to no token: padding reads and writes it."""

    def __init__(self, transformer: Transformer, capacity: int) -> None:
        """Make a cache for the keys and values of at most ``capacity`` tokens of ``transformer``."""
        self.transformer = transformer
        self._heads, self._width = transformer.architecture.kv_heads, transformer.architecture.head_dim
        self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """Clear the cache and change its size to ``capacity`` tokens."""
        layers, weight = self.transformer.architecture.layers, self.transformer.embedding
        # In the model's type, on its device. Not zeroed: the system gives memory only as slots are written.
        pools = [weight.new_empty(capacity + 1, self._heads * self._width) for _ in range(2 * layers)]
        for pool in pools:
            pool[0] = 0  # the slot of padding, which is read before it is written
        self._keys, self._values = pools[:layers], pools[layers:]
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget all prefixes, for example because the weights of the model changed."""
        self._free = np.arange(self.capacity, 0, -1, dtype=np.int32)  # a stack, with the lowest slot on top
        self._n_free = self.capacity  # the height of the stack; entries above it are no longer valid
        self._clock = 0  # batches so far
        self._created = 0  # nodes so far
        self._filled = 0  # nodes up to this number got their keys and values in an earlier batch
        self._root = CacheNode(b"", np.empty(0, np.int32), None, 0, 0, 0)  # type: ignore[arg-type]
        self._root.parent = self._root

    def begin_batch(self) -> None:
        """Begin a batch of prompts. What is inserted or found from here on is not evicted before the next call."""
        self._clock += 1
        self._filled = self._created

    def insert(self, path: bytes, start: CacheNode | None = None) -> CachedPath | None:
        """Put a path (token ids as bytes, not empty) into the tree and return it as a :class:`CachedPath`; None where
        the cache has no room. The path begins at the node ``start``, such as the end of a prompt behind which its
        tokens were sampled (None: at the root). Its first ``known`` tokens were in the tree; the others get new slots,
        into which the caller writes their keys and values (:meth:`write`)."""
        node, at, level, slots = self._descend(start or self._root, path)  # ``at``: bytes that the tree has
        if at < len(path):
            new_slots = self._allocate((len(path) - at) // TOKEN_BYTES)
            if new_slots is None:
                return None
            slots.append(new_slots)
            self._created += 1
            node = _add_child(CacheNode(path[at:], new_slots, node, self._clock, self._created, level + 1))
        return CachedPath(node, np.concatenate(slots), at // TOKEN_BYTES, level)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values of ``T`` tokens in their slots of one layer. ``slots`` int64 ``[T]``; ``keys`` and
        ``values`` ``[T, kv_heads * head_dim]``."""
        self._keys[layer].index_copy_(0, slots, keys)
        self._values[layer].index_copy_(0, slots, values)

    def read(self, layer: int, index: Tensor, keys: Tensor, values: Tensor) -> None:
        """Copy the keys and values in some slots of one layer into the contiguous tensors ``keys`` and ``values``, each
        ``[rows, kv_heads, tokens, head_dim]``. :meth:`index` makes ``index`` from the slots."""
        for pool, out in ((self._keys[layer], keys), (self._values[layer], values)):
            torch.index_select(pool.view(-1, self._width), 0, index, out=out.view(-1, self._width))

    def index(self, slots: np.ndarray) -> Tensor:
        """Compute the index by which :meth:`read` reads ``slots`` (int ``[rows, tokens]``) as ``[rows, kv_heads,
        tokens]``, flattened to one dimension. A layer's tensor is read with one row per head of a token: head h of slot
        s is the row ``s * kv_heads + h``."""
        heads = np.arange(self._heads, dtype=slots.dtype)[:, None]
        return torch.from_numpy((slots[:, None] * self._heads + heads).reshape(-1)).to(self._keys[0].device)

    def _descend(self, node: CacheNode, path: bytes) -> tuple[CacheNode, int, int, list[np.ndarray]]:
        """Follow ``path`` (token ids as bytes) down from ``node`` as far as the tree has it. Where the path ends or
        turns off within the edge of a node, that node is split.

        Returns the last node on the path, the number of bytes of the path up to it, the level
        (:attr:`CachedPath.level`), and the slots of each node on the way.
        """
        at, level, slots = 0, 0, []
        clock, filled = self._clock, self._filled  # locals, which the loop reads faster
        while (child := node.children.get(path[at : at + TOKEN_BYTES])) is not None:
            edge = child.edge
            if path.startswith(edge, at):
                at += len(edge)
            else:
                common = _common_tokens(edge, path, at)
                at += common * TOKEN_BYTES
                child = self._split(child, common)
            child.used = clock
            if child.number > filled and child.level > level:  # created in this batch: another path computes it first
                level = child.level
            slots.append(child.slots)
            node = child
        return node, at, level, slots

    def _split(self, node: CacheNode, tokens: int) -> CacheNode:
        """Split a node of the tree behind the first ``tokens`` tokens of its edge. Returns the new upper node; the old
        node becomes its child and keeps the other tokens."""
        cut = tokens * TOKEN_BYTES
        upper = CacheNode(node.edge[:cut], node.slots[:tokens], node.parent, node.used, node.number, node.level)
        node.edge, node.slots, node.parent = node.edge[cut:], node.slots[tokens:], _add_child(upper)
        _add_child(node)
        return upper

    def _allocate(self, count: int) -> np.ndarray | None:
        """Take ``count`` free slots, each for the keys and values of one token; returns int32 ``[count]``. Evicts old
        nodes of the tree if need be; None where the cache has no room."""
        if count > self._n_free:
            # An eighth of all slots at once, because an eviction walks over the whole tree.
            self._evict(max(count, self.capacity // 8))
            if count > self._n_free:
                return None
        self._n_free -= count
        # The top of the stack, in the order in which single slots would be taken.
        return self._free[self._n_free : self._n_free + count][::-1].copy()

    def _evict(self, count: int) -> None:
        """Remove nodes of the tree that the current batch does not use, until ``count`` slots are free. The least
        recently used come first, children before their parents."""
        nodes = list(self._root.children.values())
        for node in nodes:  # the list grows: parents come before their children
            nodes += node.children.values()
        idle = [node for node in reversed(nodes) if node.used < self._clock]
        for node in sorted(idle, key=lambda node: node.used):
            if self._n_free >= count:
                break
            self._free[self._n_free : self._n_free + len(node.slots)] = node.slots
            self._n_free += len(node.slots)
            del node.parent.children[node.edge[:TOKEN_BYTES]]


def _add_child(node: CacheNode) -> CacheNode:
    """Make a node a child of its parent, where it replaces the child whose edge begins with the same token. Returns the
    node."""
    node.parent.children[node.edge[:TOKEN_BYTES]] = node
    return node


def _common_tokens(edge: bytes, path: bytes, at: int) -> int:
    """The number of tokens with which two paths (token ids as bytes) begin alike: ``edge``, and ``path`` from byte
    ``at`` on."""
    edge_tokens = np.frombuffer(edge, np.int32)
    path_tokens = np.frombuffer(path[at : at + len(edge)], np.int32)
    different = np.flatnonzero(edge_tokens[: len(path_tokens)] != path_tokens)
    return int(different[0]) if len(different) else len(path_tokens)
