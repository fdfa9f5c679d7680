"""Questions of the environment to a language model: each is asked once, and its answer remembered."""

from __future__ import annotations

import asyncio

from ..llm import Model, Sampling
from ..llm.asking import SYSTEM
from ..llm.meter import metering


class Questions:
    """Questions to ``model`` below the same ``rules``, decoded greedily. ``asker`` (``judge``, ``matcher``) is who
    recordings and bills name in the place of the agent that is being worked with, whom its calls are not charged to."""

    def __init__(self, model: Model, rules: str, asker: str, max_tokens: int) -> None:
        self.model, self.rules, self.asker = model, rules, asker
        self.sampling = Sampling(max_tokens, temperature=0.0)
        self._answers: dict[str, str] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def ask(self, question: str) -> None:
        """Have the answer to a question. Raises ModelFailure where there is none; the next time it is asked again."""
        if question in self._answers:
            return
        if question not in self._under_way:
            self._under_way[question] = asyncio.ensure_future(self._ask(question))
        await asyncio.shield(self._under_way[question])

    def answer(self, question: str) -> str:
        """The answer to a question that was asked. Raises LookupError for one that was not."""
        if question not in self._answers:
            raise LookupError(f"the {self.asker} was not asked this yet: `prepare` comes before the verdict")
        return self._answers[question]

    async def _ask(self, question: str) -> None:
        """In a task, so in a context, of its own: what is set here nobody else sees."""
        SYSTEM.set(self.asker)
        messages = [{"role": "system", "content": self.rules}, {"role": "user", "content": question}]
        try:
            with metering():
                [answer] = await self.model.chat(messages, (0,), self.sampling, seed=0)
            self._answers[question] = answer.text
        finally:
            del self._under_way[question]
