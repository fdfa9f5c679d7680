"""One run of reinforcement learning, whoever trains: its cases, their order, the seeds of its episodes."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, PromptBuilder
from ..environment.opening import check_judges, open_environment
from ..llm.guard import disclosed
from ..llm.tokenizer import ChatTokenizer
from ..seeding import derive_seed
from ..settings import Settings

if TYPE_CHECKING:
    from ..llm import Model

VALIDATION_SEED = 0


class TrainingRun:
    """``settings`` are canonical; ``policy`` is the folder of the initial policy, ``seed`` that of the run.

    Every random draw comes from a seed derived from what is drawn, so an interrupted run ends where an undisturbed one
    ends. Raises ValueError where too few cases are left for a batch.
    """

    def __init__(self, settings: Settings, cases: Iterable[CaseRecord], policy: Path, seed: int):
        self.settings, self.policy, self.seed = settings, policy, seed
        self.train, self.validation = select_cases(settings, cases)
        self.batch_size = settings.training.prompts_per_batch
        self._per_epoch = len(self.train) // self.batch_size
        self.credentialed = any(case.credentialed for case in (*self.train, *self.validation))
        self.tokenizer = ChatTokenizer(policy, settings.policy.chat_template_kwargs)
        self.prompts = PromptBuilder(settings.environment.prompt, self.tokenizer, settings.policy.max_prompt_tokens)

    @functools.cached_property
    def environment(self) -> DiagnosticEnvironment:
        """With the judge and matcher of evaluations, opened when it is first asked for."""
        return open_environment(self.settings, credentialed=self.credentialed)

    def disclosed(self) -> dict[str, str]:
        """What ``run.json`` says of credentialed text that judge and matcher get. Raises SettingsError and
        GovernanceError where they cannot be asked."""
        dataset = self.train[0].dataset
        return disclosed(check_judges(self.settings, dataset, credentialed=self.credentialed))

    @property
    def steps(self) -> int:
        """Iterations of the run."""
        return self.settings.training.steps or self.settings.training.epochs * self._per_epoch

    def batch(self, step: int) -> list[int]:
        """Places of the training cases of an iteration: consecutive slices of a fresh permutation every epoch, the
        remainder of an epoch left out."""
        epoch, position = divmod(step, self._per_epoch)
        order = _permutation(len(self.train), derive_seed(self.seed, "order", epoch))
        return order[position * self.batch_size : (position + 1) * self.batch_size]

    def order(self) -> list[int]:
        """Places of the training cases of all iterations, one after another."""
        return [place for step in range(self.steps) for place in self.batch(step)]

    def episode_seed(self, case: CaseRecord, step: int, number: int) -> int:
        """Seed of workup ``number`` of a training case in an iteration."""
        return derive_seed(self.seed, "rollout", step, case.note_id, number)

    def agent(self, model: Model, temperature: float | None = None) -> PolicyAgent:
        """A model as the acting policy, by default at the temperature of rollouts."""
        temperature = self.settings.training.temperature if temperature is None else temperature
        return PolicyAgent(model, self.prompts, self.settings.policy, temperature)


@functools.lru_cache(maxsize=4)
def _permutation(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def select_cases(settings: Settings, cases: Iterable[CaseRecord]) -> tuple[list[CaseRecord], list[CaseRecord]]:
    """Cases that reinforcement learning visits, and validation cases; those of other splits are let go as they pass.

    The first are the end of the training split, disjoint from those whose workups were demonstrated when
    the policy was warm-started. Raises ValueError when too few are left for a batch.
    """
    splits: dict[str, list[CaseRecord]] = {"train": [], "validation": []}
    for case in cases:
        if case.split in splits:
            splits[case.split].append(case)
    demonstrated = settings.warm_start.cases if settings.policy.warm_started else 0
    train = splits["train"][demonstrated:]
    chosen = train[-settings.training.cases :] if settings.training.cases else train
    if len(chosen) < settings.training.prompts_per_batch:
        raise ValueError(
            f"{len(chosen)} training cases are left for reinforcement learning, fewer than one batch of "
            f"{settings.training.prompts_per_batch}: raise data.train_cases or lower warm_start.cases"
        )
    return chosen, splits["validation"]
