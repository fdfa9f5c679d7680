"""A training run of either engine: its cases and their order, the seeds of its episodes, and its log of metrics."""

import functools
import os
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, PromptBuilder
from ..environment.opening import check_judges, open_environment
from ..files import write_gz
from ..job import Job
from ..llm import Model
from ..llm.guard import allow, disclosed
from ..llm.tokenizer import ChatTokenizer
from ..metrics_log import MetricsLog, read_metrics, write_apart
from ..seeding import derive_seed
from ..settings import Settings
from ..settings.algorithms import algorithm_class
from ..settings.judging import failing
from ..settings.variants import seen_by_algorithm

VALIDATION_SEED = 0
# Constants of the update in both engines: verl's defaults, since the paper gives none.
CLIP_RATIO, DUAL_CLIP, WEIGHT_DECAY, MAX_GRAD_NORM = 0.2, 3.0, 0.01, 1.0

Log = Callable[[Mapping[str, Any]], None]
"""Receives one row of metrics."""

METRICS, CREDIT = "metrics.jsonl", "credit.jsonl"
_PRINTED = [f"{part}/{name}" for part in ("train", "validation") for name in ("accuracy", "aen", "aec", "utility")]
_PRINT_EVERY = 5  # steps


class TrainingRun:
    """The cases of a training run, their order, and the seed of every episode: the same for both engines.

    ``settings`` are those of one variant, ``cases`` have any split, ``policy`` is the Hugging Face folder of the
    initial policy, ``seed`` the seed of the run. The seed of an episode depends only on the run's seed, the iteration,
    the case and the episode's number, so an interrupted run gives the same result. Raises ValueError for fewer training
    cases than a batch has.
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
        """The environment with the judge and matcher of the settings, opened on first use."""
        return open_environment(self.settings, credentialed=self.credentialed)

    def disclosed(self) -> dict[str, str]:
        """Check the servers of judge, matcher and frozen policy; returns the tags of ``run.json`` about those that get
        credentialed text. Raises SettingsError and GovernanceError where one cannot be used."""
        servers = check_judges(self.settings, self.train[0].dataset, credentialed=self.credentialed)
        frozen = algorithm_class(self.settings.training.algorithm).needs_frozen(seen_by_algorithm(self.settings))
        if frozen and (url := self.settings.training.verl.frozen.url):
            return disclosed([allow(url, self.credentialed, self.settings.governance), *servers])
        return disclosed(servers)

    def count_cut_prompts(self, job: Job) -> None:
        """Count the cases that lose text because their first prompt exceeds ``policy.max_prompt_tokens`` (D19a); the
        number becomes a metric of the job, and is printed."""
        cut = sum(map(self.prompts.is_cut, (*self.train, *self.validation)))
        job.metrics["cut_prompts"] = cut
        if cut:
            print(f"{cut:,} cases lose a part of their text to policy.max_prompt_tokens; raise it")

    @property
    def steps(self) -> int:
        """The number of iterations of the run."""
        return self.settings.training.steps or self.settings.training.epochs * self._per_epoch

    def batch(self, step: int) -> list[int]:
        """The cases of iteration ``step``, as indices into ``train``. Each epoch has a permutation of the cases, cut
        into batches; a last incomplete batch is left out."""
        epoch, position = divmod(step, self._per_epoch)
        order = _permutation(len(self.train), derive_seed(self.seed, "order", epoch))
        return order[position * self.batch_size : (position + 1) * self.batch_size]

    def order(self) -> list[int]:
        """The cases of all iterations, one after another, as indices into ``train``."""
        return [index for step in range(self.steps) for index in self.batch(step)]

    def episode_seed(self, case: CaseRecord, step: int, number: int) -> int:
        """The seed of episode ``number`` of a training case in iteration ``step``."""
        return derive_seed(self.seed, "rollout", step, case.note_id, number)

    def agent(self, model: Model, temperature: float | None = None) -> PolicyAgent:
        """Make the policy that acts by ``model``; its ``temperature`` is by default that of rollouts."""
        temperature = self.settings.training.temperature if temperature is None else temperature
        return PolicyAgent(model, self.prompts, self.settings.policy, temperature)


@functools.lru_cache(maxsize=4)
def _permutation(count: int, seed: int) -> list[int]:
    """Shuffle the numbers from 0 to ``count`` - 1 by this seed."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def select_cases(settings: Settings, cases: Iterable[CaseRecord]) -> tuple[list[CaseRecord], list[CaseRecord]]:
    """Select the cases of reinforcement learning by their split; returns those for training and those for validation.

    Cases that the warm start has demonstrated are no training cases. Raises ValueError for fewer training cases than a
    batch has.
    """
    splits: dict[str, list[CaseRecord]] = {"train": [], "validation": []}
    for case in cases:
        if case.split in splits:
            splits[case.split].append(case)
    demonstrated = settings.warm_start.cases if settings.policy.warm_started else 0
    train = splits["train"][demonstrated:]
    if len(train) < settings.training.prompts_per_batch:
        raise ValueError(
            f"{len(train)} training cases are left for reinforcement learning, fewer than one batch of "
            f"{settings.training.prompts_per_batch}: raise data.train_cases, or lower training.prompts_per_batch or "
            "warm_start.cases"
        )
    return train, splits["validation"]


def training_log(state: Path, run: str = "") -> Log:
    """Open the log of a run in its folder ``state``; returns a function that appends a row of metrics to the file and,
    now and then, prints the learning curve with the name ``run``."""
    log = MetricsLog(state / METRICS)

    def append(row: Mapping[str, Any]) -> None:
        """Append a row of metrics, and print it if it is a validation or one of every few steps."""
        log(row)
        if "diverged" in row:
            print(f"{run}  diverged at step {row['step']}: the run ends with the weights before it")
        elif row["step"] % _PRINT_EVERY == 0 or "validation/accuracy" in row:
            values = [f"{name} {row[name]:.3f}" for name in _PRINTED if name in row]
            print(f"{run}  step {row['step']:>4}  {row['seconds']:6.0f} s  {'  '.join(values)}")

    return append


def store_records(job: Job) -> None:
    """Write the outputs of a finished training from the state of its job: metrics, times, and records of credit. The
    job gets tags about divergence and about a judge or matcher whose answers were unreadable."""
    rows = read_metrics(job.state / METRICS)
    write_apart(rows, job.out["metrics"], job.out["timings"])
    job.metrics["seconds"] = rows[-1]["seconds"]
    if "diverged" in rows[-1]:
        job.tags["diverged"] = str(rows[-1]["step"])
    failures = []
    for asker in ("judge", "matcher"):
        readable, unreadable = (
            sum(row.get(f"calls/{asker}_{kind}", 0) for row in rows) for kind in ("model", "invalid")
        )
        failures.append(failing(asker, unreadable, readable + unreadable))
    if failure := "; ".join(filter(None, failures)):
        job.tags["judging"] = failure
        print(f"{job.name}: WARNING: {failure}")
    records = job.state / CREDIT
    with open(records if records.exists() else os.devnull, "rb") as lines:
        write_gz(job.out["credit"], lines)
