"""One training run as every process of it sees it: read from a small file whose path travels in verl's configuration.

No text of a case travels with it: a process reads the cases from where they lie, and rows of a batch name their place.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...cases import CaseRecord, iterate_records
from ...files import replacing
from ...settings import Settings, parse_settings
from ..run import TrainingRun

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
        """Write the file that :func:`read_session` reads."""
        content = {"settings": self.settings.model_dump(mode="json"), "seed": self.seed}
        content |= {name: str(getattr(self, name).resolve()) for name in ("cases", "policy", "state")}
        with replacing(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")

    @functools.cached_property
    def run(self) -> TrainingRun:
        """The run itself; the cases are read when it is first asked for."""
        return TrainingRun(self.settings, iterate_records(self.cases), self.policy, self.seed)

    def part(self, name: str) -> Sequence[CaseRecord]:
        """The cases of ``train`` or ``validation``."""
        return {"train": self.run.train, "validation": self.run.validation}[name]


@functools.lru_cache(maxsize=4)
def read_session(path: str) -> Session:
    """The run described in a file; one object per process, so that cases and prompts are read once."""
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    settings = parse_settings(content["settings"], path)
    return Session(settings, *(Path(content[name]) for name in ("cases", "policy", "state")), content["seed"])
