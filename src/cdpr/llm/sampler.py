"""The in-process chat model: concurrent requests of coroutines are answered together, in batched waves.

A wave starts when the event loop has nothing else to run. Its rows are sorted before they are batched, so that the
order in which coroutines asked does not matter, and every draw uses uniforms of its own
(:func:`cdpr.llm.drawing.uniforms`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .decoding import Decoder, Row, Work
from .prefix_cache import PrefixCache, as_path
from .tokenizer import ChatTokenizer
from .transformer import Transformer
from .types import Completion, Request, Sampling

_QUIET_TURNS = 16  # turns of the event loop without a new request after which a wave starts


@dataclass
class Counters(Work):
    """What the sampler did since it was made."""

    requests: int = 0
    completions: int = 0
    waves: int = 0
    seconds: float = 0.0


class InProcessSampler:
    """A :class:`~cdpr.llm.types.ChatModel` over a :class:`Transformer` in this process.

    ``chunk_rows`` completions are decoded at a time, fewer when their keys and values would exceed ``cache_bytes``;
    prefixes are remembered in at most ``prefix_bytes``, until :meth:`refresh` or, with ``keep_prefixes`` off, until
    the wave ends. The number of torch threads is left as it is.
    """

    def __init__(
        self,
        transformer: Transformer,
        tokenizer: ChatTokenizer,
        *,
        chunk_rows: int = 512,
        cache_bytes: int = 2**30,
        prefix_bytes: int = 2**29,
        keep_prefixes: bool = True,
    ) -> None:
        self.transformer, self.tokenizer = transformer, tokenizer
        arch = transformer.architecture
        self.max_positions = arch.max_positions
        self._token_bytes = 2 * arch.layers * arch.kv_heads * arch.head_dim * transformer.embedding.element_size()
        self._chunk_rows, self._cache_bytes, self._keep_prefixes = chunk_rows, cache_bytes, keep_prefixes
        self.counters = Counters()
        ends = torch.zeros(arch.vocab_size, dtype=torch.bool)
        ends[sorted(i for i in tokenizer.eos_ids if i < arch.vocab_size)] = True
        self._prefixes = PrefixCache(transformer, max(1, prefix_bytes // self._token_bytes))
        self._decoder = Decoder(transformer, self._prefixes, ends.to(transformer.device), self.counters)
        self._pending: list[tuple[Request, asyncio.Future[list[Completion]]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop in which a wave is being gathered

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        *,
        device: str = "cpu",
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> InProcessSampler:
        """Weights and tokenizer of a Hugging Face folder."""
        return cls(Transformer.load(folder, device, dtype), ChatTokenizer(folder), **options)

    @classmethod
    def from_model(cls, model: Any, tokenizer: ChatTokenizer, **options: Any) -> InProcessSampler:
        """Samples from the live parameters of a transformers model; call :meth:`refresh` after they changed."""
        return cls(Transformer.from_model(model), tokenizer, **options)

    def refresh(self) -> None:
        """Forget all prefixes: the weights changed, or later results shall not depend on earlier work."""
        self._prefixes.clear()

    async def sample(self, prompt: Sequence[int], n: int, sampling: Sampling, seed: int) -> list[Completion]:
        """``n`` completions of ``prompt``, answered together with every request that is ready at the same time.

        Raises :class:`ValueError` on an empty prompt, a token id outside the vocabulary, or a prompt that leaves no
        room for ``sampling.max_tokens``.
        """
        request = self._checked(Request(tuple(prompt), n, sampling, seed))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Completion]] = loop.create_future()
        if self._loop is not loop:  # nothing is gathered, or what was asked died with an earlier loop
            self._loop, self._pending = loop, []
            loop.call_soon(self._wait_for_quiet, loop, 0, 0)
        self._pending.append((request, future))
        return await future

    def sample_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The synchronous core: completions of every request, in the order of the requests.

        Raises :class:`ValueError` as :meth:`sample`.
        """
        started = time.perf_counter()
        requests = [self._checked(request) for request in requests]
        rows = sorted((item for i, request in enumerate(requests) for item in _rows(request, i)), key=_canonical)
        results: list[list[Completion]] = [[] for _ in requests]
        with torch.inference_mode():
            for chunk in self._chunks(rows):
                tokens, logprobs = self._decoder.run([row for row, _ in chunk])
                texts = self.tokenizer.decode_batch(tokens)
                for (_, i), ids, chances, text in zip(chunk, tokens, logprobs, texts, strict=True):
                    reason = "stop" if ids[-1] in self.tokenizer.eos_ids else "length"
                    results[i].append(Completion(text, tuple(ids), tuple(chances), reason))
        if not self._keep_prefixes:
            self._prefixes.clear()
        self.counters.requests += len(requests)
        self.counters.completions += len(rows)
        self.counters.waves += 1
        self.counters.seconds += time.perf_counter() - started
        return results

    def _wait_for_quiet(self, loop: asyncio.AbstractEventLoop, known: int, quiet: int) -> None:
        """Start the wave when no request came for a few turns: a finished turn wakes its episode only over
        several callbacks, and all that are ready shall go together."""
        if len(self._pending) == known and quiet >= _QUIET_TURNS:
            self._loop = None
            self._flush()
        else:
            quiet = quiet + 1 if len(self._pending) == known else 0
            loop.call_soon(self._wait_for_quiet, loop, len(self._pending), quiet)

    def _flush(self) -> None:
        pending = [(request, future) for request, future in self._pending if not future.done()]
        self._pending = []
        try:
            results = self.sample_batch([request for request, _ in pending]) if pending else []
        except Exception as error:  # every waiting coroutine learns why
            for _, future in pending:
                future.set_exception(error)
            return
        for (_, future), completions in zip(pending, results, strict=True):
            future.set_result(completions)

    def _checked(self, request: Request) -> Request:
        size = self.transformer.architecture.vocab_size
        if not request.prompt:
            raise ValueError("the prompt is empty: a completion needs at least one token")
        if request.n < 1:
            raise ValueError(f"n must be at least 1, not {request.n}")
        if min(request.prompt) < 0 or max(request.prompt) >= size:
            wrong = next(i for i in request.prompt if not 0 <= i < size)
            raise ValueError(f"the prompt holds token {wrong}, outside the model's vocabulary of {size}")
        if len(request.prompt) + request.sampling.max_tokens > self.max_positions:
            raise ValueError(
                f"a prompt of {len(request.prompt)} tokens and max_tokens {request.sampling.max_tokens} exceed the "
                f"model's {self.max_positions} positions"
            )
        return request

    def _chunks(self, rows: list[tuple[Row, int]]) -> list[list[tuple[Row, int]]]:
        """Consecutive rows, at most ``chunk_rows`` and ``cache_bytes`` together."""
        chunks: list[list[tuple[Row, int]]] = []
        prompt = spare = 0
        for item in rows:
            row = item[0]
            prompt, spare = max(prompt, len(row.prompt)), max(spare, row.sampling.max_tokens)
            size = len(chunks[-1]) + 1 if chunks else 0
            too_large = size * (prompt + spare) * self._token_bytes > self._cache_bytes
            if not chunks or size > self._chunk_rows or too_large:
                chunks.append([])
                prompt, spare = len(row.prompt), row.sampling.max_tokens
            chunks[-1].append(item)
        return chunks


def _rows(request: Request, number: int) -> list[tuple[Row, int]]:
    path = as_path(request.prompt)
    return [(Row(request.prompt, path, request.sampling, request.seed, k), number) for k in range(request.n)]


def _canonical(item: tuple[Row, int]) -> tuple:
    """Short prompts first (little padding), equal prompts side by side; nothing depends on who asked first.

    Requests that are equal in all of it give equal completions, so their own order does not matter either.
    """
    row, _ = item
    s = row.sampling
    return len(row.prompt), row.path, row.seed, s.max_tokens, s.temperature, s.top_p, s.top_k, row.sample
