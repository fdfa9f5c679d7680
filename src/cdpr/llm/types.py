"""What every language model speaks: token ids or messages in, completions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from ..settings import SettingsError

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer

Messages = Sequence[Mapping[str, str]]
"""A conversation: ``role`` (system, user, assistant) and ``content`` of each message."""


class ModelFailure(Exception):
    """A model gave no answer (server gone, time-out): a failure of this request, not of the program."""


class ModelUnavailable(ModelFailure):
    """The model answers nobody: server gone, overloaded or refusing. The next request will fare no better."""


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
class Usage:
    """Tokens of one call, as who answered it counts (and charges) them."""

    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Completion:
    """One assistant turn.

    ``token_ids`` ends with the end-of-turn token when ``finish_reason`` is ``stop``, and is empty where a model tells
    only text; ``text`` leaves special tokens out. ``logprobs`` (one per token id, nats; empty where they are not told)
    are taken under the temperature-scaled softmax before top-p and top-k, and at temperature 1 when decoding is greedy.
    ``refusal`` is the end of an answer that the model, or a filter before it, would not give; ``too_long`` says that a
    conversation and the room for its answer exceed what the model reads, so that it was not asked. ``usage`` and
    ``model``, what a server calls the model that answered, are None where nobody told it.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "refusal", "too_long"]
    usage: Usage | None = None
    model: str | None = None

    @property
    def answered(self) -> bool:
        """Whether this is an answer: words, or a reason for their lack that lies in the question. An end without a word
        may have been a hiccup, and what is too long for a server may fit the next one."""
        return self.finish_reason != "too_long" and (self.finish_reason != "stop" or bool(self.text.strip()))


UNREAD = Completion("", (), (), "too_long", Usage(0, 0))
"""What a model gives for a conversation that is too long for it."""


@dataclass(frozen=True)
class Request:
    """The completions of one prompt with the indices ``samples``.

    Completion k is a function of (prompt, sampling, seed, k) alone, whatever it is asked or batched with.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int


class Model(Protocol):
    """A language model. Each kind overrides what it can do; asking for the rest raises SettingsError.

    ``tokenizer`` is None where the model takes messages only. The completions asked for by their indices ``samples``
    come in that order, and concurrent calls may be answered together. As far as the model is of this process or
    takes seeds, completion k is a function of (prompt, sampling, seed, k) alone. Both methods raise
    :class:`ModelFailure` where there is no answer to this request and :class:`ModelUnavailable` where there is none
    to any; messages of errors never quote question or answer.
    """

    tokenizer: ChatTokenizer | None = None

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """Completions of a prompt of token ids."""
        raise SettingsError(
            f"{self!r} takes messages only; here a model that takes tokens is needed (a folder, or vLLM)"
        )

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Answers to a conversation; :data:`UNREAD` for one that is too long."""
        if self.tokenizer is None:
            raise SettingsError(f"{self!r} cannot answer messages: it has no tokenizer")
        return await self.sample(self.tokenizer.opening(messages), samples, sampling, seed)

    def refresh(self) -> None:
        """Forget what was kept to be quick: what comes after shall not depend on it, to the last bit."""
        return None


SYSTEM: ContextVar[str] = ContextVar("system", default="")
"""The agent that is evaluated, or what else pays for the call."""
CASE: ContextVar[str] = ContextVar("case", default="")
"""The number of the case that it works up. Errors about credentialed cases name a pseudonym in its place."""
