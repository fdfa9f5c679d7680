"""Attention over keys and values that many sequences share.

The keys and values of a prompt are read once from the prefix cache (:class:`Prompts`). Two kinds of forward passes
attend to them: that over those tokens of the prompt which are new to the cache (:class:`Prefill`), and each decoding
step of all completions of the prompt (:class:`Branches`). Completions store only the keys and values of their sampled
tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from .prefix_cache import PrefixCache
from .transformer import Transformer

_MOST_SCORES = 2**20  # attention scores that a prefill computes at a time, so that they fit into the processor's cache
_LARGEST_RATIO = 1.25  # ratio of most to fewest new tokens up to which prompts are padded together
# Where a smaller share of the prompts still has unfinished completions, the keys and values of the other prompts are
# dropped. That saves computation but costs a copy.
_LEAST_ALIVE = 0.8


@dataclass
class Prompts:
    """The keys and values of ``P`` prompts, padded to the same number ``T`` of tokens.

    ``keys[layer]`` and ``values[layer]`` have the shape ``[P, kv_heads, T, head_dim]``. ``bias`` ``[P, 1, T]`` is added
    to attention scores: 0 for the tokens of a prompt, -inf for its padding.
    """

    keys: list[Tensor]
    values: list[Tensor]
    bias: Tensor

    @classmethod
    def empty(cls, transformer: Transformer, lengths: np.ndarray, workspace: list[Tensor]) -> Self:
        """Allocate the keys and values of prompts with ``lengths`` (int ``[P]``) tokens; the caller fills them.

        They are views of the tensors in the list ``workspace``, which the caller passes to every call: memory that was
        used before is written faster than new memory. Tensors in it that are too small are replaced.
        """
        arch = transformer.architecture
        width = int(lengths.max())
        shape = (len(lengths), arch.kv_heads, width, arch.head_dim)
        size = math.prod(shape)
        if not workspace or len(workspace[0]) < size:
            workspace[:] = [transformer.embedding.new_empty(size) for _ in range(2 * arch.layers)]
        new = [flat[:size].view(shape) for flat in workspace]
        bias = _make_bias(np.arange(width) < lengths[:, None, None], transformer)
        return cls(new[: arch.layers], new[arch.layers :], bias)

    def __len__(self) -> int:
        """The number of prompts."""
        return len(self.bias)

    def slice(self, start: int, stop: int) -> "Prompts":
        """Get the keys and values of the prompts from ``start`` to before ``stop``, as views of the same memory."""
        keys, values = ([layer[start:stop] for layer in layers] for layers in (self.keys, self.values))
        return Prompts(keys, values, self.bias[start:stop])

    def select(self, rows: Tensor) -> "Prompts":
        """Keep only the keys and values of the prompts ``rows`` (int64 ``[kept]``, ascending) and return them. They are
        moved to the front of the same memory, which overwrites those of the other prompts; so this object must not be
        used any more."""
        for tensor in (*self.keys, *self.values):  # one after the other, because each copy needs memory
            tensor[: len(rows)] = tensor.index_select(0, rows)
        selection = self.slice(0, len(rows))
        selection.bias = self.bias.index_select(0, rows)
        return selection


class Prefill:
    """The attention of a prefill: the forward pass over the new tokens of ``P`` prompts.

    *New* are the tokens of a prompt that are not in the prefix cache, and in any case its last token, whose logits are
    needed. The forward pass has the new tokens of all prompts *packed* one behind the other in one row, with padding
    behind them.

    The attention stores the keys and values of the new tokens in the cache, reads those of the whole prompts from
    there, and lets every new token attend to itself and to all tokens of its prompt before it. In the last layer only
    the last token of each prompt attends.
    """

    def __init__(
        self, pool: PrefixCache, prompts: Prompts, slots: np.ndarray, paths: Sequence[bytes], known: np.ndarray
    ) -> None:
        """Prepare a forward pass over the new tokens of ``P`` prompts, *packed* one behind the other in one row, and
        its attention.

        - ``pool`` is the prefix cache, which stores the keys and values.
        - ``prompts`` gets the keys and values of the whole prompts, of up to ``T`` tokens.
        - ``slots`` int ``[P, T]`` are the cache slots of all tokens of the prompts; 0 is padding.
        - ``paths`` are the token ids of the prompts, as bytes.
        - ``known`` int ``[P]``: the keys and values of the first ``known[p]`` tokens of prompt p are in the cache.

        Afterwards ``tokens`` are the packed tokens, ``positions`` those in their prompts, and ``last`` the packed index
        of the last token of each prompt, each int64 with padding behind (0).
        """
        transformer, arch, device = pool.transformer, pool.transformer.architecture, pool.transformer.device
        self.pool, self.prompts, self.last_layer, self.index = pool, prompts, arch.layers - 1, pool.index(slots)
        lengths = np.count_nonzero(slots, axis=1)
        first = np.minimum(known, lengths - 1)  # the first new token of each prompt
        new = lengths - first  # new tokens of each prompt
        ends = np.cumsum(new)  # the packed index behind the new tokens of each prompt
        begins = ends - new
        prompt = np.repeat(np.arange(len(new)), new)  # of each packed token
        position = np.arange(len(prompt)) - begins[prompt] + first[prompt]  # in its prompt
        # Three rows of one array, which is copied to the device at once; padding is 0.
        packed = np.zeros((3, transformer.padded(len(prompt))), dtype=np.int64)
        new_tokens = [np.frombuffer(path, np.int32)[n:] for path, n in zip(paths, first, strict=True)]
        packed[0, : len(prompt)] = np.concatenate(new_tokens)
        packed[1, : len(prompt)] = position
        # The slots to write; 0 is the slot of tokens that are in the cache already.
        packed[2, : len(prompt)] = np.where(position < known[prompt], 0, slots[prompt, position])
        last = np.zeros(transformer.padded(len(new)), dtype=np.int64)
        last[: len(new)] = ends - 1
        self.tokens, self.positions, self.write = torch.from_numpy(packed).to(device)
        self.last = torch.from_numpy(last).to(device)
        # Ranges of prompts, from ``start`` to before ``stop``. A prompt has one query for each new token. In a range
        # all prompts are padded to the same number of queries, so that one matrix product serves it. ``query`` int64
        # [prompts * padded queries]: of each padded query the index of its token in the packed forward pass (padding:
        # 0). ``bias`` [prompts, padded queries, T]: 0 for the tokens of the prompt that a query sees, else -inf.
        self.ranges: list[tuple[int, int, Tensor, Tensor]] = []  # start, stop, query, bias
        # For every packed token the index of its query among the padded queries of all ranges. By it `attend` puts the
        # results into packed order again. ``padded_before`` is the number of padded queries in the ranges before.
        padded_query, padded_before = np.zeros(packed.shape[1], dtype=np.int64), 0
        for start, stop in _divide_into_ranges(new, arch.heads * slots.shape[1]):
            number = np.arange(int(new[start:stop].max()))  # of a new token within its prompt
            is_query = number < new[start:stop, None]  # [prompts, padded queries]; false: padding
            # Of each padded query: the packed index of its token.
            query = torch.from_numpy(np.where(is_query, begins[start:stop, None] + number, 0).reshape(-1))
            position = first[start:stop, None] + number  # of each padded query in its prompt
            visible = np.arange(slots.shape[1]) <= position[:, :, None]  # a token sees itself and all before it
            self.ranges.append((start, stop, query.to(device), _make_bias(visible, transformer)))
            padded_query[begins[start] : ends[stop - 1]] = padded_before + np.flatnonzero(is_query)
            padded_before += is_query.size
        self.padded_query = torch.from_numpy(padded_query).to(device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the keys and values of the new tokens in ``layer``, and compute the attention of their queries.

        ``key`` and ``value`` are ``[packed tokens, kv_heads * head_dim]``, ``query`` and the result ``[packed tokens,
        heads * head_dim]``. In the last layer ``query`` and result have a row for the last token of each prompt
        instead, then rows of padding. The results for padding mean nothing.
        """
        keys, values = self.prompts.keys[layer], self.prompts.values[layer]
        self.pool.write(layer, self.write, key, value)
        self.pool.read(layer, self.index, keys, values)
        if layer == self.last_layer:  # one query per prompt: no padding is needed
            out = torch.zeros_like(query)
            out[: len(keys)] = _attend(query[: len(keys), None], keys, values, self.prompts.bias)[:, 0]
            return out
        parts = []
        for start, stop, packed_query, bias in self.ranges:
            padded = query.index_select(0, packed_query).view(stop - start, -1, query.shape[1])
            parts.append(_attend(padded, keys[start:stop], values[start:stop], bias).flatten(0, 1))
        return torch.cat(parts).index_select(0, self.padded_query)


class Branches:
    """The attention of a decoding step. Completions of a prompt that have sampled the same tokens so far share a
    *branch*, whose keys and values are stored once. All branches have ``length`` sampled tokens.

    Branches are numbered prompt by prompt; at first every prompt has one branch without tokens. Their keys and values
    are stored in a grid with ``width`` cells per prompt, one cell per branch, so that one matrix product serves all
    branches of a prompt. Branch b continues the prompt ``prompt[b]`` and is in the cell ``cell[b]``, where the cells of
    prompt p begin at ``p * width``. A cell without a branch computes with arbitrary values, and its result is not used.
    """

    def __init__(self, transformer: Transformer, prompts: Prompts) -> None:
        """Begin decoding: every prompt has one branch without tokens. (A branch is the sampled tokens that some
        completions of a prompt share.) Keys and values are in a grid with ``width`` cells per prompt, one cell per
        branch; at first branch i is in cell i. ``prompts`` has the keys and values of the prompts."""
        arch = transformer.architecture
        self.transformer, self.prompts = transformer, prompts
        self.length, self.width = 0, 1
        self.prompt = self.cell = np.arange(len(prompts))  # of each branch
        no_tokens = prompts.bias.new_empty((len(prompts), arch.kv_heads, 0, arch.head_dim))
        # Of each layer: [cells, kv_heads, room for tokens, head_dim].
        self.keys, self.values = [no_tokens] * arch.layers, [no_tokens] * arch.layers
        # A forward pass has a row for each branch, in the order of branches, then rows of padding. `attend` moves the
        # rows into the cells of the grid (`_gather`: of each cell the row) and back (`_scatter`: of each row the cell).
        self._gather = self._scatter = self._on_device(self.cell)

    def advance(self, parent: np.ndarray) -> None:
        """Lengthen the branches by one token. A branch is the sampled tokens that some completions of a prompt share;
        its keys and values are in one cell of a grid, which has equally many cells for every prompt.

        New branch b continues the old branch ``parent[b]``. ``parent`` (int ``[new branches]``) is ascending; an old
        branch that does not occur in it ends. Keys and values move to their new cells; a prompt without branches is
        dropped if many prompts have none.
        """
        prompt = self.prompt[parent]  # of each new branch
        # The prompts that still have branches, and the first new branch of each.
        alive, first = np.unique(prompt, return_index=True)
        if len(alive) < _LEAST_ALIVE * len(self.prompts):
            self.prompts = self.prompts.select(self._on_device(alive))
            prompt = np.searchsorted(alive, prompt)
            alive = np.arange(len(alive))
        count = np.diff([*first, len(prompt)])  # new branches of each prompt
        width = int(count.max())  # cells per prompt
        number = np.arange(len(prompt)) - np.repeat(first, count)  # of each new branch within its prompt
        cell = prompt * width + number
        cells = len(self.prompts) * width
        # Of each new cell: the old cell from which its keys and values come, and the new branch that it holds. A cell
        # without a branch has 0 for both.
        source, gather = np.zeros((2, cells), dtype=np.int64)
        source[cell], gather[cell] = self.cell[parent], np.arange(len(cell))
        # Whether cells are added, removed or get the content of another cell.
        moves = cells != len(self.keys[0]) or not np.array_equal(source[cell], cell)
        self._make_room(self._on_device(source) if moves else None)
        # Of each row of a forward pass, which has a row per branch and padding: the cell of its branch. Padding gets
        # the result of cell 0, which the caller does not use.
        scatter = np.zeros(self.transformer.padded(len(cell)), dtype=np.int64)
        scatter[: len(cell)] = cell
        self._gather, self._scatter = self._on_device(gather), self._on_device(scatter)
        self.prompt, self.cell, self.width = prompt, cell, width
        self.length += 1

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the keys and values of each branch's last token in ``layer``, and compute the attention of that token's
        query to its prompt and its branch. A branch is the sampled tokens that some completions of a prompt share.

        ``key`` and ``value`` are ``[rows, kv_heads * head_dim]``, ``query`` and the result ``[rows, heads *
        head_dim]``: one row per branch, then rows of padding, whose results mean nothing.
        """
        cells = len(self.keys[layer])
        # From rows to cells of the grid, without the rows of padding.
        query, key, value = (t.index_select(0, self._gather) for t in (query, key, value))
        # The keys and values of the branches' own tokens, beside those of their prompts.
        own = [layers[layer][:, :, : self.length] for layers in (self.keys, self.values)]
        for cached, new in zip(own, (key, value), strict=True):
            # `advance` has made room for the new token behind the others.
            cached[:, :, -1] = new.view(cells, cached.shape[1], -1)
        query = query.view(len(self.prompts), self.width, -1)
        out = _attend(query, self.prompts.keys[layer], self.prompts.values[layer], self.prompts.bias, own)
        # Back to one row per branch, and as many rows of padding as before.
        return out.view(cells, -1).index_select(0, self._scatter)

    def store(self, pool: PrefixCache, branches: np.ndarray, positions: np.ndarray, slots: np.ndarray) -> None:
        """Copy the keys and values of sampled tokens into the prefix cache ``pool``. The arrays (int ``[tokens]``) have
        one entry per token: the branch that it belongs to, its position behind the prompt, and its slot in the
        cache."""
        cell, position, slot = (self._on_device(a) for a in (self.cell[branches], positions, slots))
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            pool.write(layer, slot, keys[cell, :, position].flatten(1), values[cell, :, position].flatten(1))

    def _make_room(self, source: Tensor | None) -> None:
        """Make room for one more token in every cell of the grid of keys and values, and move the cells: cell c gets
        the content of the old cell ``source[c]`` (int64 ``[cells]``; None: no cell moves)."""
        full = self.length == self.keys[0].shape[2]  # every cell has as many tokens as it has room for
        for layers in (self.keys, self.values):
            for layer, old in enumerate(layers):
                new = old if source is None else old.index_select(0, source)
                if full:
                    # Room for as many tokens again as there are, so that copies are rare.
                    more = new.new_empty(len(new), new.shape[1], max(4, self.length), new.shape[3])
                    new = torch.cat([new, more], 2)
                layers[layer] = new

    def _on_device(self, values: np.ndarray) -> Tensor:
        """Copy an array of integers to the model's device as an int64 tensor."""
        return torch.from_numpy(values.astype(np.int64)).to(self.transformer.device)


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, own: list[Tensor] | None = None) -> Tensor:
    """Compute softmax attention of ``N`` queries per prompt over the tokens of the prompt, and over further tokens of
    each query.

    ``query`` and the result are ``[P, N, heads * head_dim]``. ``keys`` and ``values`` of the prompts are ``[P,
    kv_heads, T, head_dim]``; ``bias`` ``[P, N or 1, T]`` is added to their scores. ``own`` are the keys and values of
    tokens that only one query sees, each ``[P * N, kv_heads, S, head_dim]``.
    """
    prompts, heads, length, dim = keys.shape  # heads: of keys and values
    count = query.shape[1]
    query = query.view(prompts, count, heads, -1, dim)
    group = query.shape[3]  # query heads of one key head
    # [prompts * heads, count * group, length], by one matrix product for each prompt and key head.
    scores = torch.bmm(query.transpose(1, 2).reshape(prompts * heads, -1, dim), keys.flatten(0, 1).mT)
    scores.view(prompts, heads, count, group, length).add_(bias[:, None, :, None])
    if own is not None:  # one softmax over the prompt's tokens and the query's own
        own_keys, own_values = own
        # [prompts * count * heads, group, S], by one product for each query and key head; then in the order of scores.
        own_scores = torch.bmm(query.reshape(-1, group, dim), own_keys.flatten(0, 1).mT)
        own_scores = own_scores.view(prompts, count, heads, group, -1).transpose(1, 2)
        scores = torch.cat([scores, own_scores.reshape(prompts * heads, count * group, -1)], -1)
    share = scores.softmax(-1, dtype=torch.float32).to(values.dtype)  # of each token in the attention of a query
    out = torch.bmm(share[..., :length], values.flatten(0, 1))
    out = out.view(prompts, heads, count, group, dim).transpose(1, 2)
    if own is not None:
        share = share[..., length:].unflatten(0, (prompts, heads)).unflatten(2, (count, group)).transpose(1, 2)
        own_out = torch.bmm(share.reshape(prompts * count * heads, group, -1), own_values.flatten(0, 1))
        out = out + own_out.view(out.shape)
    return out.reshape(prompts, count, -1)


def _make_bias(visible: np.ndarray, transformer: Transformer) -> Tensor:
    """Make the additive mask of attention: 0 where ``visible`` (bool, any shape) is true, else -inf, in the model's
    type and on its device."""
    mask = torch.from_numpy(visible).to(transformer.device)
    return torch.zeros(mask.shape, dtype=transformer.dtype, device=mask.device).masked_fill_(~mask, -torch.inf)


def _divide_into_ranges(fresh: np.ndarray, scores: int) -> list[tuple[int, int]]:
    """Divide the prompts of a prefill into ranges of neighbours, which are padded together; returns (start, stop) of
    each, stop not included. Within a range the numbers of new tokens ``fresh`` (int ``[P]``) are similar, so padding
    wastes little, and the attention scores of all prompts fit into the processor's cache, unless the range is a single
    prompt. ``scores`` is the number of attention scores of one query."""
    # The range that is being built: its start, and the fewest and most new tokens of its prompts so far.
    ranges, start, fewest, most = [], 0, fresh[0], fresh[0]
    for index, count in enumerate(fresh.tolist()):
        fewest, most = min(fewest, count), max(most, count)
        is_too_large = (index + 1 - start) * most * scores > _MOST_SCORES
        is_unlike = most > _LARGEST_RATIO * fewest + 1  # + 1: a difference of one token never counts
        if index > start and (is_too_large or is_unlike):  # the range ends before this prompt
            ranges.append((start, index))
            start, fewest, most = index, count, count
    return [*ranges, (start, len(fresh))]  # with the last range
