"""The interface of all language models: token ids or messages in, completions out."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from ..settings import SettingsError

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer

Messages = Sequence[Mapping[str, str]]
"""A conversation: ``role`` (system, user, assistant) and ``content`` of each message."""

# Context variables for errors, recordings and bills; never sent to the model.
SYSTEM: ContextVar[str] = ContextVar("system", default="")
"""The calling system: the evaluated agent, or another payer of the call."""
CASE: ContextVar[str] = ContextVar("case", default="")
"""The number of its case. Errors about credentialed cases use a pseudonym instead."""
DATASET: ContextVar[str] = ContextVar("dataset", default="")
"""The data set of its case."""


class ModelFailure(Exception):
    """A model gave no answer to this request; the next request may succeed."""


class ModelUnavailable(ModelFailure):
    """The model answers no request: server gone, overloaded or refusing."""


@pydantic.dataclasses.dataclass(frozen=True)
class Sampling:
    """The parameters of sampling. ``temperature`` 0 is greedy, None the server's own; ``top_p`` 1 and ``top_k`` 0 cut
    nothing.

    ``top_k`` is applied before ``top_p``, which keeps the smallest set of tokens that reaches it. With ``first_line``
    only the first line of the completion is used, so a server may stop there. Raises :class:`ValueError` for values
    outside their range.
    """

    max_tokens: PositiveInt
    temperature: NonNegativeFloat | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: NonNegativeInt = 0
    first_line: bool = False


TokenCount = Annotated[int, Field(ge=0, lt=2**53, strict=True)]


@dataclass(frozen=True)
class Usage:
    """Tokens of one call, as the model's server counts and charges them."""

    prompt_tokens: TokenCount
    completion_tokens: TokenCount

    @classmethod
    def of(cls, *counts: Any) -> "Usage | None":
        """The usage with these counts of prompt and completion tokens; None where one is no possible count."""
        return cls(*counts) if all(type(n) is int and 0 <= n < 2**53 for n in counts) else None


def clean_text(text: str) -> str:
    """Replace unpaired surrogates in a text, which UTF-8 cannot encode, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class Completion:
    """One assistant turn.

    ``token_ids`` ends with the end-of-turn token when ``finish_reason`` is ``stop``, and is empty for models that
    return only text; ``text`` leaves special tokens out. ``logprobs`` (one per token id, nats; empty where unknown) are
    taken under the temperature-scaled softmax before top-p and top-k, and at temperature 1 when decoding is greedy.
    ``refusal``: the model, or a filter before it, declined; ``too_long``: conversation and answer exceed what the model
    reads; ``failed``: the server does not answer this conversation, although it answers others. ``usage`` and ``model``
    (the server's name of the model) are None where unknown.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "refusal", "too_long", "failed"]
    usage: Usage | None = None
    model: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether this is an answer, perhaps a refusal. False for an empty text and for a conversation that the server
        cannot answer: the same request may then have another result later."""
        return self.finish_reason in ("length", "refusal") or (self.finish_reason == "stop" and bool(self.text.strip()))


UNREAD = Completion("", (), (), "too_long", Usage(0, 0))
"""The result for a conversation that is too long for the model."""
REFUSED = Completion("", (), (), "refusal", Usage(0, 0))
"""The result for a conversation that the server refuses as content."""
FAILED = Completion("", (), (), "failed", Usage(0, 0))
"""The result for a conversation that the server does not answer, for a reason that is not known."""


def continuation_logprobs(
    continuation: Sequence[int], start: int, ids: Sequence[int], logprobs: Sequence[float]
) -> tuple[float, ...]:
    """Select the log-probabilities of a ``continuation``'s tokens, behind a prompt of ``start`` tokens, from the answer
    of a server.

    ``ids`` and ``logprobs`` are the server's rows for all tokens of prompt and continuation but the first; verl's
    server adds one row. Raises ModelFailure where the server scored other tokens.
    """
    rows = slice(start - 1, start - 1 + len(continuation))
    if tuple(ids[rows]) != tuple(continuation):
        raise ModelFailure("a server scored other tokens than those of the request; its version is unknown to this one")
    return tuple(logprobs[rows])


@dataclass(frozen=True)
class Request:
    """A request for completions of one prompt, one for each of the indices ``samples``.

    Completion k depends on (prompt, sampling, seed, k) alone, not on the rest of the batch. With ``given`` no token is
    sampled: completion k is ``given[k]``, with its log-probabilities.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int
    given: tuple[tuple[int, ...], ...] = ()


class Model(Protocol):
    """A language model. Each kind overrides the methods that it supports; the others raise SettingsError.

    ``tokenizer`` is None for models that take only messages. There is one completion for each index of ``samples``, in
    their order; for models in this process and servers with seeds, completion k depends on (prompt, sampling, seed, k)
    alone. Calls raise :class:`ModelFailure` or :class:`ModelUnavailable`, whose messages quote no prompt and no answer.
    """

    tokenizer: "ChatTokenizer | None" = None

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """Sample completions of a prompt of token ids."""
        raise SettingsError(
            f"{self!r} takes messages only; here a model that takes tokens is needed (a folder, or vLLM)"
        )

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample answers to a conversation; one that gets no answer has :data:`UNREAD`, :data:`REFUSED` or
        :data:`FAILED`."""
        if self.tokenizer is None:
            raise SettingsError(f"{self!r} cannot answer messages: it has no tokenizer")
        return await self.sample(self.tokenizer.opening(messages), samples, sampling, seed)

    async def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Compute the log-probabilities of the tokens of each continuation of a prompt (nats, at temperature 1).
        Nothing is sampled."""
        raise SettingsError(
            f"{self!r} cannot score given tokens; here a model in this process, vLLM, or verl with vLLM is needed"
        )

    def refresh(self) -> None:
        """Clear caches, so that later results do not depend on earlier ones even in the last bit."""
