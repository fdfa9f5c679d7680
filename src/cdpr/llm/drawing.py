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


def uniforms(seeds: Sequence[int], samples: Sequence[int], positions: int) -> np.ndarray:
    """Uniform numbers in [0, 1), float64 ``[rows, positions]``, from 64-bit seeds and sample indices (splitmix64)."""
    with np.errstate(over="ignore"):
        seed = np.array([value % 2**64 for value in seeds], dtype=np.uint64)
        sample = np.array(samples, dtype=np.uint64)
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
    """The sampling parameters of the rows of a batch, as tensors; None where no row needs it."""

    temperature: Tensor | None  # [B, 1], 1 for greedy rows
    greedy: Tensor | None  # [B] bool
    top_p: Tensor | None  # [B, 1]
    top_k: Tensor | None  # [B, 1], the vocabulary's size when off

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

    def select(self, rows: Tensor) -> Rules:
        """The rules of the given rows."""
        return Rules(*(None if t is None else t.index_select(0, rows) for t in vars(self).values()))


def draw(logits: Tensor, rules: Rules, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """One token per row: int64 ``[B]``, with float32 log-probabilities ``[B]``.

    ``logits`` is float32 ``[B, V]`` (overwritten), ``uniform`` float64 ``[B]``. The log-probability is that of the
    temperature-scaled softmax before top-k and top-p; greedy rows take the first largest logit, at temperature 1.
    """
    if rules.temperature is not None:
        logits /= rules.temperature
    best = None if rules.greedy is None else logits.argmax(-1)
    shifted = logits.sub_(logits.amax(-1, keepdim=True))
    mass = shifted.exp()
    log_total = mass.sum(-1).log()
    if rules.top_p is not None or rules.top_k is not None:
        mass = _cut(mass, rules)
    token = _invert(mass, uniform)
    if best is not None:
        token = torch.where(rules.greedy, best, token)
    return token, shifted.gather(1, token[:, None])[:, 0] - log_total


def _invert(mass: Tensor, uniform: Tensor) -> Tensor:
    """The first index at which the running sum of ``mass`` ``[B, V]`` exceeds ``uniform`` times its total.

    Two levels, blocks and then the tokens of one block: a running sum over a whole vocabulary is the slowest
    operation of a decoding step. Sums of a few dozen terms in float64 keep the inverse exact.
    """
    rows, vocabulary = mass.shape
    width = max(16, int(vocabulary**0.5))
    spare = -vocabulary % width
    if spare:
        mass = torch.nn.functional.pad(mass, (0, spare))
    blocks = mass.view(rows, -1, width)
    running = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    target = uniform * running[:, -1]
    block = (running <= target[:, None]).sum(-1, keepdim=True)
    before = torch.where(block > 0, running.gather(1, (block - 1).clamp_min(0)), 0.0)[:, 0]
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, width))[:, 0].double().cumsum(-1)
    # Rounding may place the target at the block's very end: stay below it, where the last positive token is.
    target = torch.minimum(target - before, inside[:, -1] * (1 - 2.0**-50))
    return block[:, 0] * width + (inside <= target[:, None]).sum(-1)


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
