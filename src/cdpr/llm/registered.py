"""A model asked as its entry in the registry says, wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..settings import ModelEntry
from .answers import cut_answer
from .meter import running
from .types import Completion, Messages, Model, Sampling


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
