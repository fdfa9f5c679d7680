"""The model in this process. It answers the concurrent requests of many coroutines together, in batches.

Waiting requests are answered when the event loop has nothing else to run. The rows of a batch are sorted, and every
completion has its own random numbers, so that results do not depend on the order of the coroutines.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from ..settings import refuse
from .decoding import ROW, Batch, BatchDecoder
from .prefix_cache import PrefixCache, as_path
from .spec import ModelSpec
from .tokenizer import ChatTokenizer
from .transformer import Transformer
from .types import Completion, Ids, Messages, Model, Request, Sampling, Usage, unanswered

_CPU_CACHES = 3 * 2**29  # bytes, 1.5 GiB; the demo's whole evaluation fits
_CHUNK = 768  # completions decoded at a time, fewer when their keys and values exceed their share of the memory
# Turns of the event loop without a new request after which a batch starts: more than an episode takes between two of
# its requests.
_QUIET_TURNS = 16


class InProcessSampler(Model):
    """A model that samples with a :class:`Transformer` in this process.

    It caches the keys and values of all prompts and completions until :meth:`refresh`. The cache and the completions
    that are being decoded take 1.5 GiB of memory on a CPU; on a GPU the share ``memory_share`` of its free memory, but
    at least 1.5 GiB. Raises SettingsError for a tokenizer with token ids that the transformer does not have.
    """

    tokenizer: ChatTokenizer

    def __init__(self, transformer: Transformer, tokenizer: ChatTokenizer, memory_share: float = 0.5) -> None:
        """Make a sampler. ``memory_share`` is the share of a GPU's free memory for keys and values. Raises
        SettingsError for a tokenizer with token ids that the transformer does not have."""
        self.transformer, self.tokenizer = transformer, tokenizer
        arch = transformer.architecture
        self.max_positions = arch.max_positions
        # The bytes of one token in the caches: a key and a value (2) in every layer.
        token_bytes = 2 * arch.layers * arch.kv_heads * arch.head_dim * transformer.embedding.element_size()
        caches = cache_memory(transformer.device, memory_share)
        wrong = [t for t in (tokenizer.largest_id, *tokenizer.eos_ids) if not 0 <= t < arch.vocab_size]
        refuse(__package__, "tokens", {"folder": tokenizer.folder, "wrong": wrong, "rows": arch.vocab_size})
        ends = np.zeros(arch.vocab_size, dtype=bool)
        ends[sorted(tokenizer.eos_ids)] = True
        # A third of the memory caches prefixes; two thirds hold what is being decoded.
        self._prefixes = PrefixCache(transformer, caches // 3 // token_bytes)
        self._decoder = BatchDecoder(self._prefixes, ends, _CHUNK, caches * 2 // 3 // token_bytes)
        self.counters = self._decoder.counters
        self._pending: list[tuple[Request, asyncio.Future[list[Completion]]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop of the waiting requests

    @classmethod
    def from_folder(cls, folder: str | Path, *, device: str = "cpu", template: Mapping | None = None) -> Self:
        """Open a sampler with the weights and the tokenizer of a Hugging Face folder. ``template`` are arguments of the
        chat template. Raises SettingsError for a folder that cannot be used."""
        return cls(Transformer.load(folder, device), ChatTokenizer(folder, template))

    @classmethod
    def from_model(cls, model: Any, tokenizer: ChatTokenizer, memory_share: float = 0.5) -> Self:
        """Make a sampler that shares the parameters of a transformers model, such as the one in training. The caller
        calls :meth:`refresh` after the parameters changed."""
        return cls(Transformer.from_model(model), tokenizer, memory_share)

    def refresh(self) -> None:
        """Clear the prefix cache, so that results do not depend on earlier weights, nor in the last bit on earlier
        requests."""
        self._prefixes.clear()

    async def sample(self, prompt_ids: Ids, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one completion of the prompt ``prompt_ids`` (token ids) for each index in ``samples``, in one batch
        with the requests of other coroutines.

        Raises ValueError for an empty prompt, a token id outside the vocabulary, an empty ``samples`` or a negative
        index in it, and for a prompt that leaves no room for ``sampling.max_tokens``.
        """
        return await self._enqueue(Request(tuple(prompt_ids), tuple(samples), sampling, seed))

    async def score(self, prompt_ids: Ids, continuations: Sequence[Ids]) -> list[tuple[float, ...]]:
        """Compute the log-probabilities (nats, at temperature 1) of the tokens of each continuation of a prompt, in one
        batch with the requests of other coroutines. Raises ValueError as :meth:`sample`, and for an empty
        continuation."""
        given = tuple(map(tuple, continuations))
        longest = max(map(len, given), default=0)
        # At least 1 token, since a Sampling has no less; an empty continuation is refused below. The seed is not used.
        request = Request(tuple(prompt_ids), tuple(range(len(given))), Sampling(max(longest, 1)), 0, given)
        return [completion.logprobs for completion in await self._enqueue(request)]

    async def _enqueue(self, request: Request) -> list[Completion]:
        """Check a request, add it to the waiting ones, and wait for its completions. Raises ValueError as
        :meth:`sample`."""
        self._check_request(request)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Completion]] = loop.create_future()
        if self._loop is not loop:
            # The first request that waits in this loop. Any others that wait are of an earlier loop, which has ended.
            self._loop, self._pending = loop, []
            loop.call_soon(self._wait_for_quiet, loop, 0, 0)  # 0 requests known, 0 quiet turns
        self._pending.append((request, future))
        return await future

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one answer to a conversation for each index in ``samples``. Each has the finish reason
        ``too_long`` where the conversation leaves no room for ``sampling.max_tokens``."""
        prompt_ids = self.tokenizer.encode_conversation(messages)
        if len(prompt_ids) + sampling.max_tokens > self.max_positions:
            return [unanswered("too_long")] * len(samples)
        return await self.sample(prompt_ids, samples, sampling, seed)

    def sample_batch(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Compute the completions of many requests at once, without an event loop. Returns a list per request, in their
        order. Raises ValueError as :meth:`sample`."""
        for request in requests:
            self._check_request(request)
        return self._decode(requests)

    def _decode(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """Compute the completions of all requests, with one batch for each set of sampling parameters. Returns a list
        per request, in their order."""
        results: list[list[Completion]] = [[] for _ in requests]
        by_parameters: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            sampling = request.sampling
            # Without max_tokens, which may differ within a batch. Requests to score given continuations are apart.
            by_parameters[sampling.temperature, sampling.top_p, sampling.top_k, bool(request.given)].append(index)
        for parameters in sorted(by_parameters):
            batch, owners = _make_batch(requests, by_parameters[parameters])  # owners: the request of each row
            with torch.inference_mode():
                self._decoder.run(batch)
            lengths = batch.rows["length"].tolist()
            ids_of_rows = [tuple(row[:n]) for row, n in zip(batch.tokens.tolist(), lengths, strict=True)]  # no padding
            distinct = list(dict.fromkeys(ids_of_rows))  # equal completions are decoded to text once
            text_of = dict(zip(distinct, self.tokenizer.decode_batch(distinct), strict=True))
            for owner, ids, row_logprobs in zip(owners, ids_of_rows, batch.logprobs.tolist(), strict=True):
                finish = self.tokenizer.finish_reason(ids)
                usage = Usage(len(requests[owner].prompt), len(ids))
                results[owner].append(Completion(text_of[ids], ids, tuple(row_logprobs[: len(ids)]), finish, usage))
        self.counters["completions"] += sum(map(len, results))
        self.counters["rounds"] += 1
        return results

    def _wait_for_quiet(self, loop: asyncio.AbstractEventLoop, known: int, quiet: int) -> None:
        """Answer the waiting requests once more than :data:`_QUIET_TURNS` turns of the event loop have brought no new
        one; until then schedule this method again for the next turn.

        ``known`` is the number of requests that were waiting in the last turn, ``quiet`` the number of turns since a
        new one came. The wait lets all episodes share a batch: each needs several turns of the event loop between two
        of its requests.
        """
        waiting = len(self._pending)
        quiet = 0 if waiting > known else quiet + 1
        if quiet <= _QUIET_TURNS:
            loop.call_soon(self._wait_for_quiet, loop, waiting, quiet)
            return
        # Without the requests whose coroutine was cancelled: their futures are done.
        pending = [(request, future) for request, future in self._pending if not future.done()]
        self._loop, self._pending = None, []
        try:
            results = self._decode([request for request, _ in pending])
        except Exception as error:
            for _, future in pending:  # every waiting coroutine raises it
                future.set_exception(error)
            return
        for (_, future), completions in zip(pending, results, strict=True):
            future.set_result(completions)

    def _check_request(self, request: Request) -> None:
        """Raise ValueError for a request with an invalid prompt, index or continuation, or one that exceeds the model's
        positions (see :meth:`sample` and :meth:`score`)."""
        size = self.transformer.architecture.vocab_size
        if not request.prompt:
            raise ValueError("the prompt is empty: a completion needs at least one token")
        if not request.samples or min(request.samples) < 0:
            raise ValueError(f"samples must be one or more indices from 0 on, not {request.samples}")
        if not all(request.given):
            raise ValueError("a continuation is empty: give at least one token")
        for ids in (request.prompt, *request.given):
            if min(ids) < 0 or max(ids) >= size:
                wrong = next(token for token in ids if not 0 <= token < size)  # the first one
                raise ValueError(f"the prompt or a continuation holds token {wrong}: the vocabulary has {size}")
        if len(request.prompt) + request.sampling.max_tokens > self.max_positions:
            sizes = f"a prompt of {len(request.prompt)} tokens and max_tokens {request.sampling.max_tokens}"
            raise ValueError(f"{sizes} exceed the model's {self.max_positions} positions")


def cache_memory(device: torch.device, share: float) -> int:
    """Compute the bytes that a sampler gets for keys and values: 1.5 GiB on a CPU; on a GPU ``share`` of the memory
    that is free after the weights are loaded, but at least 1.5 GiB. If the process is limited to a fraction of the GPU
    (``torch.cuda.set_per_process_memory_fraction``), only the rest of this fraction counts as free."""
    if device.type != "cuda":
        return _CPU_CACHES
    free, total = torch.cuda.mem_get_info(device)
    left = torch.cuda.get_per_process_memory_fraction(device) * total - torch.cuda.memory_allocated(device)
    return max(_CPU_CACHES, int(share * min(free, left)))


def open_folder(spec: ModelSpec) -> InProcessSampler:
    """Open the model in the Hugging Face folder ``spec.where`` as a sampler, with the stored data type. Raises
    SettingsError where the model's entry in ``workflow/models.yaml`` asks for what only a server can do: request fields
    other than ``chat_template_kwargs``, or ``temperature: null`` (the server's own default)."""
    if spec.entry:
        extra = spec.entry.extra.items()
        fields = sorted(name for name, value in extra if value is not None and name != "chat_template_kwargs")
        values = {"folder": spec.where, "fields": fields, "no_temperature": spec.entry.sampling.temperature is None}
        refuse(__package__, "requests", values)
    return InProcessSampler.from_folder(spec.where, device=spec.device, template=spec.template)


def _make_batch(requests: Sequence[Request], indices: Sequence[int]) -> tuple[Batch, np.ndarray]:
    """Make a batch of the requests with these ``indices``, which have equal sampling parameters. Returns the batch, and
    for each of its rows (completions) the index of its request.

    Rows have a canonical order, so that results do not depend on the order of the requests: short prompts come first,
    which saves padding, and equal prompts are adjacent. The order of equal requests does not matter, since their
    completions are equal.

    If the requests have ``given`` completions, which are scored and not sampled (then all requests have them), these
    are padded to one array, and the limit of each row is the length of its completion.
    """
    paths = {i: as_path(requests[i].prompt) for i in indices}

    def sort_key(index: int) -> tuple:
        """The key that sorts the request ``index``: by length and tokens of the prompt, then by all else that its
        completions depend on. Keys are equal only for equal requests."""
        request, path = requests[index], paths[index]
        return len(path), path, request.seed, request.sampling.max_tokens, request.samples, request.given

    order = sorted(indices, key=sort_key)
    prompts = list(dict.fromkeys(paths[i] for i in order))  # each once
    index_of_prompt = {path: index for index, path in enumerate(prompts)}
    counts = [len(requests[i].samples) for i in order]  # rows of each request
    rows = np.zeros(sum(counts), ROW)
    rows["prompt"] = np.repeat([index_of_prompt[paths[i]] for i in order], counts)
    # Modulo 2**64, so that any integer is a seed.
    rows["seed"] = np.repeat(np.array([requests[i].seed % 2**64 for i in order], np.uint64), counts)
    rows["sample"] = np.concatenate([requests[i].samples for i in order])
    rows["limit"] = np.repeat([requests[i].sampling.max_tokens for i in order], counts)
    given = [completion for i in order for completion in requests[i].given]
    if given:
        rows["limit"] = [len(completion) for completion in given]
    tokens = np.zeros((len(rows), rows["limit"].max()), np.int32)
    for row, completion in zip(tokens, given, strict=False):  # none are given, or one for each row
        row[: len(completion)] = completion
    batch = Batch(requests[order[0]].sampling, prompts, rows, tokens, np.zeros(tokens.shape), bool(given))
    return batch, np.repeat(order, counts)
