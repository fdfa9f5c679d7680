"""A trajectory as verl trains on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...environment import Trajectory
from ..update import Sample


@dataclass(frozen=True)
class Tokens:
    """The first prompt, and everything after it: ``mask`` is 1 where a token was sampled, and only there stand
    ``logprobs`` and ``advantages`` (0 elsewhere). ``cut``: tokens beyond ``limit``, left out."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    advantages: list[float]
    cut: int


def tokens_of(trajectory: Trajectory, advantages: Sequence[float] | None = None, limit: int | None = None) -> Tokens:
    """The very tokens that were sampled, as the torch trainer trains on them; ``advantages`` one per decision."""
    sample = Sample.of(trajectory, advantages or [0.0] * len(trajectory.steps))
    start = len(trajectory.steps[0].turn.prompt_ids)
    response = list(sample.ids[start:])
    mask, logprobs, spread = [0] * len(response), [0.0] * len(response), [0.0] * len(response)
    for position, logprob, advantage in zip(sample.positions, sample.old_logprobs, sample.advantages, strict=True):
        mask[position - start], logprobs[position - start], spread[position - start] = 1, logprob, advantage
    end = len(response) if limit is None else min(limit, len(response))
    return Tokens(
        list(sample.ids[:start]), response[:end], mask[:end], logprobs[:end], spread[:end], len(response) - end
    )
