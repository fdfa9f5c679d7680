"""What the engines ``torch`` and ``verl`` share in a training: its cases and their order, the seeds of its episodes,
and its log of metrics."""

import functools
import math
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord
from ..credit.scores import summarise_episodes, verdicts
from ..environment import DiagnosticEnvironment, PromptBuilder, Trajectory
from ..environment.opening import check_models, open_environment
from ..files import write_gz
from ..job import Job
from ..llm import Model, ModelSpec
from ..llm.tokenizer import ChatTokenizer
from ..metrics_log import MetricsLog, read_metrics, split_times
from ..seeding import derive_seed
from ..settings import Settings, algorithm_class, restrict_to_algorithm, unreadable_warning

VALIDATION_SEED = 0  # of the episodes of every validation
# Constants of the update in both engines: verl's defaults, since the paper gives none.
CLIP_RATIO, DUAL_CLIP, WEIGHT_DECAY, MAX_GRAD_NORM = 0.2, 3.0, 0.01, 1.0

#: Receives one row of metrics.
Log = Callable[[Mapping[str, Any]], None]

METRICS, CREDIT = "metrics.jsonl", "credit.jsonl"  # files in the folder of an unfinished training
# The metrics that a training prints, and how often.
_PRINTED = [f"{part}/{name}" for part in ("train", "validation") for name in ("accuracy", "aen", "aec", "utility")]
_PRINT_EVERY = 5  # steps


class TrainingRun:
    """The cases of a training run, their order, and the seed of every episode: the same for the engines torch and verl.

    ``settings`` are those of the run. Of ``cases`` those of the splits train and validation are used.
    ``policy`` is the Hugging Face folder of the initial policy, ``seed`` the seed of the run. The seed of an episode
    depends only on the run's seed, the iteration, the case and the episode's number, so a resumed run gives the same
    result. Raises ValueError for fewer training cases than a batch has.
    """

    def __init__(self, settings: Settings, cases: Iterable[CaseRecord], policy: Path, seed: int):
        """Select the cases, and open the tokenizer. The attribute ``credentialed`` says whether a case contains
        clinical text under a data use agreement, which must not leave the machine."""
        self.settings, self.policy, self.seed = settings, policy, seed
        self.train, self.validation = select_cases(settings, cases)
        self.batch_size = settings.training.prompts_per_batch
        self._per_epoch = len(self.train) // self.batch_size  # whole batches
        self.credentialed = any(case.credentialed for case in (*self.train, *self.validation))
        self.tokenizer = ChatTokenizer(policy, settings.policy.chat_template_kwargs)
        self.prompts = PromptBuilder(settings.environment.prompt, self.tokenizer, settings.policy.max_prompt_tokens)

    @functools.cached_property
    def environment(self) -> DiagnosticEnvironment:
        """The environment of all episodes, with the judge of diagnoses and the matcher of requests that the settings
        name. It is opened on first use."""
        return open_environment(self.settings, credentialed=self.credentialed)

    def check_servers(self) -> dict[str, str]:
        """Check the servers of judge, matcher and frozen policy before the training starts. Returns tags for
        ``run.json`` that name the servers which get credentialed text (clinical text under a data use agreement).
        Raises SettingsError where a server cannot be used, GovernanceError where it must not get credentialed text."""
        frozen = None
        if self.settings.training.verl.frozen.url and uses_frozen_policy(self.settings):
            frozen = ModelSpec.of_frozen_server(self.settings, credentialed=self.credentialed)
        return check_models(self.settings, self.train[0].dataset, frozen, credentialed=self.credentialed)

    def count_cut_prompts(self, job: Job) -> None:
        """Count the cases that lose text because their first prompt exceeds ``policy.max_prompt_tokens``
        (docs/deviations.md, D19a). The number becomes the metric ``cut_prompts`` of the job; above 0 it is also
        printed."""
        cut = sum(self.prompts.is_cut(case) for case in (*self.train, *self.validation))
        job.metrics["cut_prompts"] = cut
        if cut:
            print(f"{cut:,} cases lose a part of their text to policy.max_prompt_tokens; raise it")

    @property
    def steps(self) -> int:
        """The number of iterations of the run: ``training.steps``, or where that is not set ``training.epochs`` epochs
        of whole batches."""
        return self.settings.training.steps or self.settings.training.epochs * self._per_epoch

    def batch_indices(self, step: int) -> list[int]:
        """Return the cases of iteration ``step`` (from 0), as indices into ``self.train``. Each epoch shuffles the
        training cases and cuts them into batches; a last incomplete batch is left out."""
        epoch, position = divmod(step, self._per_epoch)
        order = _shuffled_indices(len(self.train), derive_seed(self.seed, "order", epoch))
        return order[position * self.batch_size : (position + 1) * self.batch_size]

    def all_indices(self) -> list[int]:
        """Return the cases of all iterations, one batch after another, as indices into ``self.train``."""
        return [index for step in range(self.steps) for index in self.batch_indices(step)]

    def episode_seed(self, case: CaseRecord, step: int, number: int) -> int:
        """Derive the seed of one episode: number ``number`` (from 0) of the group of a training case in iteration
        ``step``."""
        return derive_seed(self.seed, "rollout", step, case.note_id, number)

    def make_agent(self, model: Model, temperature: float | None = None) -> PolicyAgent:
        """Make an agent whose replies are sampled from ``model`` at this ``temperature``; None is
        ``training.temperature``."""
        temperature = self.settings.training.temperature if temperature is None else temperature
        return PolicyAgent(model, self.prompts, self.settings.policy, temperature)

    def summarise(self, split: str, episodes: Sequence[Trajectory]) -> dict[str, float]:
        """Compute means over episodes by name, such as ``train/accuracy``; empty without episodes. ``split`` (``train``
        or ``validation``) begins every name."""
        if not episodes:
            return {}
        means = summarise_episodes(episodes, self.settings.utility, self.settings.environment.tests)
        return {f"{split}/{name}": value for name, value in means.items()}

    def validation_metrics(self, episodes: Sequence[Trajectory | None]) -> dict[str, Any]:
        """Compute the metrics of a validation with greedy decoding. ``episodes`` has the episode of each validation
        case, None where it failed. Returns by name: the decoding; the verdicts of all cases as one string, such as
        ``10-`` for right, wrong, failed; and means over the episodes that did not fail."""
        row: dict[str, Any] = {"validation/decoding": "greedy"}
        if episodes:
            row["validation/verdicts"] = verdicts([math.nan if e is None else e.correct for e in episodes])
        return row | self.summarise("validation", [episode for episode in episodes if episode is not None])


def uses_frozen_policy(settings: Settings) -> bool:
    """Whether the algorithm of these settings uses a policy that keeps the initial weights."""
    return algorithm_class(settings.training.algorithm).needs_frozen_policy(restrict_to_algorithm(settings))


@functools.lru_cache(maxsize=4)
def _shuffled_indices(count: int, seed: int) -> list[int]:
    """Return the numbers from 0 to ``count`` - 1 in an order that depends on ``seed`` alone."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def select_cases(settings: Settings, cases: Iterable[CaseRecord]) -> tuple[list[CaseRecord], list[CaseRecord]]:
    """Select the cases of reinforcement learning by their split. Returns the training cases and the validation cases.

    If the initial policy was warm-started, the first ``warm_start.cases`` training cases are left out, because it has
    imitated demonstrations of them. Raises ValueError for fewer training cases than a batch has.
    """
    selected = [case for case in cases if case.split in ("train", "validation")]
    demonstrated = settings.warm_start.cases if settings.policy.warm_started else 0
    train = [case for case in selected if case.split == "train"][demonstrated:]
    if len(train) < settings.training.prompts_per_batch:
        raise ValueError(
            f"{len(train)} training cases are left for reinforcement learning, fewer than one batch of "
            f"{settings.training.prompts_per_batch}: raise data.train_cases, or lower training.prompts_per_batch or "
            "warm_start.cases"
        )
    return train, [case for case in selected if case.split == "validation"]


def open_training_log(state: Path, run: str = "") -> Log:
    """Open the file of metrics in the folder ``state`` of an unfinished run. Returns a function that appends a row of
    metrics to the file. It also prints the rows of every fifth step and of every validation; the printed lines begin
    with ``run``, the name of the run."""
    append_to_file = MetricsLog(state / METRICS)

    def append(row: Mapping[str, Any]) -> None:
        """Append a row of metrics to the file. Print it if its step is a multiple of :data:`_PRINT_EVERY`, or if it is
        of a validation; if training diverged, print that instead."""
        append_to_file(row)
        if "diverged" in row:
            print(f"{run}  diverged at step {row['step']}: the run ends with the weights before it")
        elif row["step"] % _PRINT_EVERY == 0 or "validation/accuracy" in row:
            values = [f"{name} {row[name]:.3f}" for name in _PRINTED if name in row]
            print(f"{run}  step {row['step']:>4}  {row['seconds']:6.0f} s  {'  '.join(values)}")

    return append


def write_training_outputs(job: Job) -> None:
    """Write the outputs of a finished training: metrics, times, and records of credit. They are read from
    ``job.state``, the folder in which the training collected them. The job gets the tag ``diverged`` if the training
    diverged, and ``judging`` if too many answers of the judge or the matcher were unreadable."""
    rows = read_metrics(job.state / METRICS)
    split_times(rows, job.out["metrics"], job.out["timings"])
    job.metrics["seconds"] = rows[-1]["seconds"]
    if "diverged" in rows[-1]:
        job.tags["diverged"] = str(rows[-1]["step"])
    # Warn of unreadable answers of the judge and of the matcher. The metrics count readable answers of their models
    # (``_model``) and unreadable ones (``_invalid``) by step.
    warnings = []
    for asker in ("judge", "matcher"):
        readable = sum(row.get(f"calls/{asker}_model", 0) for row in rows)
        unreadable = sum(row.get(f"calls/{asker}_invalid", 0) for row in rows)
        warnings.append(unreadable_warning(asker, unreadable, readable + unreadable))
    if warning := "; ".join(filter(None, warnings)):
        job.tags["judging"] = warning
        print(f"{job.name}: WARNING: {warning}")
    credit = job.state / CREDIT  # missing where the algorithm records no credit: the output is then empty
    with open(credit if credit.exists() else os.devnull, "rb") as lines:
        write_gz(job.out["credit"], lines)
