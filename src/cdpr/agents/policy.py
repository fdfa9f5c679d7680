"""Agents that diagnose by a language model, step by step or in a single reply."""

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ..environment import FORCED_PREFIX, FinalDiagnosis, Policy, PromptBuilder, State, Turn, parse_action
from ..llm import Model, ModelSpec, Sampling, open_model
from ..llm.agent_model import current_meter
from ..settings import Settings, schema


def longest_sequence(settings: Settings) -> int:
    """Compute how many tokens a prompt and its reply can have together at most, for all agents of this module."""
    policy = settings.policy
    # ``max_response_tokens`` may be exceeded by the last reply and the observation after it. A token of an observation
    # is assumed to have at least two characters.
    excess = policy.max_turn_tokens + settings.environment.prompt.max_observation_chars // 2
    return policy.max_prompt_tokens + policy.max_response_tokens + excess


class PolicyAgent(Policy):
    """The policy pi_theta: an agent that acts by a language model. ``temperature`` 0 decodes greedily.

    A model with a tokenizer gets token prompts, another one chat messages. Models of the registry were not trained on
    our prompts: they get the paper's full prompt, and can write longer replies. All methods raise ModelFailure where
    the model gives no answer. Source: paper, section "Problem Formulation".
    """

    def __init__(self, model: Model, prompts: PromptBuilder, settings: schema.Policy, temperature: float):
        """Keep the ``model``, the builder of its ``prompts``, the section ``policy`` of the settings, and the sampling
        ``temperature``."""
        self.model, self.prompts, self.settings, self.temperature = model, prompts, settings, temperature

    @classmethod
    def build(cls, settings: Settings, spec: ModelSpec, temperature: float, dataset: str = "") -> Self:
        """Build the agent and open the model of ``spec``. A model of the registry (``spec.entry``) gets the paper's
        full prompt and the longer replies of ``evaluation.max_turn_tokens``. ``dataset`` is not used."""
        model = open_model(spec)
        prompt, policy = settings.environment.prompt, settings.policy
        if spec.entry is not None:
            prompt = prompt.model_copy(update={"style": "full"})
            policy = policy.model_copy(update={"max_turn_tokens": settings.evaluation.max_turn_tokens})
        return cls(model, PromptBuilder(prompt, model.tokenizer, policy.max_prompt_tokens), policy, temperature)

    @classmethod
    def load(cls, folder: Path, settings: Settings | None = None, temperature: float = 0.0) -> Self:
        """Open the policy in a Hugging Face folder as an agent, by default under the default settings; ``temperature``
        0 decodes greedily. Raises SettingsError for a folder without a model."""
        settings = settings or Settings()
        return cls.build(settings, ModelSpec.of_folder(folder, settings.policy), temperature)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Sample one reply at a state. It has to be a diagnosis if ``forced``, and always for an agent that sees the
        whole record."""
        [reply] = await self.sample(state, (0,), forced or self.whole_record, seed, first_line=False)
        return reply

    async def sample(
        self, state: State, numbers: Sequence[int], forced: bool, seed: int, first_line: bool = True
    ) -> list[Turn]:
        """Sample independent replies at a state, one for each index in ``numbers``, in their order. The reply with
        index k is the same for equal seeds. A model with a tokenizer gets a token prompt, and its replies have token
        ids and log-probabilities; another model gets chat messages. With ``forced`` a token prompt ends with the words
        before a diagnosis, so that each reply is one; chat messages only demand it. A forced reply can stop after its
        ``first_line``, the diagnosis."""
        sampling = Sampling(self.settings.max_turn_tokens, self.temperature, first_line=forced and first_line)
        if self.model.tokenizer is None:
            messages = self.prompts.messages(state, forced, self.whole_record)
            completions = await self.model.chat(messages, numbers, sampling, seed)
            return [Turn(completion.text) for completion in completions]
        prompt = self.prompts.prompt_ids(state, forced, self.whole_record)
        if self.prompts.is_cut(state.case, self.whole_record):
            current_meter().cut += len(numbers)  # counts the calls whose prompt was shortened
        prefix = self._diagnosis_prefix if forced else ""  # the prompt ends with these words, so the reply lacks them
        completions = await self.model.sample(prompt, numbers, sampling, seed)
        return [Turn(prefix + c.text, prompt, c.token_ids, c.logprobs) for c in completions]

    async def score_diagnoses(self, state: State, names: Sequence[str], forced: bool) -> list[Turn]:
        """Score diagnoses at a state. Returns for each of ``names`` the reply that gives this diagnosis, with its
        end-of-turn token and the log-probability of every token (in nats, at temperature 1). With ``forced`` the prompt
        already ends with the words before the name, such as "FINAL_DIAGNOSIS:", and only the rest is scored. Raises
        SettingsError for a model that cannot score."""
        return await self.score_replies(state, [f"{self._diagnosis_prefix} {name}" for name in names], forced)

    async def score_replies(self, state: State, texts: Sequence[str], forced: bool) -> list[Turn]:
        """Score the replies ``texts`` at a state: returns each with its tokens, an end-of-turn token and the
        log-probability of every token (in nats, at temperature 1). With ``forced`` the prompt already ends with the
        words before a diagnosis, and a reply is scored without them. Raises SettingsError for a model that cannot
        score."""
        prompt, tokenizer = self.prompts.prompt_ids(state, forced), self.prompts.tokenizer
        prefix = self._diagnosis_prefix if forced else ""  # the prompt ends with these words, so they are not scored
        replies = [(*tokenizer.encode(text.removeprefix(prefix)), tokenizer.end_of_turn) for text in texts]
        logprobs = await self.model.score(prompt, replies)
        scored = zip(texts, replies, logprobs, strict=True)
        return [Turn(text, prompt, token_ids, values) for text, token_ids, values in scored]

    def name_start(self, turn: Turn) -> int:
        """Find the index of the token of the reply in which the name of the disease begins. It is 0 where the prompt
        already ends with the words before the name, and the number of tokens where the reply is no diagnosis."""
        prefix = self.prompts.forced_prefix_ids
        if turn.prompt_ids[-len(prefix) :] == prefix:
            return 0
        action = parse_action(turn.text)  # a search for the words before the name would fail: models vary them
        if not isinstance(action, FinalDiagnosis):
            return len(turn.token_ids)
        start = turn.text.rfind(action.text)  # of the name, in characters
        ids, decode = turn.token_ids, self.prompts.tokenizer.decode
        # The first token k such that the text of tokens 0 to k reaches into the name, found by bisection.
        return bisect.bisect_left(range(len(ids)), True, key=lambda k: len(decode(ids[: k + 1])) > start)

    @property
    def _diagnosis_prefix(self) -> str:
        """The first words of a diagnosis, such as "FINAL_DIAGNOSIS:" in the compact style."""
        return FORCED_PREFIX[self.prompts.settings.style]

    def must_diagnose(self, state: State) -> bool:
        """Whether ``policy.max_response_tokens`` leaves room for less than two more replies, so that the next one must
        be a diagnosis. Always False for a model without a tokenizer, whose tokens cannot be counted."""
        if self.model.tokenizer is None:
            return False
        room = self.settings.max_response_tokens - self.prompts.response_length(state)
        return room < 2 * self.settings.max_turn_tokens

    def refresh(self) -> None:
        """Clear the caches of the model."""
        self.model.refresh()


class ImmediateAgent(PolicyAgent):
    """An agent that diagnoses at once, from the presentation alone."""

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Sample one reply, which has to be a diagnosis."""
        return await super().act(state, True, seed)


class StaticAgent(PolicyAgent):
    """An agent that sees the whole record at once and diagnoses (paper, "Dynamic vs. Static Diagnosis")."""

    whole_record = True  # so its episode costs what all examinations of the record cost
