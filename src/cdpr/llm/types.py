"""What every chat model speaks: token ids in, completions with token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer


class ModelFailure(Exception):
    """A model gave no answer (server gone, time-out): a failure of this request, not of the program."""


@dataclass(frozen=True)
class Sampling:
    """How a completion is drawn. ``temperature`` 0 is greedy; ``top_p`` 1 and ``top_k`` 0 cut nothing.

    ``top_k`` is applied before ``top_p``, and ``top_p`` keeps the smallest set of tokens that reaches it.
    Raises :class:`ValueError` on values outside their range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, not {self.max_tokens}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 (greedy) or positive, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], not {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (off) or positive, not {self.top_k}")


@dataclass(frozen=True)
class Completion:
    """One assistant turn.

    ``token_ids`` ends with the end-of-turn token when ``finish_reason`` is ``stop``; ``text`` leaves special
    tokens out. ``logprobs`` (one per token id, nats) are taken under the temperature-scaled softmax before
    top-p and top-k, and at temperature 1 when decoding is greedy.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True)
class Request:
    """The completions of one prompt with the indices ``samples``.

    Completion k is a function of (prompt, sampling, seed, k) alone, whatever it is asked or batched with.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int


class ChatModel(Protocol):
    """A model that completes a conversation given as token ids."""

    tokenizer: ChatTokenizer

    async def sample(
        self, prompt: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """The completions of ``prompt`` with the indices ``samples``, in their order.

        Completion k is a function of (prompt, sampling, seed, k) alone; concurrent calls may be answered together.
        """
        ...
