"""The interface of all language models: token ids or messages in, completions out."""

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import pydantic
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from ..settings import SettingsError

if TYPE_CHECKING:
    from .tokenizer import ChatTokenizer

# The token ids of a text, in their order.
Ids = Sequence[int]
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
    """The model answers no request: its server is gone, overloaded or refuses all."""


@pydantic.dataclasses.dataclass(frozen=True)
class Sampling:
    """The parameters of sampling.

    - ``max_tokens``: most tokens of a completion.
    - ``temperature``: 0 decodes greedily; None leaves it to the server.
    - ``top_k``, ``top_p``: restrict the tokens that can be sampled, ``top_k`` first; 0 and 1 restrict nothing.
    - ``first_line``: the caller uses only the first line of a completion, so a server is free to stop there.

    Raises ValueError for values outside their range.
    """

    max_tokens: PositiveInt
    temperature: NonNegativeFloat | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: NonNegativeInt = 0
    first_line: bool = False


@dataclass(frozen=True)
class Usage:
    """The tokens of one call, as the model's server counts and charges them. Counts of a server are checked by
    :meth:`from_counts`."""

    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def from_counts(cls, prompt_tokens: Any, completion_tokens: Any) -> "Usage | None":
        """Make the usage from the counts that a server reported. Returns None where a count is not a plausible one: no
        integer, negative, or 2**53 or more."""
        for count in (prompt_tokens, completion_tokens):
            # `type` instead of isinstance, because True is an instance of int. From 2**53 on floats, and so the numbers
            # of many JSON programs, are no exact integers.
            if type(count) is not int or not 0 <= count < 2**53:
                return None
        return cls(prompt_tokens, completion_tokens)


def repair_text(text: str) -> str:
    """Replace unpaired surrogates in a text by U+FFFD, because UTF-8 cannot encode them. A pair of surrogates becomes
    the one character that it encodes in UTF-16."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class Completion:
    """A reply of a model: one assistant turn.

    - ``text``: the reply without special tokens.
    - ``token_ids``: end with the end-of-turn token if ``finish_reason`` is ``stop``; empty for models that return only
      text.
    - ``logprobs``: one per token id, in nats, under the temperature-scaled softmax before top-k and top-p (for greedy
      decoding at temperature 1); empty where unknown.
    - ``finish_reason``: why the reply ended.

      - ``stop``: the model ended its turn.
      - ``length``: the reply was cut at ``max_tokens``.
      - ``refusal``: the model, or a filter before it, declined.
      - ``too_long``: the conversation does not fit into the context.
      - ``failed``: the server does not answer this conversation, although it answers others.

    - ``usage``: the tokens that are charged; ``model``: the name under which the server answered. Both are None where
      unknown.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "refusal", "too_long", "failed"]
    usage: Usage | None = None
    model: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether the completion is an answer of the model, which is final.

        True for ``refusal`` and ``length``, and for ``stop`` with a text. False for ``too_long`` and ``failed``, and
        for ``stop`` with an empty text: there the same request may have another result later.
        """
        if self.finish_reason == "stop":
            return bool(self.text.strip())
        return self.finish_reason in ("length", "refusal")


def unanswered(reason: Literal["refusal", "too_long", "failed"]) -> Completion:
    """Make the completion of a conversation that the model does not answer for this ``reason``, and does not charge."""
    return Completion("", (), (), reason, Usage(0, 0))


@dataclass(frozen=True)
class Request:
    """A request for several completions of one prompt (token ids): one for each index in ``samples``.

    The index enters the random numbers: completion k depends on (prompt, sampling, seed, k) alone, not on the rest of
    the batch. With ``given`` no token is sampled: completion k is ``given[k]``, with the log-probabilities of its
    tokens.
    """

    prompt: tuple[int, ...]
    samples: tuple[int, ...]
    sampling: Sampling
    seed: int
    given: tuple[tuple[int, ...], ...] = ()


class Model(Protocol):
    """A language model. Each kind of model overrides the methods that it supports; the others raise SettingsError.

    ``tokenizer`` is None for models that take only messages. :meth:`sample` and :meth:`chat` return one completion for
    each index in ``samples``, in their order. For models in this process and servers with seeds, completion k depends
    on (prompt, sampling, seed, k) alone. Calls raise :class:`ModelFailure` or :class:`ModelUnavailable`, whose messages
    quote no prompt and no answer.
    """

    tokenizer: "ChatTokenizer | None" = None

    async def sample(self, prompt_ids: Ids, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one completion of the prompt ``prompt_ids`` (token ids) for each index in ``samples``. Raises
        SettingsError for a model that takes only messages."""
        need = "here a model that takes tokens is needed (a folder, or vLLM)"
        raise SettingsError(f"{self!r} takes messages only; {need}")

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one answer to a conversation for each index in ``samples``. A completion is :func:`unanswered`
        where the model cannot answer this conversation. Raises SettingsError for a model without a tokenizer that does
        not override this method."""
        if self.tokenizer is None:
            raise SettingsError(f"{self!r} cannot answer messages: it has no tokenizer")
        return await self.sample(self.tokenizer.encode_conversation(messages), samples, sampling, seed)

    async def score(self, prompt_ids: Ids, continuations: Sequence[Ids]) -> list[tuple[float, ...]]:
        """Compute the log-probabilities (nats, at temperature 1) of the tokens of each continuation of a prompt.
        Returns one tuple per continuation; nothing is sampled. Raises SettingsError for a model that cannot do this,
        and ModelFailure where a server scored other tokens."""
        sequences = [[*prompt_ids, *continuation] for continuation in continuations]
        results = []
        for sequence, scored in zip(sequences, await asyncio.gather(*map(self.score_tokens, sequences)), strict=True):
            ids, logprobs = scored
            stop = len(sequence) - 1  # the scores begin with the second token
            if list(ids[:stop]) != sequence[1:]:
                raise ModelFailure("a server scored other tokens than those of the request; its version is not known")
            results.append(tuple(logprobs[len(prompt_ids) - 1 : stop]))
        return results

    async def score_tokens(self, ids: list[int]) -> tuple[Ids, Sequence[float]]:
        """Compute the log-probabilities of the tokens ``ids`` but the first, each after those before it, on a server.
        Returns the token ids that the server scored, and their log-probabilities; both may have further entries at the
        end."""
        need = "here a model in this process, vLLM, or verl with vLLM is needed"
        raise SettingsError(f"{self!r} cannot score given tokens; {need}")

    def refresh(self) -> None:
        """Clear the caches of the model. Without this the last digits of a result may depend on earlier requests, whose
        cached numbers were rounded in other batches. A model without caches does nothing."""
        return None
