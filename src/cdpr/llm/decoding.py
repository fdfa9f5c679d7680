"""Decodes batches of completions: a prefill of the prompts that are not in the prefix cache, then one decoding step per
token.

Completions of a prompt that have sampled the same tokens so far form one *branch*, which is one row of the model. Each
completion samples its next token with its own random number.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from .attention import Branches, Prefill, Prompts
from .prefix_cache import TOKEN_BYTES, CachedPath, PrefixCache
from .types import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of the generator splitmix64, 2**64 divided by the golden ratio
# A chunk (the completions that are decoded together) has at most `BatchDecoder.rows` completions, and its grid of
# branches (attention.Branches) at most this many times as many cells. Cells are empty where prompts have fewer
# completions than others.
_CELLS_PER_ROW = 4
_PREFILL_TOKENS = 2048  # about as many new tokens of prompts are computed in one forward pass


def uniforms(seeds: np.ndarray, samples: np.ndarray, positions: int) -> np.ndarray:
    """Draw uniform random numbers in [0, 1), float64 ``[rows, positions]``, with the generator splitmix64. ``seeds``
    (64-bit) and ``samples`` (index of the sample) have one entry per row. A row depends on its own two entries alone,
    so a completion is the same in any batch."""
    with np.errstate(over="ignore"):  # the generator computes modulo 2**64
        seed, sample = seeds.astype(np.uint64), samples.astype(np.uint64)
        # The state from which the numbers of each row begin; every position adds one step of splitmix64, _GOLDEN.
        start = _mix(_mix(seed + _GOLDEN) + (sample + np.uint64(1)) * _GOLDEN)
        steps = np.arange(1, positions + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(start[:, None] + steps) >> np.uint64(11)  # the upper 53 bits: what a float64 holds exactly
    return bits.astype(np.float64) * 2.0**-53  # from integers below 2**53 to numbers below 1


def _mix(bits: np.ndarray) -> np.ndarray:
    """Apply the output function of the generator splitmix64, with its published constants, to each number of a uint64
    array."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Sample one token per row. Returns the tokens, int64 ``[R]``, and their log-probabilities, float32 ``[R]``.

    ``logits`` float32 ``[B, V]`` are those of B distributions over a vocabulary of V tokens; they can be overwritten.
    Row r samples from the distribution ``source[r]`` (int64 ``[R]``) with the uniform random number ``uniform[r]``
    (float64 ``[R]``), by the temperature, top-k and top-p of ``sampling``. The log-probability is that of the
    temperature-scaled softmax before top-k and top-p. At temperature 0 the token is the first with the largest logit,
    and its log-probability is that at temperature 1.
    """
    if sampling.temperature not in (None, 0, 1):  # None and 1 change nothing; 0 is greedy, see below
        logits /= sampling.temperature
    probability = logits.softmax(-1)
    if sampling.temperature == 0:
        token = logits.argmax(-1).index_select(0, source)
    else:
        token = _sample_by_inversion(_keep_top(probability, sampling), uniform, source)
    # Of row r the probability at [source[r], token[r]], by its index in the flattened tensor.
    return token, probability.view(-1).index_select(0, source * probability.shape[1] + token).log()


def _sample_by_inversion(mass: Tensor, uniform: Tensor, source: Tensor) -> Tensor:
    """Sample one token per row by inversion of the cumulative distribution; returns int64 ``[R]``. The token of row r
    is the first one at which the running sum of ``mass[source[r]]`` exceeds ``uniform[r]`` times the total.

    ``mass`` float32 ``[B, V]`` are probabilities, not normalised; ``source`` int64 ``[R]``, ``uniform`` float64
    ``[R]``. The search finds first the block of tokens and then the token in it, because a running sum over a whole
    vocabulary is the slowest operation of a decoding step. Sums within a block are float64, so that a token with the
    probability 0 is never drawn.
    """
    rows, vocabulary = mass.shape
    width = max(16, int(vocabulary**0.5))  # of a block: about as many blocks as tokens in a block
    padding = -vocabulary % width
    if padding:
        mass = torch.nn.functional.pad(mass, (0, padding))
    blocks = mass.view(-1, width)  # [B * blocks of a vocabulary, width]
    # A product with ones sums short rows several times faster than a reduction does.
    block_mass = (blocks @ blocks.new_ones(width)).view(rows, -1).double()
    running = block_mass.cumsum(-1).index_select(0, source)  # [R, blocks]: the sum up to the end of each block
    target = uniform * running[:, -1]
    block = (running <= target[:, None]).sum(-1)  # of each row, the first block whose running sum exceeds the target
    # The running sum before that block; 0 for the first block.
    before = torch.where(block > 0, running.gather(1, (block - 1).clamp_min_(0)[:, None])[:, 0], 0.0)
    inside = blocks.index_select(0, source * running.shape[1] + block).double().cumsum(-1)  # [R, width]
    # Rounding may place the target at the block's very end: stay below it, where the last positive token is.
    target = torch.minimum(target - before, inside[:, -1] * (1 - 2.0**-50))
    return block * width + (inside <= target[:, None]).sum(-1)


def _keep_top(mass: Tensor, sampling: Sampling) -> Tensor:
    """Set to zero the probabilities of the tokens outside top-k, then of those outside top-p. ``mass`` ``[B, V]`` are
    the probabilities, which are not changed; returns ``[B, V]``, not normalised."""
    if not sampling.top_k and sampling.top_p == 1:
        return mass
    ordered, index = mass.sort(dim=-1, descending=True, stable=True)
    if sampling.top_k:
        ordered[:, sampling.top_k :] = 0
    cumulative = ordered.double().cumsum(-1)
    # A token stays where the likelier ones before it have less than top_p of the total that top-k has left.
    before = cumulative - ordered
    ordered.masked_fill_(before >= sampling.top_p * cumulative[:, -1:], 0)
    return torch.zeros_like(mass).scatter_(1, index, ordered)


# What is known of each row (completion) of a batch. ``prompt``: the index of its prompt; ``seed`` and ``sample``: the
# two numbers from which `uniforms` draws its random numbers; ``limit``: the most tokens that it can have; ``length``:
# the number of tokens that it got, 0 before it is decoded.
ROW = np.dtype(
    [("prompt", np.int64), ("seed", np.uint64), ("sample", np.int64), ("limit", np.int64), ("length", np.int64)]
)


@dataclass(frozen=True)
class Batch:
    """Completions to compute together, one per row, with the temperature, top-p and top-k of ``sampling``.

    - ``paths`` are the prompts, as bytes (:func:`~cdpr.llm.prefix_cache.as_path`).
    - ``rows`` has the type :data:`ROW`; rows of one prompt are adjacent, and prompts are in the order of ``paths``.
    - ``tokens`` int32 and ``logprobs`` float64, both ``[rows, longest]``, get the completions. Behind its length a row
      is 0.
    - ``is_given``: no token is sampled. ``tokens`` has the completions already, of ``limit`` tokens each, and their
      log-probabilities are computed.
    """

    sampling: Sampling
    paths: Sequence[bytes]
    rows: np.ndarray
    tokens: np.ndarray
    logprobs: np.ndarray
    is_given: bool


class BatchDecoder:
    """Decodes batches of completions with one transformer and one prefix cache, ``prefixes``.

    ``ends`` bool ``[vocab_size]`` marks the tokens that end a completion. A batch is divided into chunks of at most
    ``rows`` completions, whose keys and values have at most ``tokens`` tokens, to stay within the memory.

    ``counters`` counts the work since the start:

    - ``prefilled_tokens`` of prompts were computed, ``reused_tokens`` of prompts came from the prefix cache.
    - ``generated_tokens`` of completions were sampled, ``scored_tokens`` were given and only scored.
    - ``decoded_tokens``: rows of the model in all decoding steps. Completions that share a branch share its rows; the
      first token of a completion needs none, because the prefill gives its logits.
    - ``completions`` and ``rounds`` are counted by the sampler: completions that were returned, and how often all
      waiting requests were answered together.
    """

    def __init__(self, prefixes: PrefixCache, ends: np.ndarray, rows: int, tokens: int) -> None:
        """Make a decoder. ``ends`` bool ``[vocab_size]`` marks the tokens that end a completion. At most ``rows``
        completions are decoded at a time, with keys and values of at most ``tokens`` tokens."""
        self.transformer, self.prefixes = prefixes.transformer, prefixes
        self.ends, self.rows, self.tokens = ends, rows, tokens
        self.counters: Counter[str] = Counter()
        self.workspace: list[Tensor] = []  # memory for the keys and values of the prompts of one chunk after the other

    def run(self, batch: Batch) -> None:
        """Compute the completions of a batch, in chunks of rows that fit into the memory, and write them into the
        batch. After an error the prefix cache is empty."""
        rows, longest = batch.tokens.shape
        self.transformer.extend_positions(max(map(len, batch.paths)) // TOKEN_BYTES + longest)
        start = 0
        try:
            while start < rows:
                stop, cached = self._choose_rows(batch, start, longest)
                _Chunk(self, batch, start, stop, cached).run()
                start = stop
        except BaseException:  # the prefix cache may hold slots that were never filled
            self.prefixes.clear()
            raise
        kind = "scored_tokens" if batch.is_given else "generated_tokens"
        self.counters[kind] += int(batch.rows["length"].sum())

    def _choose_rows(self, batch: Batch, start: int, longest: int) -> tuple[int, list[CachedPath]]:
        """Choose the rows (completions) of the batch that are decoded next, from the row ``start`` on, and put their
        prompts into the prefix cache. Returns the index behind the last row, and the prompts in the cache. ``longest``
        is the most tokens of a completion in the batch.

        Prompts are added with all their rows as long as the chunk stays within ``self.rows`` rows and the memory of
        ``self.tokens`` tokens, and the cache has room. If the rows of a single prompt are too many, the chunk gets the
        first of them.
        """
        self.prefixes.begin_batch()
        cached: list[CachedPath] = []
        # The index behind the rows of each prompt.
        ends = np.flatnonzero(np.diff(batch.rows["prompt"][start:], append=-1)) + start + 1
        stop = start
        length = most = 0  # of the chunk so far: tokens of the longest prompt, most completions of a prompt
        for end in ends.tolist():  # the rows from ``stop`` to before ``end`` are those of the next prompt
            path = batch.paths[batch.rows["prompt"][stop]]
            length, most = max(length, len(path) // TOKEN_BYTES), max(most, end - stop)
            prompts = len(cached) + 1
            grid = prompts * most  # cells for branches: every prompt gets as many as the one with most completions
            memory = prompts * length + grid * longest  # tokens whose keys and values are stored, padding included
            fits = end - start <= self.rows and grid <= _CELLS_PER_ROW * self.rows and memory <= self.tokens
            if cached and not fits:
                break
            cached_path = self.prefixes.insert(path)
            if cached_path is None and not cached:  # longer than the whole cache, which is enlarged for it
                self.prefixes.resize(len(path) // TOKEN_BYTES)
                cached_path = self.prefixes.insert(path)
            if cached_path is None:
                break
            cached.append(cached_path)
            if not fits:  # the chunk is a single prompt with more completions than fit: it gets the first ones
                room = min(self.rows, (self.tokens - length) // longest)
                stop = min(end, start + max(1, room))
                break
            stop = end
        return stop, cached


class _Chunk:
    """A part of a batch that is decoded together: the rows (completions) of ``batch`` from ``start`` to before
    ``stop``. ``cached`` are their prompts in the prefix cache, in the order of ``batch.paths``; the prefill computes
    the keys and values that are not there yet."""

    def __init__(self, decoder: BatchDecoder, batch: Batch, start: int, stop: int, cached: list[CachedPath]) -> None:
        """Prepare the rows (completions) of ``batch`` from ``start`` to before ``stop``. ``cached`` are their prompts
        in the prefix cache, in the order of ``batch.paths``; they are sorted so that a prefix is computed before the
        prompts that share it."""
        self.decoder, self.batch, self.start = decoder, batch, start
        self.transformer, self.prefixes, self.counters = decoder.transformer, decoder.prefixes, decoder.counters
        rows = batch.rows[start:stop]
        prompt = rows["prompt"]
        first = prompt[0]
        lengths = np.array([len(path.slots) for path in cached])
        known = np.array([path.known for path in cached])
        level = np.array([path.level for path in cached])
        # Sorted by level, so that a prompt comes after those that compute a prefix of it, then by number of new tokens,
        # so that prompts with similar numbers are adjacent (lexsort: the last key counts first).
        order = np.lexsort((lengths - known, level))
        self.cached = [cached[i] for i in order]
        self.paths = [batch.paths[first + i] for i in order]
        self.lengths, self.known = lengths[order], known[order]
        # The first token that is computed. The last token is always computed, because it gives the logits.
        self.begin = np.minimum(self.known, self.lengths - 1)
        new_index = np.argsort(order)  # the inverse of ``order``: of each prompt its index in the sorted lists
        self.prompt = new_index[prompt - first]  # of each row
        self.limit = rows["limit"]
        # One random number for each row and token.
        self.uniforms = uniforms(rows["seed"], rows["sample"], int(self.limit.max()))

    def run(self) -> None:
        """Decode token by token until all rows (completions) have ended, and write their tokens, log-probabilities and
        lengths into the batch. Rows of a prompt with equal tokens so far share one branch, which the model computes
        once."""
        batch = self.batch
        prompts, logits = self._prefill()
        branches = Branches(self.transformer, prompts)
        nodes = [path.node for path in self.cached]  # of the prompts, in the prefix cache
        live, branch = np.arange(len(self.prompt)), self.prompt  # the rows that have not ended, and the branch of each
        prompt = np.arange(len(self.cached))  # of each branch
        history = np.zeros((len(prompt), 0), dtype=np.int32)  # the tokens of each branch
        vocabulary = self.transformer.architecture.vocab_size
        for step in range(self.uniforms.shape[1]):
            token, logprob = self._choose_tokens(logits, live, branch, step)
            rows = self.start + live  # in the batch
            batch.tokens[rows, step], batch.logprobs[rows, step], batch.rows["length"][rows] = token, logprob, step + 1
            stay = self.limit[live] > step + 1  # of each of these rows: whether it goes on
            if not batch.is_given:
                stay &= ~self.decoder.ends[token]
            live = live[stay]
            # Rows of one branch with the same token form one longer branch. An integer encodes branch and token.
            longer_branch_of_row = branch[stay] * vocabulary + token[stay]
            longer_branches, branch = np.unique(longer_branch_of_row, return_inverse=True)
            parent, last_token = np.divmod(longer_branches, vocabulary)  # of each longer branch
            if step:  # store the branches that end here; in step 0 all branches are without tokens
                ends = np.ones(len(prompt), dtype=bool)  # of each branch: whether no row continues it
                ends[parent] = False
                self._store_branches(branches, [nodes[i] for i in prompt[ends]], history[ends], np.flatnonzero(ends))
            if not len(live):
                break
            prompt = prompt[parent]
            history = np.concatenate([history[parent], last_token[:, None].astype(np.int32)], 1)
            branches.advance(parent)
            logits = self._step(branches, last_token, self.lengths[prompt] + step)

    def _choose_tokens(
        self, logits: Tensor, live: np.ndarray, branch: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample the next token of each unfinished row (completion), or take the given one if the batch has given
        tokens. Returns the tokens, int64 ``[live]``, and their log-probabilities, float64 ``[live]``, as :func:`draw`
        defines them (of given tokens: at temperature 1).

        ``logits`` ``[branches, vocab_size]`` are those behind each branch, the tokens that some rows share. ``live``
        are the numbers of the unfinished rows, ``branch`` the branch of each of them, and ``step`` the number of tokens
        so far.
        """
        source = torch.from_numpy(branch).to(logits.device)
        if self.batch.is_given:
            given = torch.from_numpy(self.batch.tokens[self.start + live, step]).to(logits.device)
            sampled = given, logits.log_softmax(-1)[source, given]
        else:
            uniform = torch.from_numpy(self.uniforms[live, step]).to(logits.device)
            sampled = draw(logits, self.batch.sampling, uniform, source)
        token, logprob = torch.stack([t.double() for t in sampled]).cpu().numpy()  # one transfer for both
        return token.astype(np.int64), logprob

    def _step(self, branches: Branches, token: np.ndarray, position: np.ndarray) -> Tensor:
        """Run the model on the last token of each branch, the tokens that some completions share. Returns the logits
        behind it, ``[branches, vocab_size]``. ``token`` and ``position`` (int ``[branches]``) are this token and its
        position in the sequence."""
        self.counters["decoded_tokens"] += len(token)
        packed = np.zeros((2, self.transformer.padded(len(token))), dtype=np.int64)
        packed[:, : len(token)] = token, position
        tokens, positions = torch.from_numpy(packed).to(self.transformer.device)
        return self.transformer.forward(tokens, positions, branches)[: len(token)]

    def _store_branches(self, branches: Branches, nodes: list, history: np.ndarray, numbers: np.ndarray) -> None:
        """Store the keys and values of finished branches (sampled tokens that no completion continues) in the prefix
        cache, because later prompts often continue a completion. Each finished branch has an entry in ``nodes`` (the
        cache node of its prompt), ``history`` (its tokens) and ``numbers`` (its number in ``branches``)."""
        stored: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # per token: its branch, position, slot
        for number, node, tokens in zip(numbers, nodes, history, strict=True):
            cached = self.prefixes.insert(tokens.tobytes(), node)
            if cached:  # else the cache has no room
                positions = np.arange(cached.known, len(tokens))
                stored.append((np.full(len(positions), number), positions, cached.slots[cached.known :]))
        if stored:
            branch, position, slot = (np.concatenate(arrays) for arrays in zip(*stored, strict=True))
            branches.store(self.prefixes, branch, position, slot)

    def _prefill(self) -> tuple[Prompts, Tensor]:
        """Run the model on the tokens of the prompts that are not in the prefix cache, and on the last token of every
        prompt. Returns the keys and values of the whole prompts, and the logits behind each prompt, ``[prompts,
        vocab_size]``."""
        fresh = self.lengths - self.begin  # tokens of each prompt that are computed now
        self.counters["reused_tokens"] += int(self.begin.sum())
        self.counters["prefilled_tokens"] += int(fresh.sum())
        prompts = Prompts.empty(self.transformer, self.lengths, self.decoder.workspace)
        slots = np.zeros((len(fresh), int(self.lengths.max())), dtype=np.int32)
        for row, path in zip(slots, self.cached, strict=True):
            row[: len(path.slots)] = path.slots
        # Each forward pass computes successive prompts, of about _PREFILL_TOKENS new tokens together. ``bounds`` are
        # the first prompt of each pass, and the number of prompts: pass i is from bounds[i] to before bounds[i + 1].
        pass_of_prompt = (np.cumsum(fresh) - 1) // _PREFILL_TOKENS
        bounds = [*np.flatnonzero(np.diff(pass_of_prompt, prepend=-1)).tolist(), len(fresh)]
        logits = [self._prefill_prompts(prompts.slice(a, b), slots[a:b], a) for a, b in pairwise(bounds)]
        return prompts, torch.cat(logits)

    def _prefill_prompts(self, prompts: Prompts, slots: np.ndarray, first: int) -> Tensor:
        """Run the model once on the new tokens of some prompts, packed one behind the other in one row. Returns the
        logits behind each of these prompts, ``[prompts, vocab_size]``.

        They are the prompts ``first``, ``first`` + 1, ... of this chunk. ``prompts`` gets their keys and values;
        ``slots`` ``[prompts, T]`` are the cache slots of their tokens (0: padding).
        """
        some = slice(first, first + len(prompts))
        attention = Prefill(self.prefixes, prompts, slots, self.paths[some], self.known[some])
        return self.transformer.forward(attention.tokens, attention.positions, attention, attention.last)[
            : len(prompts)
        ]
