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

# On whose behalf a model is called. Errors, recordings and bills name it; it is never sent to the model.
SYSTEM: ContextVar[str] = ContextVar("system", default="")
"""The name of the evaluated agent, or ``judge``, ``matcher``, ...: the system that pays for the call."""
CASE: ContextVar[str] = ContextVar("case", default="")
"""The identifier of the diagnosed case. Errors about credentialed cases use a pseudonym instead."""
DATASET: ContextVar[str] = ContextVar("dataset", default="")
"""The data set of the diagnosed case."""


class ModelFailure(Exception):
    """A model gave no answer to this request; the next request may succeed."""


class ModelUnavailable(ModelFailure):
    """The model answers no request: server gone, overloaded or refusing."""


@pydantic.dataclasses.dataclass(frozen=True)
class Sampling:
    """The parameters of sampling. Temperature 0 decodes greedily; None leaves the temperature to the server.

    ``top_k`` and ``top_p`` restrict the tokens that may be sampled, ``top_k`` first; 0 and 1 restrict nothing. With
    ``first_line`` the caller uses only the first line of a completion, so a server may stop there. Raises ValueError
    for values outside their range.
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
    def from_counts(cls, prompt_tokens: Any, completion_tokens: Any) -> "Usage | None":
        """Make the usage of the counts that a server reported. Returns None where one is not an integer from 0 to
        2**53."""
        counts = prompt_tokens, completion_tokens
        return cls(*counts) if all(type(count) is int and 0 <= count < 2**53 for count in counts) else None


def repair_text(text: str) -> str:
    """Replace unpaired surrogates in a text, which UTF-8 cannot encode, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class Completion:
    """One assistant turn.

    - ``text``: without special tokens.
    - ``token_ids``: end with the end-of-turn token if ``finish_reason`` is ``stop``; empty for models that return only
      text.
    - ``logprobs``: one per token id, in nats, under the temperature-scaled softmax before top-k and top-p (of greedy
      decoding at temperature 1); empty where unknown.
    - ``finish_reason``: ``length``: cut at ``max_tokens``; ``refusal``: the model, or a filter before it, declined;
      ``too_long``: the conversation does not fit into the context; ``failed``: the server does not answer this
      conversation, although it answers others.
    - ``usage``, and ``model``, the name under which the server answered: None where unknown.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "refusal", "too_long", "failed"]
    usage: Usage | None = None
    model: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether the model answered, perhaps by refusing. False for an empty text, ``too_long`` and ``failed``: the
        same request may have another result later."""
        if self.finish_reason == "stop":
            return bool(self.text.strip())
        return self.finish_reason in ("length", "refusal")


TOO_LONG = Completion("", (), (), "too_long", Usage(0, 0))
"""The completion of a conversation that is too long for the model."""
REFUSED = Completion("", (), (), "refusal", Usage(0, 0))
"""The completion of a conversation that the server refuses as content."""
FAILED = Completion("", (), (), "failed", Usage(0, 0))
"""The completion of a conversation that the server does not answer, for a reason that is not known."""


@dataclass(frozen=True)
class Request:
    """A request for several completions of one prompt of token ids: one for each index in ``samples``.

    The index enters the random numbers: completion k depends on (prompt, sampling, seed, k) alone, not on the rest of
    the batch. With ``given`` no token is sampled: completion k is ``given[k]``, with its log-probabilities.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int
    given: tuple[tuple[int, ...], ...] = ()


class Model(Protocol):
    """A language model. Each kind overrides the methods that it supports; the others raise SettingsError.

    ``tokenizer`` is None for models that take only messages. :meth:`sample` and :meth:`chat` return one completion for
    each index in ``samples``, in their order. For models in this process and servers with seeds, completion k depends
    on (prompt, sampling, seed, k) alone. Calls raise :class:`ModelFailure` or :class:`ModelUnavailable`, whose messages
    quote no prompt and no answer.
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
        """Sample answers to a conversation. Where the model cannot answer, the completion is :data:`TOO_LONG`,
        :data:`REFUSED` or :data:`FAILED`."""
        if self.tokenizer is None:
            raise SettingsError(f"{self!r} cannot answer messages: it has no tokenizer")
        return await self.sample(self.tokenizer.encode_conversation(messages), samples, sampling, seed)

    async def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Compute the log-probabilities of the tokens of each continuation of a prompt (nats, at temperature 1).
        Nothing is sampled."""
        raise SettingsError(
            f"{self!r} cannot score given tokens; here a model in this process, vLLM, or verl with vLLM is needed"
        )

    def refresh(self) -> None:
        """Clear caches, so that later results do not depend on earlier ones even in the last bit."""
