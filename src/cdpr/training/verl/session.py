"""One training run as every process of it sees it: read from a small file whose path travels in verl's configuration.

No text of a case travels with it: a process reads the cases from where they lie, and rows of a batch name their place.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...cases import CaseRecord, iterate_records
from ...environment import DiagnosticEnvironment, PromptBuilder
from ...files import replacing
from ...llm.tokenizer import ChatTokenizer
from ...seeding import derive_seed
from ...settings import Settings, parse_settings
from ..trainer import select_cases


@dataclass(frozen=True)
class Session:
    """Settings (canonical), cases, initial policy, folder of interruptible work, and seed of a run."""

    settings: Settings
    cases: Path
    policy: Path
    state: Path
    seed: int

    def write(self, path: Path) -> None:
        """Write the file that :func:`read_session` reads."""
        content = {"settings": self.settings.model_dump(mode="json"), "seed": self.seed}
        content |= {name: str(getattr(self, name).resolve()) for name in ("cases", "policy", "state")}
        with replacing(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")

    @functools.cached_property
    def tokenizer(self) -> ChatTokenizer:
        """Of the policy."""
        return ChatTokenizer(self.policy)

    @functools.cached_property
    def prompts(self) -> PromptBuilder:
        """How states read."""
        return PromptBuilder(self.settings.environment.prompt, self.tokenizer, self.settings.policy.max_prompt_tokens)

    @functools.cached_property
    def environment(self) -> DiagnosticEnvironment:
        """The decision process."""
        return DiagnosticEnvironment(self.settings.environment)

    @functools.cached_property
    def parts(self) -> dict[str, Sequence[CaseRecord]]:
        """The cases of reinforcement learning by the name of their split."""
        train, validation = select_cases(self.settings, iterate_records(self.cases))
        return {"train": train, "validation": validation}

    @property
    def steps(self) -> int:
        """Iterations of the run."""
        plan = self.settings.training
        return plan.steps or plan.epochs * (len(self.parts["train"]) // plan.prompts_per_batch)

    def order(self) -> list[int]:
        """The training cases of all iterations one after another, by place: consecutive slices of a fresh permutation
        every epoch, the remainder of an epoch left out, as in the torch trainer."""
        size, places = self.settings.training.prompts_per_batch, range(len(self.parts["train"]))
        usable = len(places) - len(places) % size
        found: list[int] = []
        for epoch in range(-(-self.steps * size // usable)):
            order = list(places)
            random.Random(derive_seed(self.seed, "order", epoch)).shuffle(order)
            found += order[:usable]
        return found[: self.steps * size]

    def seed_of(self, part: str, case: CaseRecord, iteration: int, number: int) -> int:
        """Seed of one episode, the same as in the torch trainer."""
        if part == "validation":
            return derive_seed(0, "case", case.note_id)
        return derive_seed(self.seed, "rollout", iteration, case.note_id, number)


@functools.lru_cache(maxsize=4)
def read_session(path: str) -> Session:
    """The run described in a file; one object per process, so that cases and prompts are read once."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    settings = parse_settings(content["settings"], path)
    return Session(settings, *(Path(content[name]) for name in ("cases", "policy", "state")), content["seed"])
