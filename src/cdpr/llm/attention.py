"""Attention over keys and values that many sequences share.

The keys and values of a prompt are read from the prefix cache once (:class:`Prompts`). They serve its prefill
(:class:`Prefill`) and all branches of its completions (:class:`Branches`), which own only their sampled tokens.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from .prefix_cache import PrefixCache
from .transformer import Transformer

_SCORES = 2**20  # scores of the prefill's attention computed at a time, to stay within the processor's cache
_KEYS = 2**18  # numbers of the keys that decoding reads at a time, on a processor, for the same reason
_ALIKE = 1.25  # ratio of new tokens up to which prompts are padded together
_MOVED = 64  # prompts that are moved at a time
_ALIVE = 0.8  # share of unfinished prompts below which their keys and values are moved together


@dataclass
class Prompts:
    """The keys and values of ``P`` prompts, padded to ``T`` tokens.

    ``keys[layer]`` and ``values[layer]`` are ``[P, kv_heads, T, head_dim]``; ``bias`` is ``[P, 1, T]``, 0 for the
    tokens of a prompt and -inf for its padding.
    """

    keys: list[Tensor]
    values: list[Tensor]
    bias: Tensor

    @classmethod
    def empty(cls, transformer: Transformer, lengths: np.ndarray, workspace: list[Tensor]) -> Self:
        """Allocate prompts of ``lengths`` tokens, not yet filled. Their memory is that of the list ``workspace``, whose
        tensors are replaced by larger ones if need be: used memory is written faster than new memory."""
        arch = transformer.architecture
        width = int(lengths.max())
        shape = (len(lengths), arch.kv_heads, width, arch.head_dim)
        size = math.prod(shape)
        if not workspace or len(workspace[0]) < size:
            workspace[:] = [transformer.embedding.new_empty(size) for _ in range(2 * arch.layers)]
        new = [flat[:size].view(shape) for flat in workspace]
        bias = _bias(np.arange(width) < lengths[:, None, None], transformer)
        return cls(new[: arch.layers], new[arch.layers :], bias)

    def __len__(self) -> int:
        return len(self.bias)

    def slice(self, start: int, stop: int) -> "Prompts":
        """Slice the prompts from ``start`` to before ``stop``; the result is in the same memory."""
        keys, values = ([layer[start:stop] for layer in layers] for layers in (self.keys, self.values))
        return Prompts(keys, values, self.bias[start:stop])

    def select(self, rows: Tensor) -> "Prompts":
        """Keep only the prompts ``rows`` (int64, ascending), by moving them to the front of the memory; returns them.
        The other prompts are overwritten."""
        for tensor in (*self.keys, *self.values):
            for start in range(0, len(rows), _MOVED):
                some = rows[start : start + _MOVED]
                tensor[start : start + len(some)] = tensor.index_select(0, some)
        selection = self.slice(0, len(rows))
        selection.bias = self.bias.index_select(0, rows)
        return selection


class _Run(NamedTuple):
    """Prompts ``start`` to before ``stop``, whose queries are padded to the same number for one matrix product.
    ``query`` int64 ``[prompts * padded queries]`` has the packed token of each padded query, ``bias`` ``[prompts,
    padded queries, T]`` the mask."""

    start: int
    stop: int
    query: Tensor
    bias: Tensor


class Prefill:
    """The attention of a prefill, which computes the prompts' tokens that are not in the prefix cache.

    It stores the keys and values of these new tokens in the cache, reads those of the whole prompts from there into
    ``prompts``, and lets every new token attend to all tokens before it.

    The forward pass has the new tokens of all prompts packed in one row. ``slots`` int ``[P, T]`` are the cache slots
    of the prompts (0: padding), ``write`` int64 ``[packed tokens]`` those of the packed tokens (0: not stored). Prompt
    p has ``known[p]`` tokens in the cache, then ``fresh[p]`` packed ones. The last layer gets one query per prompt.
    Queries may be padded.
    """

    def __init__(
        self,
        transformer: Transformer,
        pool: PrefixCache,
        prompts: Prompts,
        slots: np.ndarray,
        write: np.ndarray,
        known: np.ndarray,
        fresh: np.ndarray,
    ) -> None:
        arch, device = transformer.architecture, transformer.device
        self.pool, self.prompts, self.last_layer = pool, prompts, arch.layers - 1
        self.write, self.index = torch.from_numpy(write).to(device), pool.index(slots)
        # Prompts with similar numbers of new tokens are padded together. ``padded_query`` has the padded query of every
        # packed token, so that results can be packed again.
        self.runs: list[_Run] = []
        begins = np.cumsum(fresh) - fresh  # the first packed token of each prompt
        padded_query, padded_before = np.zeros(len(write), dtype=np.int64), 0
        for a, b in _divide_into_runs(fresh, arch.heads * slots.shape[1]):
            column = np.arange(int(fresh[a:b].max()))
            is_query = column < fresh[a:b, None]
            query = np.where(is_query, begins[a:b, None] + column, 0)
            visible = np.arange(slots.shape[1]) <= (known[a:b, None] + column)[:, :, None]
            self.runs.append(_Run(a, b, torch.from_numpy(query.reshape(-1)).to(device), _bias(visible, transformer)))
            padded_query[begins[a] : begins[b - 1] + fresh[b - 1]] = padded_before + np.flatnonzero(is_query)
            padded_before += is_query.size
        self.padded_query = torch.from_numpy(padded_query).to(device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the new keys and values of a layer, and compute its attention
        (:meth:`~.transformer.Attention.attend`)."""
        keys, values = self.prompts.keys[layer], self.prompts.values[layer]
        self.pool.write(layer, self.write, key, value)
        self.pool.read(layer, self.index, keys, values)
        if layer == self.last_layer:
            out = torch.zeros_like(query)
            out[: len(keys)] = _attend(query[: len(keys), None], keys, values, self.prompts.bias)[:, 0]
            return out
        parts = []
        for a, b, packed_query, bias in self.runs:
            padded = query.index_select(0, packed_query).view(b - a, -1, query.shape[1])
            parts.append(_attend(padded, keys[a:b], values[a:b], bias).flatten(0, 1))
        return torch.cat(parts).index_select(0, self.padded_query)


class Branches:
    """The attention of a decoding step. A branch is a continuation of a prompt that one or more completions share; all
    branches have ``length`` tokens.

    Branches are numbered prompt by prompt; at first every prompt has one branch without tokens. The keys and values of
    their own tokens are in a grid with ``width`` cells per prompt, so that one matrix product serves all branches of a
    prompt. A cell without a branch computes with arbitrary values, and its result is not used. Branch b continues the
    prompt ``prompt[b]`` and is in the cell ``cell[b]`` of the grid.
    """

    def __init__(self, transformer: Transformer, prompts: Prompts) -> None:
        arch = transformer.architecture
        self.transformer, self.prompts = transformer, prompts
        self.length, self.width = 0, 1
        self.prompt = self.cell = np.arange(len(prompts))  # of each branch
        make = prompts.bias.new_empty((len(prompts), arch.kv_heads, 0, arch.head_dim))
        self.keys, self.values = [make] * arch.layers, [make] * arch.layers
        self._gather: Tensor | None = None  # the branch of each cell; None: equal numbers
        self._scatter: Tensor | None = None  # the cell of each branch and of padding; None: equal numbers

    def advance(self, parent: np.ndarray) -> None:
        """Replace the branches by longer ones: new branch b continues the old branch ``parent[b]`` by one token.
        ``parent`` is ascending; an old branch without a new one ends."""
        prompt = self.prompt[parent]
        # The prompts that still have branches, and the first new branch of each.
        alive, first = np.unique(prompt, return_index=True)
        if len(alive) < _ALIVE * len(self.prompts):
            self.prompts = self.prompts.select(self._on_device(alive))
            prompt = np.searchsorted(alive, prompt)
            alive = np.arange(len(alive))
        count = np.diff([*first, len(prompt)])
        width = int(count.max())
        cell = prompt * width + np.arange(len(prompt)) - np.repeat(first, count)
        cells = len(self.prompts) * width
        # Of each new cell: the old cell with its keys and values, and its branch.
        source, gather = np.zeros((2, cells), dtype=np.int64)
        source[cell], gather[cell] = self.cell[parent], np.arange(len(cell))
        moves = cells != len(self.keys[0]) or not np.array_equal(source[cell], cell)
        self._make_room(self._on_device(source) if moves else None)
        scatter = np.zeros(self.transformer.padded(len(cell)), dtype=np.int64)
        scatter[: len(cell)] = cell
        is_full = cells == len(cell)
        self._gather = None if is_full else self._on_device(gather)
        self._scatter = None if is_full and len(scatter) == cells else self._on_device(scatter)
        self.prompt, self.cell, self.width = prompt, cell, width
        self.length += 1

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the keys and values of each branch's last token, and compute the attention of that token
        (:meth:`~.transformer.Attention.attend`). The arguments have one row per branch, then rows of padding, as has
        the result."""
        cells = len(self.keys[layer])
        # From rows of branches to cells of the grid.
        if self._gather is None:  # row r belongs in cell r; the rows behind the cells are padding
            query, key, value = query[:cells], key[:cells], value[:cells]
        else:
            query, key, value = (t.index_select(0, self._gather) for t in (query, key, value))
        own = [layers[layer][:, :, : self.length] for layers in (self.keys, self.values)]
        for cached, new in zip(own, (key, value), strict=True):
            cached[:, :, -1] = new.view(cells, cached.shape[1], -1)
        query = query.view(len(self.prompts), self.width, -1)
        keys, values, bias = self.prompts.keys[layer], self.prompts.values[layer], self.prompts.bias
        # Prompts at a time: on a CPU so few that their keys stay in its cache.
        step = max(1, _KEYS // keys[0].numel()) if keys.device.type == "cpu" else len(keys)
        parts = []
        for a in range(0, len(keys), step):
            b = a + step
            part_own = [cached[a * self.width : b * self.width] for cached in own]
            parts.append(_attend(query[a:b], keys[a:b], values[a:b], bias[a:b], part_own))
        out = torch.cat(parts).view(cells, -1)
        # Back to rows of branches and padding.
        return out if self._scatter is None else out.index_select(0, self._scatter)

    def store(self, pool: PrefixCache, branches: np.ndarray, positions: np.ndarray, slots: np.ndarray) -> None:
        """Copy the keys and values of single tokens to slots of the prefix cache. The arrays have one entry per token:
        its branch, its position behind the prompt, and its slot."""
        cell, position, slot = (self._on_device(a) for a in (self.cell[branches], positions, slots))
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            pool.write(layer, slot, keys[cell, :, position].flatten(1), values[cell, :, position].flatten(1))

    def _make_room(self, source: Tensor | None) -> None:
        """Make room in the grid for one more token, and rearrange it so that cell c has the content of the old cell
        ``source[c]`` (None: no cell moves)."""
        full = self.length == self.keys[0].shape[2]
        for layers in (self.keys, self.values):
            for layer, old in enumerate(layers):
                new = old if source is None else old.index_select(0, source)
                if full:
                    more = new.new_empty(len(new), new.shape[1], max(4, self.length), new.shape[3])
                    new = torch.cat([new, more], 2)
                layers[layer] = new

    def _on_device(self, values: np.ndarray) -> Tensor:
        """The values as an int64 tensor on the model's device."""
        return torch.from_numpy(values.astype(np.int64)).to(self.transformer.device)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, own: list[Tensor] | None = None) -> Tensor:
    """Compute softmax attention of N queries per prompt over the keys of the prompt, and over keys of their own.

    ``query`` is ``[P, N, heads * head_dim]``, as is the result. ``keys`` and ``values`` of the prompts are ``[P,
    kv_heads, T, head_dim]``, ``bias`` ``[P, N or 1, T]``. ``own`` are keys and values ``[P * N, kv_heads, S,
    head_dim]`` that a single query sees besides.
    """
    prompts, heads, length, dim = keys.shape
    count = query.shape[1]
    query = query.view(prompts, count, heads, -1, dim)
    group = query.shape[3]  # query heads of one key head
    scores = torch.bmm(query.transpose(1, 2).reshape(prompts * heads, -1, dim), keys.flatten(0, 1).mT)
    scores.view(prompts, heads, count, group, length).add_(bias[:, None, :, None])
    if own is not None:
        more = torch.bmm(query.reshape(-1, group, dim), own[0].flatten(0, 1).mT)
        more = more.view(prompts, count, heads, group, -1).transpose(1, 2)
        scores = torch.cat([scores, more.reshape(prompts * heads, count * group, -1)], -1)
    share = scores.softmax(-1, dtype=torch.float32).to(values.dtype)
    out = torch.bmm(share[..., :length], values.flatten(0, 1))
    out = out.view(prompts, heads, count, group, dim).transpose(1, 2)
    if own is not None:
        share = share[..., length:].unflatten(0, (prompts, heads)).unflatten(2, (count, group)).transpose(1, 2)
        more = torch.bmm(share.reshape(prompts * count * heads, group, -1), own[1].flatten(0, 1))
        out = out + more.view(out.shape)
    return out.reshape(prompts, count, -1)


def _bias(visible: np.ndarray, transformer: Transformer) -> Tensor:
    """Make the additive mask of attention: 0 where ``visible`` (bool) is true, else -inf, in the model's type."""
    mask = torch.from_numpy(visible).to(transformer.device)
    return torch.zeros(mask.shape, dtype=transformer.dtype, device=mask.device).masked_fill_(~mask, -torch.inf)


def _divide_into_runs(fresh: np.ndarray, scores: int) -> list[tuple[int, int]]:
    """Divide prompts into ranges (start, stop) that are padded together: their numbers of new tokens ``fresh`` are
    similar, and their attention, with ``scores`` numbers per query, fits the processor's cache."""
    runs, start, least, width = [], 0, fresh[0], fresh[0]
    for i, count in enumerate(fresh.tolist()):
        lower, wider = min(least, count), max(width, count)
        if i > start and ((i + 1 - start) * wider * scores > _SCORES or wider > _ALIKE * lower + 1):
            runs.append((start, i))
            start, lower, wider = i, count, count
        least, width = lower, wider
    return [*runs, (start, len(fresh))]
