"""One training run as every process of it sees it: read from a small file whose path travels in verl's configuration.

No text of a case travels with it: a process reads the cases from where they lie, and rows of a batch name their place.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...agents.policy import PolicyAgent
from ...cases import iterate_records
from ...files import write_text
from ...llm import ModelSpec, open_model
from ...settings import Settings, SettingsError, parse_settings
from ..algorithm import Context
from ..training_run import TrainingRun

ROWS = "verl.metrics.jsonl"
"""Rows of metrics on their way from verl's trainer to the stage, in the folder of the run's state."""


@dataclass(frozen=True)
class Session:
    """Settings (canonical), cases, initial policy, folder of interruptible work, and seed of a run."""

    settings: Settings
    cases: Path
    policy: Path
    state: Path
    seed: int

    def write(self, path: Path) -> None:
        content = {"settings": self.settings.model_dump(mode="json"), "seed": self.seed}
        content |= {name: str(getattr(self, name).resolve()) for name in ("cases", "policy", "state")}
        write_text(path, json.dumps(content))

    @functools.cached_property
    def run(self) -> TrainingRun:
        """The run itself; the cases are read on first use."""
        return TrainingRun(self.settings, iterate_records(self.cases), self.policy, self.seed)

    def context(self, client: Any) -> Context:
        """What the algorithm may use, as in the torch trainer; ``client`` is that of verl's rollout servers."""
        run = self.run

        def agent(spec: ModelSpec, **parts: Any) -> PolicyAgent:
            return run.agent(open_model(spec, tokenizer=run.tokenizer, **parts))

        def frozen() -> PolicyAgent:
            """The initial policy, at the address that the settings give or on the servers that the trainer started."""
            if run.settings.training.verl.frozen.url is not None:
                return agent(ModelSpec.of_frozen_server(run.settings, credentialed=run.credentialed))
            if (servers := getattr(client, "frozen", None)) is None:
                raise SettingsError("no frozen server: set training.verl.frozen.url, or leave verl to start one")
            return agent(ModelSpec.of_rollouts(run.settings), client=servers)

        policy = agent(ModelSpec.of_rollouts(run.settings), client=client)
        return Context(run.settings, run.environment, policy, frozen, run.seed)


@functools.lru_cache(maxsize=4)
def read_session(path: str) -> Session:
    """The run described in a file; one object per process, so that cases and prompts are read once."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    settings = parse_settings(content["settings"], path)
    return Session(settings, *(Path(content[name]) for name in ("cases", "policy", "state")), content["seed"])
