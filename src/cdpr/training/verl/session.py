"""A training run for the processes of verl: its settings, its schedule of cases, its rows of metrics. Works without
verl.

A small file describes the run, and verl's configuration has the path of this file. No text of a case is sent with it:
each process reads the cases from their file, and rows of a batch have the index of their case.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from ...agents.policy import PolicyAgent
from ...cases import iterate_records
from ...environment import Turn
from ...files import write_bytes, write_text
from ...llm import ModelSpec, open_model
from ...settings import Settings
from ..algorithm import Context
from ..training_run import TrainingRun

MAX_FAILED = 0.1
"""Share of failed episodes or continuations in a step above which the run stops, after saving its state."""
LOOP = "cdpr"
START = "start.txt"
"""File that says what a starting run waits for; empty once it has started."""
_POLICY = {
    "actor/pg_loss": "policy/loss",
    "actor/pg_clipfrac": "policy/clipped_share",
    "actor/grad_norm": "policy/grad_norm",
    "actor/entropy": "policy/entropy",
}
_TIMES = {"gen": "time/rollout_and_credit", "update_actor": "time/update", "update_weights": "time/weights"}


@dataclass(frozen=True)
class Session:
    """The description of a run: canonical settings, absolute paths of its cases, initial policy and state, its seed."""

    settings: Settings
    cases: Path
    policy: Path
    state: Path
    seed: int

    def write(self, path: Path) -> None:
        """Write the description to a file, for :func:`read_session`."""
        write_bytes(path, TypeAdapter(Session).dump_json(self))

    def announce(self, waiting: str = "") -> None:
        """Write to the file :data:`START` what the starting run waits for; empty: it has started."""
        write_text(self.state / START, waiting)

    @functools.cached_property
    def run(self) -> TrainingRun:
        """The training run that this session describes, made once. Its cases are read from the file on first use of the
        run."""
        return TrainingRun(self.settings, iterate_records(self.cases), self.policy, self.seed)

    def context(self, client: Any) -> Context:
        """Make the context of the algorithm, as in the torch engine; ``client`` is that of verl's rollout servers."""
        run = self.run

        def agent(spec: ModelSpec, **parts: Any) -> PolicyAgent:
            """The policy that acts by a model."""
            return run.agent(open_model(spec, tokenizer=run.tokenizer, **parts))

        def frozen() -> PolicyAgent:
            """The initial policy on its server: the one in the settings, or the one that the trainer started."""
            if run.settings.training.verl.frozen.url is not None:
                return agent(ModelSpec.of_frozen_server(run.settings, credentialed=run.credentialed))
            return agent(ModelSpec.of_rollouts(run.settings), client=client.frozen)

        policy = agent(ModelSpec.of_rollouts(run.settings), client=client)
        return Context(run.settings, run.environment, policy, frozen, run.seed)


@functools.lru_cache(maxsize=4)
def read_session(path: str) -> Session:
    """Read the description of a run from a file. Each process has one object, so that cases are read once."""
    return TypeAdapter(Session).validate_json(Path(path).read_bytes())


class Schedule(torch.utils.data.Dataset):
    """The order of cases as a data set for verl's loader (``data.custom_cls``), which reads it once from front to back.
    Row j has the index of the j-th case and its iteration.

    ``data_files`` is ``train`` or ``validation``, ``config.cdpr_session`` the file of the run. The prompt is empty: the
    episode builds it, and text of a case passes through verl's queues only as tokens.
    """

    def __init__(self, data_files: Any, tokenizer: Any = None, processor: Any = None, config: Any = None, **_: Any):
        session = read_session(config["cdpr_session"])
        self.part = str(data_files)
        self.size = session.settings.training.prompts_per_batch
        self.order = session.run.order() if self.part == "train" else list(range(len(session.run.validation)))

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, j: int) -> dict[str, Any]:
        return {
            "raw_prompt": [{"role": "user", "content": ""}],
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
            "index": j,
            "agent_name": LOOP,
            "data_source": LOOP,
            "part": self.part,
            "case_index": self.order[j],
            "iteration": j // self.size,
        }


def on_response(turns: Sequence[Turn], values: Iterable[Sequence[float]], length: int | None = None) -> list[Any]:
    """Lay out values on the tokens behind the first prompt of an episode: one number per token, at most ``length``.
    ``values`` has one sequence for each reply, for its sampled tokens; all other tokens get 0."""
    first, last = turns[0], turns[-1]
    row: list[Any] = [0] * (len(last.prompt_ids) + len(last.token_ids) - len(first.prompt_ids))
    for turn, own in zip(turns, values, strict=True):
        start = len(turn.prompt_ids) - len(first.prompt_ids)
        row[start : start + len(own)] = own
    return row[:length]


def training_row(own: Mapping[str, float], metrics: Mapping[str, Any], timing: Mapping[str, float]) -> dict[str, float]:
    """Translate the metrics of a step to our names: returns a row with our ``own`` metrics, then verl's metrics and
    times."""
    row = {ours: float(metrics[theirs]) for theirs, ours in _POLICY.items() if theirs in metrics}
    correction = {name: x for name, x in metrics.items() if name.startswith("rollout_corr/")}
    row |= {name: float(x) for name, x in correction.items() if isinstance(x, (int, float)) and math.isfinite(x)}
    return {**own, **row, **{ours: timing[theirs] for theirs, ours in _TIMES.items() if theirs in timing}}


def problem(row: Mapping[str, float], allowed: float = MAX_FAILED) -> str | None:
    """The reason to stop the run after a step with the metrics ``row``; None where there is none. ``allowed`` is the
    share of failures above which the run stops."""
    if row.get("rollout/fatal"):
        return "a fault arose in an episode or in its credit (see the log of the agent-loop worker)"
    if row.get("rollout/failed", 0.0) > allowed:
        return f"{row['rollout/failed']:.0%} of the episodes failed: check the rollout server"
    failed = row.get("credit/failed", 0.0) if "credit/fresh" in row else 0.0  # other algorithms do not count requests
    requests = failed + row.get("credit/fresh", 0.0) + row.get("credit/probes", 0.0)
    if requests and failed / requests > allowed:
        return f"{failed / requests:.0%} of the replies for credit failed: check the frozen server"
    return None
