"""A language model as the diagnosing agent, sequentially or in one shot."""

from __future__ import annotations

from collections.abc import Sequence

from ..environment import FORCED_PREFIX, PromptBuilder, State, Turn
from ..llm.types import ChatModel, Sampling
from ..settings.schema import Policy


class PolicyAgent:
    """pi_theta: samples one reply at a state, or several to probe its action distribution.

    ``temperature`` 0 decodes greedily.
    """

    def __init__(self, model: ChatModel, prompts: PromptBuilder, settings: Policy, temperature: float):
        self.model = model
        self.prompts = prompts
        self.settings = settings
        self.temperature = temperature

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """One reply."""
        return (await self.sample(state, (0,), forced, seed))[0]

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        """Independent replies at one state, by their numbers: reply k of a seed is always the same."""
        prompt = self.prompts.prompt_ids(state, forced)
        used = len(prompt) - len(self.prompts.context_ids(State(state.case)))
        room = max(1, self.settings.max_response_tokens - used)
        return await self._complete(prompt, numbers, min(self.settings.max_turn_tokens, room), forced, seed)

    async def _complete(
        self, prompt: tuple[int, ...], numbers: Sequence[int], max_tokens: int, forced: bool, seed: int
    ) -> list[Turn]:
        completions = await self.model.sample(prompt, numbers, Sampling(max_tokens, self.temperature), seed)
        prefix = FORCED_PREFIX[self.prompts.settings.style] if forced else ""
        return [Turn(prefix + c.text, prompt, c.token_ids, c.logprobs) for c in completions]


class ImmediateAgent(PolicyAgent):
    """Diagnoses from the presentation alone: what the policy is worth when it never tests."""

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """The diagnosis."""
        return (await self.sample(state, (0,), True, seed))[0]


class StaticAgent(PolicyAgent):
    """Static diagnosis: sees the whole record at once and diagnoses (paper, "Dynamic vs. Static Diagnosis")."""

    whole_record = True  # its cost is that of every examination of the record

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """The diagnosis."""
        prompt = self.prompts.static_ids(state.case)
        return (await self._complete(prompt, (0,), self.settings.max_turn_tokens, True, seed))[0]
