"""The torch trainer: rollouts, scores, group-relative advantages, clipped policy update."""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib
import logging
import math
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord, iterate_records
from ..credit.summary import summarise_workups
from ..environment import DiagnosticEnvironment, PromptBuilder, Trajectory, run_episode, run_episodes
from ..llm.device import device_of
from ..llm.sampler import InProcessSampler
from ..llm.tokenizer import ChatTokenizer
from ..seeding import derive_seed
from ..settings import Settings
from .algorithms.base import Advantages, Context
from .checkpoint import load_checkpoint, save_checkpoint
from .model import Log, load_model, save_policy
from .update import PolicyUpdate, Sample

_log = logging.getLogger(__name__)


class Trainer:
    """One training run. Every random draw comes from a seed derived from what is drawn, so an
    interrupted run that resumes from its checkpoint ends where an undisturbed one ends."""

    def __init__(self, settings: Settings, cases: Iterable[CaseRecord], init_policy: Path, seed: int):
        self.settings, self.seed = settings, seed
        self.train_cases, self.validation_cases = select_cases(settings, cases)
        self.init_policy = init_policy
        self.tokenizer = ChatTokenizer(init_policy)
        self.prompts = PromptBuilder(settings.environment.prompt, self.tokenizer, settings.policy.max_prompt_tokens)
        self.environment = DiagnosticEnvironment(settings.environment)
        self.device = device_of(settings.policy)
        self.model = load_model(init_policy, self.device)
        self.sampler = InProcessSampler.from_model(self.model, self.tokenizer)
        self.samplers = [self.sampler]
        self.policy = self._agent(self.sampler, settings.training.temperature)
        self.update = PolicyUpdate(self.model, settings.training)
        self.snapshot: torch.nn.Module | None = None
        context = Context(settings, self.environment, self.policy, self._frozen, self._snapshot, seed)
        module = importlib.import_module(f".algorithms.{settings.training.algorithm}", __package__)
        self.algorithm = module.build(context)
        self.step, self.seconds, self.tokens = 0, 0.0, 0
        per_epoch = len(self.train_cases) // settings.training.prompts_per_batch
        self.total_steps = settings.training.steps or settings.training.epochs * per_epoch

    def run(self, state_dir: Path, log: Log, record: Log) -> None:
        """Train to the last step, resuming from ``state_dir`` where it holds a checkpoint. ``log`` gets a row of
        metrics every iteration, ``record`` what credit assignment found, for algorithms that tell. A run whose reward
        or gradient is not finite ends there, with the weights before that step and a last row that says so."""
        plan = self.settings.training
        if not load_checkpoint(self, state_dir):
            log(self._validation_row())
        while self.step < self.total_steps:
            try:
                row = self.iterate(record)
            except FloatingPointError as error:
                # The message names the case.
                _log.warning("%s", "a step diverged" if self.train_cases[0].credentialed else error)
                log({"step": self.step + 1, "seconds": self.seconds, "tokens": self.tokens, "diverged": True})
                break
            gc.collect()
            last = self.step == self.total_steps
            if self.validation_cases and (last or self.step % plan.validate_every == 0):
                row |= self._validation_row()
            log(row)
            if last or self.step % plan.save_every == 0:
                save_checkpoint(self, state_dir)

    def iterate(self, record: Log = lambda row: None) -> dict:
        """One iteration; returns its metrics."""
        start = time.perf_counter()
        # A resumed run has no prefix stores, so no iteration may inherit any: reuse changes sums in the last bit.
        for sampler in self.samplers:
            sampler.refresh()
        generated, calls = self._generated, self.environment.calls.copy()
        groups = asyncio.run(self._rollouts(self._batch()))
        rolled = time.perf_counter()
        rollout_tokens = self._generated - generated
        credit = asyncio.run(self.algorithm.advantages(groups, self.step))
        check_finite(credit, groups)
        scored = time.perf_counter()
        metrics = self.update.step(samples_of(groups, credit))
        self.step += 1
        if credit.records:
            record({"step": self.step, "groups": credit.records})
        self.seconds += time.perf_counter() - start
        self.tokens += self._generated - generated
        flat = [trajectory for group in groups for trajectory in group]
        summary = summarise_workups(flat, self.settings.utility, self.settings.environment.tests)
        return {
            "step": self.step,
            "seconds": self.seconds,
            "tokens": self.tokens,
            **{f"train/{name}": value for name, value in summary.items()},
            **credit.metrics,
            **metrics,
            "rollout/tokens": rollout_tokens,
            **{f"calls/{name}": self.environment.calls[name] - calls[name] for name in ("matcher", "judge")},
            "time/rollout": rolled - start,
            "time/credit": scored - rolled,
            "time/update": time.perf_counter() - scored,
        }

    def _batch(self) -> list[CaseRecord]:
        """Cases of this iteration: consecutive slices of a fresh permutation every epoch."""
        size = self.settings.training.prompts_per_batch
        per_epoch = len(self.train_cases) // size
        epoch, position = divmod(self.step, per_epoch)
        order = list(self.train_cases)
        random.Random(derive_seed(self.seed, "order", epoch)).shuffle(order)
        return order[position * size : (position + 1) * size]

    async def _rollouts(self, cases: Sequence[CaseRecord]) -> list[list[Trajectory]]:
        n = self.settings.training.group_size
        flat = await asyncio.gather(
            *(
                run_episode(
                    self.environment,
                    self.policy,
                    case,
                    derive_seed(self.seed, "rollout", self.step, case.note_id, i),
                )
                for case in cases
                for i in range(n)
            )
        )
        return [list(flat[k : k + n]) for k in range(0, len(flat), n)]

    def _validation_row(self) -> dict:
        """Greedy validation; its time and tokens do not count as training."""
        row = {"step": self.step, "seconds": self.seconds, "tokens": self.tokens, "validation/decoding": "greedy"}
        if not self.validation_cases:
            return row
        self.sampler.refresh()
        agent = self._agent(self.sampler, 0.0)
        workups = asyncio.run(run_episodes(self.environment, agent, self.validation_cases, 0))
        summary = summarise_workups(workups, self.settings.utility, self.settings.environment.tests)
        return row | {f"validation/{name}": value for name, value in summary.items()}

    def _agent(self, sampler: InProcessSampler, temperature: float) -> PolicyAgent:
        return PolicyAgent(sampler, self.prompts, self.settings.policy, temperature)

    def _frozen(self) -> PolicyAgent:
        sampler = InProcessSampler.from_folder(self.init_policy, device=self.device, dtype=torch.float32)
        self.samplers.append(sampler)
        return self._agent(sampler, self.settings.training.temperature)

    def _snapshot(self) -> PolicyAgent:
        """The current policy as it is now; called again, the same agent brought up to date."""
        if self.snapshot is None:
            self.snapshot = copy.deepcopy(self.model)
            sampler = InProcessSampler.from_model(self.snapshot, self.tokenizer)
            self.samplers.append(sampler)
            self._snapshot_agent = self._agent(sampler, self.settings.training.temperature)
        self.snapshot.load_state_dict(self.model.state_dict())
        return self._snapshot_agent

    @property
    def _generated(self) -> int:
        return sum(sampler.counters.generated_tokens for sampler in self.samplers)


def select_cases(settings: Settings, cases: Iterable[CaseRecord]) -> tuple[list[CaseRecord], list[CaseRecord]]:
    """Cases that reinforcement learning visits, and validation cases; all others are let go as they pass.

    The first are the end of the training split, disjoint from those whose workups were demonstrated when
    the policy was warm-started. Raises ValueError when too few are left for a batch.
    """
    demonstrated = settings.warm_start.cases if settings.policy.model == "tiny" else 0
    train: list[CaseRecord] = []
    validation: list[CaseRecord] = []
    for case in cases:
        if case.split == "validation":
            validation.append(case)
        elif case.split == "train":
            demonstrated -= 1
            if demonstrated < 0:
                train.append(case)
    chosen = train[-settings.training.cases :] if settings.training.cases else train
    if len(chosen) < settings.training.prompts_per_batch:
        raise ValueError(
            f"{len(chosen)} training cases are left for reinforcement learning, fewer than one batch of "
            f"{settings.training.prompts_per_batch}: raise data.train_cases or lower warm_start.cases"
        )
    return chosen, validation


def samples_of(groups: Sequence[Sequence[Trajectory]], credit: Advantages) -> list[list[Sample]]:
    """Trajectories as token sequences with one advantage per token, and the alternatives evaluated beside them."""
    batch = []
    for g, group in enumerate(groups):
        beside: list[list] = [[] for _ in group]
        for other in credit.alternatives[g] if credit.alternatives else ():
            beside[other.i].append((other.turn, other.advantage, other.weight))
        weights = credit.weights[g] if credit.weights else [None] * len(group)
        rows = zip(group, credit.decisions[g], weights, beside, strict=True)
        batch.append([Sample.of(*row) for row in rows])
    return batch


def check_finite(credit: Advantages, groups: Sequence[Sequence[Trajectory]]) -> None:
    """Stop at an advantage that is not a number. Raises FloatingPointError naming the case."""
    for g, (group, rows) in enumerate(zip(groups, credit.decisions, strict=True)):
        beside = [other.advantage for other in credit.alternatives[g]] if credit.alternatives else []
        for row in [*rows, beside]:
            if not all(map(math.isfinite, row)):
                case = group[0].case.note_id
                raise FloatingPointError(f"case {case}: the advantages {row} are not finite; the step was stopped")


def train(
    settings: Settings,
    cases_path: Path,
    init_policy: Path,
    out_dir: Path,
    state_dir: Path,
    seed: int,
    log: Log,
    record: Log,
) -> None:
    """Train one variant (settings already resolved) and save its policy as a Hugging Face folder; ``log`` and
    ``record`` as in :meth:`Trainer.run`."""
    torch.set_num_threads(settings.training.threads)
    trainer = Trainer(settings, iterate_records(cases_path), Path(init_policy), seed)
    # Garbage is collected once an iteration: tracing all live objects again and again costs a fifth of the time.
    gc.freeze()
    gc.disable()
    trainer.run(Path(state_dir), log, record)
    save_policy(trainer.model, Path(init_policy), Path(out_dir))
