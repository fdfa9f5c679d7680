"""Drawing tokens: counter-based uniforms and the inverse of the cumulative distribution.

A uniform depends on (request seed, sample index, position in the completion) and on nothing else, so that a draw does
not depend on what else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .types import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seeds: Sequence[int] | np.ndarray, samples: Sequence[int], positions: int) -> np.ndarray:
    """Uniform numbers in [0, 1), float64 ``[rows, positions]``, from 64-bit seeds and sample indices (splitmix64)."""
    with np.errstate(over="ignore"):
        if not isinstance(seeds, np.ndarray):
            seeds = np.array([value % 2**64 for value in seeds], dtype=np.uint64)
        seed, sample = seeds.astype(np.uint64), np.array(samples, dtype=np.uint64)
        stream = _mix(_mix(seed + _GOLDEN) + (sample + np.uint64(1)) * _GOLDEN)
        counter = np.arange(1, positions + 1, dtype=np.uint64) * _GOLDEN
        bits = _mix(stream[:, None] + counter) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@dataclass(frozen=True)
class Rules:
    """The sampling parameters of ``B`` rows as tensors, or of all rows (``B`` = 1); None where no row needs it."""

    temperature: Tensor | None = None  # [B, 1], 1 for greedy rows
    greedy: Tensor | None = None  # [B] bool
    top_p: Tensor | None = None  # [B, 1]
    top_k: Tensor | None = None  # [B, 1], the vocabulary's size when off

    @classmethod
    def of(cls, samplings: Sequence[Sampling], vocab_size: int, device: torch.device) -> Rules:
        """Collect one sampling per row."""

        def column(values: list[float | int]) -> Tensor:
            return torch.tensor(values, device=device)[:, None]

        greedy = [s.temperature == 0 for s in samplings]
        temperature = [s.temperature or 1.0 for s in samplings]
        top_k = [s.top_k or vocab_size for s in samplings]
        return cls(
            temperature=column(temperature) if any(t != 1 for t in temperature) else None,
            greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
            top_p=column([s.top_p for s in samplings]) if any(s.top_p < 1 for s in samplings) else None,
            top_k=column(top_k) if any(k < vocab_size for k in top_k) else None,
        )


def draw(logits: Tensor, rules: Rules, uniform: Tensor, source: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One token per row: int64 ``[R]``, with float32 log-probabilities ``[R]``.

    ``logits`` is float32 ``[B, V]`` (may be overwritten), ``uniform`` float64 ``[R]``; row r draws from the
    distribution ``source[r]`` (int64 ``[R]``; None: row r from distribution r), to which ``rules`` are applied. The
    log-probability is that of the temperature-scaled softmax before top-k and top-p; greedy rows take the first
    largest logit, at temperature 1.
    """
    if rules.temperature is not None:
        logits /= rules.temperature
    chance = logits.softmax(-1)
    mass = chance if rules.top_p is None and rules.top_k is None else _cut(chance, rules)
    if source is None:
        source = torch.arange(len(uniform), device=logits.device)
    token = _invert(mass, uniform, source)
    if rules.greedy is not None:
        greedy = rules.greedy if len(rules.greedy) == 1 else rules.greedy.index_select(0, source)
        token = torch.where(greedy, logits.argmax(-1).index_select(0, source), token)
    return token, chance.view(-1).index_select(0, source * chance.shape[1] + token).log()


def _invert(mass: Tensor, uniform: Tensor, source: Tensor) -> Tensor:
    """The first index at which the running sum of ``mass[source]`` exceeds ``uniform`` times its total.

    ``mass`` is ``[B, V]``. Two levels, blocks and then the tokens of one block: a running sum over a whole vocabulary
    is the slowest operation of a decoding step. Within a block the sums are in float64, so that a token without mass
    is never drawn.
    """
    rows, vocabulary = mass.shape
    width = max(16, int(vocabulary**0.5))
    spare = -vocabulary % width
    if spare:
        mass = torch.nn.functional.pad(mass, (0, spare))
    blocks = mass.view(-1, width)
    # A product with ones sums short rows several times faster than a reduction does.
    running = (blocks @ blocks.new_ones(width)).view(rows, -1).double().cumsum(-1).index_select(0, source)
    target = uniform * running[:, -1]
    block = (running <= target[:, None]).sum(-1)
    before = torch.where(block > 0, running.gather(1, (block - 1).clamp_min_(0)[:, None])[:, 0], 0.0)
    inside = blocks.index_select(0, source * running.shape[1] + block).double().cumsum(-1)
    # Rounding may place the target at the block's very end: stay below it, where the last positive token is.
    target = torch.minimum(target - before, inside[:, -1] * (1 - 2.0**-50))
    return block * width + (inside <= target[:, None]).sum(-1)


def _cut(mass: Tensor, rules: Rules) -> Tensor:
    """Zero what top-k, then top-p leave out."""
    ordered, index = mass.sort(dim=-1, descending=True, stable=True)
    if rules.top_k is not None:
        rank = torch.arange(mass.shape[1], device=mass.device)
        ordered = ordered.masked_fill(rank >= rules.top_k, 0.0)
    if rules.top_p is not None:
        share = ordered.double().cumsum(-1)
        before = share - ordered  # a token stays when those before it do not reach top_p
        keep = (before < rules.top_p * share[:, -1:]) | (rules.top_p >= 1)
        ordered = ordered.masked_fill(~keep, 0.0)
    return torch.zeros_like(mass).scatter_(1, index, ordered)
