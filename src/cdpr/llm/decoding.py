"""One chunk of rows from prompts to completions: prefill what is not cached, decode, drop finished rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .drawing import Rules, draw, uniforms
from .prefix_cache import PrefixCache, as_path
from .transformer import Cache, Transformer
from .types import Sampling

_COMPACT_BELOW = 0.7  # share of rows still alive under which copying the cache pays
_SHARED_WORTH = 16  # tokens of a common prefix from which it is prefilled once beforehand
_ATTENTION_BUDGET = 2**24  # elements of one prefill's attention mask


@dataclass(frozen=True)
class Row:
    """One completion to draw."""

    prompt: tuple[int, ...]
    path: bytes  # the prompt as `as_path` writes it
    sampling: Sampling
    seed: int
    sample: int  # which of the request's completions


@dataclass
class Work:
    """Tokens that passed through the model, and tokens that did not have to."""

    prefilled_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0


class Decoder:
    """Decodes chunks with one transformer and one prefix cache; ``ends`` is bool ``[vocab_size]``."""

    def __init__(self, transformer: Transformer, prefixes: PrefixCache, ends: Tensor, work: Work) -> None:
        self.transformer, self.prefixes, self.ends, self.work = transformer, prefixes, ends, work
        self.device = transformer.device

    def run(self, rows: Sequence[Row]) -> tuple[list[list[int]], list[list[float]]]:
        """Token ids and log-probabilities of every row. Rows of one prompt stand side by side."""
        self.prefixes.tick()
        first = [i for i, row in enumerate(rows) if i == 0 or row.path != rows[i - 1].path]
        prompts = [rows[i] for i in first]
        of_row = np.repeat(np.arange(len(first)), np.diff([*first, len(rows)]))
        longest = max(row.sampling.max_tokens for row in rows)
        self._prefill_shared(prompts)
        cache, logits = self._prefill(prompts, longest)
        if len(prompts) < len(rows):
            index = torch.from_numpy(of_row).to(self.device)
            cache, logits = cache.select(index), logits.index_select(0, index)
        return _Decoding(self, rows, cache, longest).run(logits)

    def remember(self, cache: Cache, paths: Sequence[tuple[int, bytes]]) -> None:
        """Keep the keys and values of ``(cache row, path)`` pairs for later prompts."""
        sources, targets = [], []
        for row, path in paths:
            start, slots = self.prefixes.insert(path)
            if len(slots):
                begin = row * cache.capacity + start
                sources.append(np.arange(begin, begin + len(slots)))
                targets.append(slots)
        if sources:
            self.prefixes.store(cache, np.concatenate(sources), np.concatenate(targets))

    def _prefill_shared(self, prompts: Sequence[Row]) -> None:
        """Prefill once what several prompts share behind what is cached (a system prompt)."""
        groups: dict[bytes, list[Row]] = {}
        for prompt in prompts:
            known = len(self.prefixes.match(prompt.path)) * 4
            groups.setdefault(prompt.path[:known], []).append(prompt)
        for known, group in groups.items():
            least, greatest = min(group, key=lambda r: r.prompt), max(group, key=lambda r: r.prompt)
            shared = next(
                (i for i, (a, b) in enumerate(zip(least.prompt, greatest.prompt, strict=False)) if a != b),
                min(len(least.prompt), len(greatest.prompt)),
            )
            if len(group) > 1 and shared - len(known) // 4 >= _SHARED_WORTH:
                prefix = least.prompt[:shared]
                row = Row(prefix, as_path(prefix), least.sampling, 0, 0)
                cache, _ = self._prefill([row], 0)
                self.remember(cache, [(0, row.path)])

    def _prefill(self, prompts: Sequence[Row], spare: int) -> tuple[Cache, Tensor]:
        """A cache with every prompt in it and ``spare`` free positions, and the logits behind each prompt."""
        lengths = np.array([len(p.prompt) for p in prompts])
        slots = np.zeros((len(prompts), int(lengths.max()) + spare), dtype=np.int32)
        known = np.zeros(len(prompts), dtype=np.int64)
        for i, prompt in enumerate(prompts):
            found = self.prefixes.match(prompt.path)[: lengths[i] - 1]  # the last token gives the logits
            known[i] = len(found)
            slots[i, : len(found)] = found
        cache = self.prefixes.gather(slots)
        self.work.reused_tokens += int(known.sum())
        self.work.prefilled_tokens += int((lengths - known).sum())
        logits = [
            self._extend(cache.span(a, b), prompts[a:b], known[a:b], lengths[a:b])
            for a, b in _spans(lengths, lengths - known)
        ]
        return cache, logits[0] if len(logits) == 1 else torch.cat(logits)

    def _extend(self, cache: Cache, prompts: Sequence[Row], known: np.ndarray, lengths: np.ndarray) -> Tensor:
        fresh = lengths - known
        rows = np.repeat(np.arange(len(prompts)), fresh)
        ends = np.cumsum(fresh)
        positions = np.arange(ends[-1]) - np.repeat(ends - fresh, fresh) + np.repeat(known, fresh)
        tokens = np.concatenate(
            [np.frombuffer(p.path, dtype=np.int32)[k:] for p, k in zip(prompts, known, strict=True)]
        )
        packed = [torch.from_numpy(a.astype(np.int64)).to(self.device) for a in (tokens, rows, positions, ends - 1)]
        return self.transformer.extend(cache, *packed)


def _spans(lengths: np.ndarray, fresh: np.ndarray) -> list[tuple[int, int]]:
    """Consecutive rows whose padded attention mask stays within the budget."""
    spans, start, width, length = [], 0, 0, 0
    for i in range(len(lengths)):
        wider, longer = max(width, fresh[i]), max(length, lengths[i])
        if i > start and (i + 1 - start) * wider * longer > _ATTENTION_BUDGET:
            spans.append((start, i))
            start, wider, longer = i, fresh[i], lengths[i]
        width, length = wider, longer
    return [*spans, (start, len(lengths))]


class _Decoding:
    """The decoding loop of one chunk; ``live`` maps the rows of the cache to those of the chunk."""

    def __init__(self, decoder: Decoder, rows: Sequence[Row], cache: Cache, longest: int) -> None:
        device = decoder.device
        self.decoder, self.rows, self.cache, self.longest = decoder, rows, cache, longest
        self.live = np.arange(len(rows))
        self.prompt_length = np.array([len(row.prompt) for row in rows])
        self.position = torch.from_numpy(self.prompt_length).to(device)
        self.limit = torch.tensor([row.sampling.max_tokens for row in rows], device=device)
        self.rules = Rules.of([r.sampling for r in rows], decoder.transformer.architecture.vocab_size, device)
        chance = uniforms([row.seed for row in rows], [row.sample for row in rows], longest)
        self.chance = torch.from_numpy(chance).to(device)
        self.seen = torch.where(torch.arange(cache.capacity, device=device) < self.position[:, None], 0.0, -torch.inf)
        self.seen = self.seen.to(decoder.transformer.dtype)
        self.done = torch.zeros(len(rows), dtype=torch.bool, device=device)
        self.tokens = torch.zeros((len(rows), longest), dtype=torch.int64, device=device)
        self.logprobs = torch.zeros((len(rows), longest), device=device)
        self.count = torch.zeros(len(rows), dtype=torch.int64, device=device)
        self.token_lists: list[list[int]] = [[] for _ in rows]
        self.logprob_lists: list[list[float]] = [[] for _ in rows]

    def run(self, logits: Tensor) -> tuple[list[list[int]], list[list[float]]]:
        for step in range(self.longest):
            token, logprob = draw(logits, self.rules, self.chance[:, step])
            self.tokens[:, step], self.logprobs[:, step] = token, logprob
            self.count += ~self.done
            self.done |= self.decoder.ends[token] | (self.limit <= step + 1)
            finished = int(self.done.sum())
            if finished == len(self.live):
                break
            if finished and len(self.live) - finished < _COMPACT_BELOW * len(self.live):
                token = self._compact(token)
            # A finished row writes again and again at the position behind it, which nothing reads.
            self.seen.scatter_(1, self.position[:, None], 0.0)
            length = int(self.prompt_length[self.live].max()) + step + 1
            logits = self.decoder.transformer.step(self.cache, token, self.position, self.seen[:, :length])
            self.position = self.position + (~self.done)
        self._collect(np.arange(len(self.live)))
        return self.token_lists, self.logprob_lists

    def _compact(self, token: Tensor) -> Tensor:
        """Drop finished rows; returns the tokens of the others."""
        done = self.done.cpu().numpy()
        self._collect(np.flatnonzero(done))
        keep = torch.from_numpy(np.flatnonzero(~done)).to(self.done.device)
        self.cache, self.rules = self.cache.select(keep), self.rules.select(keep)
        for name in ("position", "limit", "chance", "seen", "done", "tokens", "logprobs", "count"):
            setattr(self, name, getattr(self, name).index_select(0, keep))
        self.live = self.live[~done]
        return token.index_select(0, keep)

    def _collect(self, at: np.ndarray) -> None:
        """Take the completions of the cache rows ``at`` and remember their keys and values."""
        index = torch.from_numpy(at).to(self.done.device)
        tokens, logprobs, counts = (
            t.index_select(0, index).cpu().numpy() for t in (self.tokens, self.logprobs, self.count)
        )
        encoded, paths = tokens.astype(np.int32), []
        for i, row, drawn, chances, count in zip(
            at, self.live[at], tokens.tolist(), logprobs.tolist(), counts, strict=True
        ):
            self.token_lists[row], self.logprob_lists[row] = drawn[:count], chances[:count]
            # The last token was drawn but never run through the model.
            paths.append((i, self.rows[row].path + encoded[len(paths), : count - 1].tobytes()))
        self.decoder.work.generated_tokens += int(counts.sum())
        self.decoder.remember(self.cache, paths)
