"""Describes a training run to the processes of verl: settings, schedule of cases, metrics. Works without verl.

A small file describes the run, and verl's configuration has the path of this file. It has no text of a case: each
process reads the cases from their own file, and a row of a batch has the index of its case.
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
from ...llm.rollout_server import RolloutServer
from ...settings import Settings, read_table
from ..algorithm import Context
from ..torch.weights import load_model
from ..training_run import TrainingRun

#: The largest share of the episodes of a step, or of its replies for credit, that is allowed to fail. Where more fail,
#: the run saves its state and stops.
MAX_FAILED = 0.1
LOOP = "cdpr"  # the name of our agent loop in loops.yaml
#: File that says what a starting run waits for; empty once it has started.
START = "start.txt"
# Metrics and times of a step: verl's name of each, and ours.
_NAMES: dict[str, str] = read_table(__package__, "metrics")
Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class Session:
    """The description of a run: its settings, the file of its ``cases``, the folder of its initial ``policy``, the
    folder of its unfinished work (``state``), and its seed. Paths are absolute."""

    settings: Settings
    cases: Path
    policy: Path
    state: Path
    seed: int

    def write(self, path: Path) -> None:
        """Write the description to the file ``path``, for :func:`read_session`."""
        write_bytes(path, TypeAdapter(Session).dump_json(self))

    def announce(self, waiting: str = "") -> None:
        """Write to the file :data:`START` what a starting run is waiting for, the text ``waiting``. An empty text says
        that the run has started."""
        write_text(self.state / START, waiting)

    @functools.cached_property
    def run(self) -> TrainingRun:
        """The training run that this session describes, made on first use; its cases are read from their file then."""
        return TrainingRun(self.settings, iterate_records(self.cases), self.policy, self.seed)

    def context(self, client: Any) -> Context:
        """Make the context of the training algorithm. Its policies act by servers: ``client`` is verl's client of the
        rollout servers, whose attribute ``frozen`` is that of the server of the frozen policy (None: there is none)."""
        run = self.run

        def make_agent(client: Any) -> PolicyAgent:
            """Make an agent that acts by the rollout servers of verl's ``client``."""
            return run.make_agent(RolloutServer(client, run.tokenizer, run.settings.training.verl.server))

        def load_frozen_policy() -> PolicyAgent:
            """Make an agent that acts by the frozen initial policy on its server: the server at the address in the
            settings, or the one that the trainer started."""
            if run.settings.training.verl.frozen.url is not None:
                spec = ModelSpec.of_frozen_server(run.settings, credentialed=run.credentialed)
                return run.make_agent(open_model(spec, tokenizer=run.tokenizer))
            return make_agent(client.frozen)

        def load_initial_model() -> torch.nn.Module:
            """Load a new model with the initial weights in this process: on a GPU where it sees one."""
            device = "cuda" if torch.cuda.is_available() else "cpu"
            return load_model(run.policy, device, run.settings.policy.model == "tiny")

        return Context(
            run.settings, run.environment, make_agent(client), load_frozen_policy, run.seed, run.train, run.steps,
            load_initial_model,
        )  # fmt: skip


@functools.lru_cache(maxsize=4)
def read_session(path: str) -> Session:
    """Read the description of a run from the file ``path``. Later calls in a process return the same object, so that
    cases are read once."""
    return TypeAdapter(Session).validate_json(Path(path).read_bytes())


class Schedule(torch.utils.data.Dataset):
    """The order of the cases as a data set for verl's loader (``data.custom_cls``), which reads it once from front to
    back. Row j has the index of the j-th case and its iteration.

    ``data_files`` is the part of the cases: ``train`` or ``validation``. ``config["cdpr_session"]`` is the path of the
    file that describes the run. ``tokenizer`` and ``processor``, which verl passes too, are not used. The prompts of
    rows are empty: episodes build them, so verl's queues get a case only as tokens.
    """

    def __init__(self, data_files: Any, tokenizer: Any = None, processor: Any = None, config: Any = None, **_: Any):
        """List the indices of all cases in their order: those of all iterations, or each validation case once."""
        run = read_session(config["cdpr_session"]).run
        self.part = str(data_files)
        self.batch_size = run.batch_size
        self.case_indices = run.all_indices() if self.part == "train" else list(range(len(run.validation)))

    def __len__(self) -> int:
        """The number of rows: one for each case of each iteration, or for each validation case."""
        return len(self.case_indices)

    def __getitem__(self, j: int) -> dict[str, Any]:
        """Return row ``j``: its case, given by ``part`` and ``case_index``; the iteration, from 0 (of training alone:
        in ``validation`` it means nothing); and what verl requires. ``case_index`` is an index into the list of cases
        of that part."""
        return {
            "raw_prompt": [{"role": "user", "content": ""}],
            "dummy_tensor": torch.zeros(1, dtype=torch.uint8),
            "index": j,
            "agent_name": LOOP,
            "data_source": LOOP,
            "part": self.part,
            "case_index": self.case_indices[j],
            "iteration": j // self.batch_size,
        }


def align_with_response(turns: Sequence[Turn], values: Iterable[Sequence[float]], length: int | None = None) -> list:
    """Return one value for each token after the first prompt of an episode: for the first ``length`` of these tokens,
    or for all (None). ``values`` has one sequence for each turn, with a value for each token of its reply; the tokens
    of observations get 0.

    Replies of 2 and 1 tokens with an observation of 3 tokens between them, and the values (1, 1) and (2,), give
    [1, 1, 0, 0, 0, 2]."""
    first, last = turns[0], turns[-1]
    row: list[Any] = [0] * (len(last.prompt_ids) + len(last.token_ids) - len(first.prompt_ids))
    for turn, of_reply in zip(turns, values, strict=True):
        start = len(turn.prompt_ids) - len(first.prompt_ids)
        row[start : start + len(of_reply)] = of_reply
    return row[:length]


def translate_metrics(own: Metrics, metrics: Metrics, timing: Metrics) -> dict[str, float]:
    """Make the row of metrics of a step: the metrics ``own``, then verl's ``metrics`` and ``timing`` (seconds) under
    our names. verl's metrics of its correction for the rollout server (``rollout_corr/``) keep their names; others for
    which we have no name are left out."""
    values = {**metrics, **timing}
    row = {**own, **{ours: float(values[theirs]) for theirs, ours in _NAMES.items() if theirs in values}}
    for name, value in metrics.items():
        if name.startswith("rollout_corr/") and isinstance(value, (int, float)) and math.isfinite(value):
            row[name] = float(value)
    return row


def reason_to_stop(row: Metrics, allowed: float = MAX_FAILED) -> str | None:
    """Return why the run has to stop after a step with the metrics ``row``; None where it continues. It stops after an
    error of the program, and where the share of failed episodes, or of failed replies for credit, is above
    ``allowed``."""
    if row.get("rollout/fatal"):
        return "a fault arose in an episode or in its credit (see the log of the agent-loop worker)"
    if row.get("rollout/failed", 0.0) > allowed:
        return f"{row['rollout/failed']:.0%} of the episodes failed: check the rollout server"
    # Only CDPR counts what succeeded: drawn continuations (``credit/fresh``) and sampled next actions (probes).
    failed = row.get("credit/failed", 0.0) if "credit/fresh" in row else 0.0
    requests = failed + row.get("credit/fresh", 0.0) + row.get("credit/probes", 0.0)
    if requests and failed / requests > allowed:
        return f"{failed / requests:.0%} of the replies for credit failed: check the frozen server"
    return None
