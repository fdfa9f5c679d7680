"""Wrappers around a model: one counts its calls and tokens, one applies the request and answer format of its registry
entry."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

from ..settings import ModelEntry
from .types import Completion, Messages, Model, Sampling


def cut_answer(text: str, expressions: Sequence[str]) -> tuple[str, bool]:
    """The answer in ``text``, and whether it was marked as :attr:`~cdpr.settings.ModelEntry.answer` says: it is what
    stands behind the last match of the first expression that is found, or the group of that match. Where nothing is
    marked (a thought was cut off, a server had taken it out already) it is the whole text."""
    for expression in expressions:
        *_, last = [None, *re.finditer(expression, text)]
        if last is not None:
            answer = last[1] if last.re.groups else text[last.end() :]
            return answer.strip(), True
    return text, not expressions


@dataclass
class Meter:
    """Calls (of several answers to one question each is one) and their tokens, None as soon as somebody did not tell
    them. ``silent`` of the calls brought no word, ``too_long`` among them those whose conversation exceeded what the
    model reads; ``unmarked`` counts answers without their mark (:func:`cut_answer`)."""

    calls: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    unmarked: int = 0
    silent: int = 0
    too_long: int = 0

    def count(self, completions: Iterable[Completion]) -> None:
        """Add what was answered."""
        for completion in completions:
            self.calls += 1
            self.silent += not completion.text.strip()
            self.too_long += completion.finish_reason == "too_long"
            if completion.usage is None or self.prompt_tokens is None or self.completion_tokens is None:
                self.prompt_tokens = self.completion_tokens = None
            else:
                self.prompt_tokens += completion.usage.prompt_tokens
                self.completion_tokens += completion.usage.completion_tokens


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def metering() -> Iterator[Meter]:
    """A meter for everything that is asked inside, in tasks started there too. An inner one hides it: who judges by a
    model opens one of its own, so that the agent is not charged for being judged."""
    meter = Meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def running() -> Meter:
    """The meter that runs; one that nobody reads where none does."""
    return _METER.get() or Meter()


class MeteredModel(Model):
    """``model``, its answers counted by the meter that runs. It stands outside whatever answers in a model's place, so
    that a recorded answer counts as it did when it was paid for."""

    def __init__(self, model: Model) -> None:
        self.model, self.tokenizer = model, model.tokenizer

    def __repr__(self) -> str:
        return repr(self.model)

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        return _counted(await self.model.sample(prompt_ids, samples, sampling, seed))

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        return _counted(await self.model.chat(messages, samples, sampling, seed))

    def refresh(self) -> None:
        self.model.refresh()


def _counted(completions: list[Completion]) -> list[Completion]:
    running().count(completions)
    return completions


class RegisteredModel(Model):
    """``model`` behind messages alone, in this process as on a server, so that both read the same words: the system
    message folded where the template has none, answers drawn as the entry says and cut out of what is said."""

    def __init__(self, model: Model, entry: ModelEntry) -> None:
        self.model, self.entry = model, entry

    def __repr__(self) -> str:
        return repr(self.model)

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Answers without what was thought before them."""
        asked = fold_system(messages) if self.entry.system == "fold" else messages
        said = await self.model.chat(asked, samples, self._drawn(sampling), seed)
        return [self._answer(completion) for completion in said]

    def refresh(self) -> None:
        self.model.refresh()

    def _drawn(self, asked: Sampling) -> Sampling:
        """What is asked, changed where the entry says so; an answer gets no less room than it needs for thinking."""
        own = self.entry.sampling
        return Sampling(
            max(asked.max_tokens, own.max_tokens or 0),
            asked.temperature if own.temperature is None else own.temperature,
            asked.top_p if own.top_p is None else own.top_p,
            asked.top_k if own.top_k is None else own.top_k,
        )

    def _answer(self, completion: Completion) -> Completion:
        text, marked = cut_answer(completion.text, self.entry.answer)
        running().unmarked += not marked and completion.finish_reason != "too_long"
        return replace(completion, text=text)


def fold_system(messages: Messages) -> Messages:
    """The conversation with its system messages as the beginning of the first turn of the user."""
    told = [message["content"] for message in messages if message["role"] == "system"]
    first, *others = [message for message in messages if message["role"] != "system"]
    return [{**first, "content": "\n\n".join([*told, first["content"]])}, *others]
