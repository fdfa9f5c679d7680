"""From the name of a run to the agent that acts in it."""

from __future__ import annotations

from pathlib import Path

from ..environment import Agent, PromptBuilder
from ..settings import Settings
from .reference import REFERENCE_POLICIES


def build_agent(settings: Settings, run: str, policy_dir: Path | None, temperature: float, dataset: str) -> Agent:
    """The agent of a run: a reference policy by its name, else the language model in ``policy_dir``,
    in one shot for ``static``, without examinations for ``immediate``. Raises ValueError when a language
    model has no folder."""
    if run in REFERENCE_POLICIES:
        return REFERENCE_POLICIES[run](settings, dataset)
    if policy_dir is None:
        raise ValueError(
            f"run {run!r} is no reference policy ({', '.join(REFERENCE_POLICIES)}): name its policy folder"
        )
    from ..llm.device import device_of
    from ..llm.sampler import InProcessSampler
    from .policy import ImmediateAgent, PolicyAgent, StaticAgent

    sampler = InProcessSampler.from_folder(policy_dir, device=device_of(settings.policy))
    prompts = PromptBuilder(settings.environment.prompt, sampler.tokenizer, settings.policy.max_prompt_tokens)
    kind = {"static": StaticAgent, "immediate": ImmediateAgent}.get(run, PolicyAgent)
    return kind(sampler, prompts, settings.policy, temperature)
