"""What an agent asks of its model, workup by workup: calls and tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from .types import Completion, Messages, Model, Sampling


@dataclass
class Meter:
    """Calls (of several answers to one question each is one) and their tokens, None as soon as somebody did not tell
    them. ``silent`` of the calls brought no word, ``too_long`` among them those whose conversation exceeded what the
    model reads; ``unmarked`` counts answers without their mark (:func:`~.answers.cut_answer`)."""

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
