"""The torch trainer: rollouts, scores, group-relative advantages, clipped policy update."""

import asyncio
import gc
import logging
import time
from pathlib import Path
from typing import Any

import torch

from ...agents.policy import PolicyAgent
from ...cases import CaseRecord, iterate_records
from ...credit.scores import summarise_workups, verdicts
from ...environment import run_episode, run_episodes
from ...job import Job
from ...llm.sampler import InProcessSampler
from ...llm.spec import device_of
from ...metrics_log import MetricsLog
from ...settings import Settings
from ..algorithm import Context, Group, check_finite, credit_line, open_algorithm, score_groups
from ..training_run import CREDIT, VALIDATION_SEED, Log, TrainingRun, store_records, training_log
from .update import PolicyUpdate, samples_of
from .weights import load_checkpoint, load_model, save_checkpoint, save_policy

_log = logging.getLogger(__name__)
# Share of a GPU's free memory for each sampler's caches: gradients, the optimiser's state and activations come later.
_CACHES = 0.15


class Trainer:
    """Trains one run."""

    def __init__(self, run: TrainingRun):
        self.run, self.settings, self.environment = run, run.settings, run.environment
        self.device = device_of(run.settings.policy)
        # Jobs share the cores of a CPU, so only processor time compares one training with another there.
        self.clock = time.process_time if self.device == "cpu" else time.perf_counter
        self.model = load_model(run.policy, self.device, run.settings.policy.model == "tiny")
        self.sampler = InProcessSampler.from_model(self.model, run.tokenizer, memory_share=_CACHES)
        self.samplers = [self.sampler]
        self.reference: torch.nn.Module | None = None  # the frozen policy's model, where an algorithm uses it
        self.policy = run.agent(self.sampler)
        self.update = PolicyUpdate(self.model, run.settings.training)
        context = Context(run.settings, run.environment, self.policy, self._frozen, run.seed)
        self.algorithm = open_algorithm(context)
        self.step, self.seconds, self.tokens = 0, 0.0, 0

    def fit(self, state_dir: Path, log: Log, record: Log, steps: int | None = None) -> None:
        """Train to the last step (or to ``steps``), resuming from ``state_dir`` where it holds a checkpoint. ``log``
        gets a row of metrics every iteration, ``record`` the records of credit, if the algorithm has any. A reward or
        gradient that is not finite ends the run, with the weights before that step and a last row that says so."""
        plan, checkpoint = self.settings.training, state_dir / "checkpoint.pt"
        steps = self.run.steps if steps is None else steps
        if saved := load_checkpoint(checkpoint):
            self.load_state_dict(saved)
        else:
            log(self.validate())
        while self.step < steps:
            try:
                row = self.iterate(record)
            except FloatingPointError as error:
                # The message names the case.
                _log.warning("%s", "a step diverged" if self.run.train[0].credentialed else error)
                log(self._so_far | {"step": self.step + 1, "diverged": True})
                break
            gc.collect()
            last = self.step == steps
            if self.run.validation and (last or self.step % plan.validate_every == 0):
                row |= self.validate()
            log(row)
            if last or self.step % plan.save_every == 0:
                save_checkpoint(checkpoint, self.state_dict())

    def iterate(self, record: Log = lambda row: None) -> dict:
        """One iteration; returns its metrics."""
        start = self.clock()
        if self.algorithm.refresh and self.step % self.algorithm.refresh == 0 and self.reference is not None:
            self.reference.load_state_dict(self.model.state_dict())
        # A resumed run has no prefix stores, so no iteration may inherit any: reuse changes sums in the last bit.
        for sampler in self.samplers:
            sampler.refresh()
        tokens_before, calls_before = self._generated, self.environment.calls.copy()
        groups = asyncio.run(self.roll_out(self.step))
        rollout_end, rollout_tokens = self.clock(), self._generated - tokens_before
        scored = asyncio.run(score_groups(self.algorithm, groups, self.step))
        credit = self.algorithm.finish(scored)
        check_finite(groups, scored)
        credit_end = self.clock()
        metrics = self.update.step(samples_of(groups, scored), self.step / self.run.steps)
        self.step += 1
        if line := credit_line(self.step, scored):
            record(line)
        self.seconds += self.clock() - start
        self.tokens += self._generated - tokens_before
        return {
            **self._so_far,
            **self._summary("train", [trajectory for group in groups for trajectory in group]),
            **credit,
            **metrics,
            "rollout/tokens": rollout_tokens,
            **{f"calls/{name}": count - calls_before[name] for name, count in self.environment.calls.items()},
            "time/rollout": rollout_end - start,
            "time/credit": credit_end - rollout_end,
            "time/update": self.clock() - credit_end,
        }

    async def roll_out(self, step: int) -> list[Group]:
        """The groups of an iteration."""

        async def group(case: CaseRecord) -> Group:
            seeds = [self.run.episode_seed(case, step, i) for i in range(self.settings.training.group_size)]
            return await asyncio.gather(*(run_episode(self.environment, self.policy, case, seed) for seed in seeds))

        return await asyncio.gather(*(group(self.run.train[place]) for place in self.run.batch(step)))

    def validate(self) -> dict:
        """Greedy validation; its time and tokens do not count as training."""
        row = self._so_far | {"validation/decoding": "greedy"}
        if not self.run.validation:
            return row
        self.sampler.refresh()
        agent = self.run.agent(self.sampler, temperature=0.0)
        workups = asyncio.run(run_episodes(self.environment, agent, self.run.validation, VALIDATION_SEED))
        row["validation/verdicts"] = verdicts([workup.correct for workup in workups])
        return row | self._summary("validation", workups)

    def _summary(self, part: str, workups: Group) -> dict[str, float]:
        figures = summarise_workups(workups, self.settings.utility, self.settings.environment.tests)
        return {f"{part}/{name}": value for name, value in figures.items()}

    @property
    def _so_far(self) -> dict[str, Any]:
        return {"step": self.step, "seconds": self.seconds, "tokens": self.tokens}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next step depends on."""
        return {
            **self._so_far,
            "model": self.model.state_dict(),
            "optimizer": self.update.optimizer.state_dict(),
            "algorithm": self.algorithm.state_dict(),
        } | ({"reference": self.reference.state_dict()} if self.reference and self.algorithm.refresh else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state_dict`."""
        self.step, self.seconds, self.tokens = state["step"], state["seconds"], state["tokens"]
        self.model.load_state_dict(state["model"])
        self.update.optimizer.load_state_dict(state["optimizer"])
        self.algorithm.load_state_dict(state["algorithm"])
        if self.reference and "reference" in state:
            self.reference.load_state_dict(state["reference"])

    def _frozen(self) -> PolicyAgent:
        self.reference = load_model(self.run.policy, self.device, self.settings.policy.model == "tiny")
        sampler = InProcessSampler.from_model(self.reference, self.run.tokenizer, _CACHES)
        self.samplers.append(sampler)
        return self.run.agent(sampler)

    @property
    def _generated(self) -> int:
        return sum(sampler.counters.generated_tokens for sampler in self.samplers)


def train_policy(settings: Settings, job: Job) -> None:
    """Stage ``train``: one variant (settings already resolved) with the job's seed; the policy is a Hugging Face
    folder. A killed run resumes from its last checkpoint."""
    torch.set_num_threads(settings.training.threads)
    policy = Path(job.inputs["init_policy"])
    run = TrainingRun(settings, iterate_records(job.inputs["cases"]), policy, job.seed)
    job.tags.update(run.disclosed())
    run.count_cut_prompts(job)
    trainer = Trainer(run)
    # Garbage is collected once an iteration: tracing all live objects again and again costs a fifth of the time.
    gc.freeze()
    gc.disable()
    trainer.fit(job.state, training_log(job.state, job.options["run"]), MetricsLog(job.state / CREDIT))
    save_policy(trainer.model, policy, Path(job.out["policy"]))
    store_records(job)
