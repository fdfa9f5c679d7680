"""The parts of a training with the engine ``torch`` (model, samplers, algorithm, optimiser), and their checkpoint."""

import gc
import time
from pathlib import Path
from typing import Any

import torch

from ...agents.policy import PolicyAgent
from ...cases import iterate_records
from ...environment import run_episodes
from ...job import Job
from ...llm import device_of, run_async
from ...llm.sampler import InProcessSampler
from ...metrics_log import MetricsLog
from ...settings import Settings
from ..algorithm import Context, open_algorithm
from ..training_run import CREDIT, VALIDATION_SEED, TrainingRun, open_training_log, write_training_outputs
from .loop import train
from .optimisers import AdamW
from .weights import load_model, save_policy

# Share of a GPU's free memory for each sampler's caches: gradients, the optimiser's state and activations come later.
_CACHE_SHARE = 0.15
_CHECKPOINTED = ("model", "optimizer", "algorithm")  # attributes of the trainer whose states a checkpoint has


def train_policy(settings: Settings, job: Job) -> None:
    """Stage ``train_policy`` with the engine torch: train a policy under the settings of one run, with the seed of
    ``job``. Writes the policy as a Hugging Face folder, its metrics, and its records of credit. A killed run resumes
    from its last checkpoint."""
    torch.set_num_threads(settings.training.threads)
    run = TrainingRun(settings, iterate_records(job.inputs["cases"]), job.inputs["init_policy"], job.seed or 0)
    job.tags.update(run.check_servers())  # the hosts that get credentialed text, for run.json
    run.count_cut_prompts(job)
    trainer = Trainer(run)
    # No automatic garbage collection, which costs a fifth of the time; `train` collects once an iteration.
    gc.freeze()
    gc.disable()
    train(trainer, job.state, open_training_log(job.state, job.options["run"]), MetricsLog(job.state / CREDIT))
    trainer.save(job.out["policy"])
    write_training_outputs(job)


class Trainer:
    """Model, samplers, algorithm and optimiser of one run, with everything that its next step depends on.
    :func:`~.loop.train` trains the model; :meth:`save` writes it.

    Raises SettingsError for a policy that is no whole Hugging Face folder, or an unknown algorithm; RuntimeError where
    ``policy.device`` asks for a GPU that is missing. Source: paper, section "Policy Update".
    """

    def __init__(self, run: TrainingRun):
        """Load the initial policy, and create sampler, optimiser and algorithm; step, seconds and tokens start at 0."""
        self.run, self.settings, self.environment = run, run.settings, run.environment
        self.device = device_of(run.settings.policy)
        # Jobs share the cores of a CPU, so only CPU time compares one training with another there.
        self.clock = time.process_time if self.device == "cpu" else time.perf_counter
        self.model = self._load_model()
        self.sampler = InProcessSampler.from_model(self.model, run.tokenizer, memory_share=_CACHE_SHARE)
        self.samplers = [self.sampler]
        self.policy = run.make_agent(self.sampler)
        training = run.settings.training
        self.optimizer = AdamW(self.model.parameters(), training.learning_rate, training.adam_epsilon)
        context = Context(
            run.settings, run.environment, self.policy, self._load_frozen_policy, run.seed,
            cases=run.train, steps=run.steps, load_initial_model=self._load_model,
        )  # fmt: skip
        self.algorithm = open_algorithm(context)
        self.step, self.seconds, self.tokens = 0, 0.0, 0

    def _load_model(self) -> torch.nn.Module:
        """Load a new model with the weights of the initial policy."""
        return load_model(self.run.policy, self.device, self.settings.policy.model == "tiny")

    def _load_frozen_policy(self) -> PolicyAgent:
        """Load the frozen policy: an agent with the initial weights, in a model and a sampler of its own."""
        sampler = InProcessSampler.from_model(self._load_model(), self.run.tokenizer, _CACHE_SHARE)
        self.samplers.append(sampler)
        return self.run.make_agent(sampler)

    def clear_caches(self) -> None:
        """Clear the caches of attention keys and values of all samplers, before an iteration. A resumed run has no
        cached values to reuse, and reuse changes sums in the last bit; so every iteration starts with empty caches."""
        for sampler in self.samplers:
            sampler.refresh()

    def validate(self) -> dict[str, Any]:
        """Evaluate the policy with greedy decoding on the validation cases; returns a row of metrics, with the progress
        of the training so far. The time and the tokens of a validation do not count as training."""
        self.sampler.refresh()
        agent = self.run.make_agent(self.sampler, temperature=0.0)
        episodes = run_async(run_episodes(self.environment, agent, self.run.validation, VALIDATION_SEED))
        return self.progress | self.run.validation_metrics(episodes)

    def advance(self, seconds: float, tokens: int) -> None:
        """Count one finished iteration, and add its ``seconds`` (of :attr:`clock`) and its generated ``tokens`` to the
        totals of the run."""
        self.step, self.seconds, self.tokens = self.step + 1, self.seconds + seconds, self.tokens + tokens

    @property
    def progress(self) -> dict[str, Any]:
        """The steps, seconds and generated tokens of the training so far, by name, as metrics."""
        return {"step": self.step, "seconds": self.seconds, "tokens": self.tokens}

    @property
    def generated_tokens(self) -> int:
        """The number of tokens that all samplers have generated so far."""
        return sum(sampler.counters["generated_tokens"] for sampler in self.samplers)

    def save(self, folder: Path) -> None:
        """Write the policy with its present weights to ``folder`` as a Hugging Face folder."""
        save_policy(self.model, self.run.policy, folder)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next step depends on, for a checkpoint: counters, weights, optimiser and
        algorithm."""
        return self.progress | {name: getattr(self, name).state_dict() for name in _CHECKPOINTED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore counters, weights, optimiser and algorithm from ``state``, a result of :meth:`state_dict`."""
        self.step, self.seconds, self.tokens = state["step"], state["seconds"], state["tokens"]
        for name in _CHECKPOINTED:
            getattr(self, name).load_state_dict(state[name])
