"""A trajectory as verl trains on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....environment import Trajectory
from ...torch.update import Sample


@dataclass(frozen=True)
class Tokens:
    """The first prompt, and everything after it: ``mask`` is 1 where a token was sampled, and only there stand
    ``logprobs``, ``advantages`` and ``weights`` (0 elsewhere). ``cut``: tokens beyond ``limit``, left out."""

    prompt: list[int]
    response: list[int]
    mask: list[int]
    logprobs: list[float]
    advantages: list[float]
    weights: list[float]
    cut: int


def tokens_of(
    trajectory: Trajectory,
    advantages: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    limit: int | None = None,
) -> Tokens:
    """The very tokens that were sampled, as the torch trainer trains on them; ``advantages`` and ``weights`` one per
    decision."""
    sample = Sample.of(trajectory, advantages or [0.0] * len(trajectory.steps), weights)
    start = len(trajectory.steps[0].turn.prompt_ids)
    response = sample.ids[start:]
    end = len(response) if limit is None else min(limit, len(response))
    spread = {
        position - start: values
        for position, *values in zip(
            sample.positions, sample.old_logprobs, sample.advantages, sample.weights, strict=True
        )
    }
    rows = [(1, *spread[k]) if k in spread else (0, 0.0, 0.0, 0.0) for k in range(end)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return Tokens(list(sample.ids[:start]), list(response[:end]), *columns, len(response) - end)
