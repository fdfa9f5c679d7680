"""The training loop of the engine ``torch``, from top to bottom: roll out, score, advantages, loss, step, log, save."""

import asyncio
import gc
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...cases import CaseRecord
from ...environment import run_episode
from ...environment.once import run_async
from ...settings.schema import Training
from ..algorithm import Group, check_finite, credit_line, score_groups
from ..training_run import CLIP_RATIO, MAX_GRAD_NORM, Log, training_log
from .update import AdamW, Sample, clipped_surrogate, micro_batches, pieces, samples_of, token_logprobs
from .weights import load_checkpoint, save_checkpoint, undone_by_errors

if TYPE_CHECKING:
    from .trainer import Trainer


def train(trainer: "Trainer", state: Path, log: Log | None = None, record: Log | None = None,
          steps: int | None = None) -> None:  # fmt: skip
    """Train until the last step of the run (or until ``steps``). An interrupted training resumes from the checkpoint in
    the folder ``state``, with the same result to the byte.

    ``log`` gets a row of metrics every iteration; by default it appends the row to ``state`` and prints the learning
    curve. ``record`` gets the records of credit of algorithms that have some. A reward or gradient that is not finite
    ends the run: the weights are those before that step, and the last row says so. Source: paper, section "Policy
    Update".
    """
    plan, checkpoint, log = trainer.settings.training, state / "checkpoint.pt", log or training_log(state)
    steps = trainer.run.steps if steps is None else steps
    if saved := load_checkpoint(checkpoint):
        trainer.load_state_dict(saved)
    else:
        log(trainer.validate())
    while trainer.step < steps:
        try:
            row = iterate(trainer, record)
        except FloatingPointError as error:
            # The message names the case.
            logging.getLogger(__name__).warning("%s", "a step diverged" if trainer.run.train[0].credentialed else error)
            log(trainer.progress | {"step": trainer.step + 1, "diverged": True})
            break
        gc.collect()
        last = trainer.step == steps
        if trainer.run.validation and (last or trainer.step % plan.validate_every == 0):
            row |= trainer.validate()
        log(row)
        if last or trainer.step % plan.save_every == 0:
            save_checkpoint(checkpoint, trainer.state_dict())


def iterate(trainer: "Trainer", record: Log | None = None) -> dict[str, Any]:
    """Run one iteration; returns its metrics. Raises FloatingPointError for a reward or gradient that is not finite."""
    begin, tokens, calls = trainer.clock(), trainer.generated, trainer.environment.calls.copy()
    trainer.refresh()
    # Roll out: a group of episodes for each case of the batch.
    groups = run_async(roll_out(trainer, trainer.step))
    rolled_out, rollout_tokens = trainer.clock(), trainer.generated - tokens
    # Score: the algorithm computes the advantage of every decision (CDPR: by counterfactual credit).
    scored = run_async(score_groups(trainer.algorithm, groups, trainer.step))
    credit = trainer.algorithm.finish(scored)
    check_finite(groups, scored)
    credited = trainer.clock()
    # Loss and step.
    samples, share = samples_of(groups, scored), trainer.step / trainer.run.steps
    metrics = update(trainer.model, trainer.optimizer, samples, trainer.settings.training, share)
    end = trainer.clock()
    trainer.advance(end - begin, trainer.generated - tokens)
    if record and (line := credit_line(trainer.step, scored)):
        record(line)
    return {
        **trainer.progress,
        **trainer.summary("train", [trajectory for group in groups for trajectory in group]),
        **credit,
        **metrics,
        "rollout/tokens": rollout_tokens,
        **{f"calls/{name}": count - calls[name] for name, count in trainer.environment.calls.items()},
        "time/rollout": rolled_out - begin,
        "time/credit": credited - rolled_out,
        "time/update": end - credited,
    }


async def roll_out(trainer: "Trainer", step: int) -> list[Group]:
    """Run the episodes of iteration ``step``, ``training.group_size`` of each case, all at the same time; returns one
    group for each case."""

    async def roll_out_case(case: CaseRecord) -> Group:
        """Run the group of one case."""
        seeds = [trainer.run.episode_seed(case, step, i) for i in range(trainer.settings.training.group_size)]
        return await asyncio.gather(*(run_episode(trainer.environment, trainer.policy, case, seed) for seed in seeds))

    return await asyncio.gather(*(roll_out_case(trainer.run.train[index]) for index in trainer.run.batch(step)))


def update(model: torch.nn.Module, optimizer: AdamW, groups: Sequence[Sequence[Sample]],
           plan: Training, progress: float = 0.0) -> dict[str, float]:  # fmt: skip
    """Update the policy on a batch, one optimiser step per mini-batch and inner epoch; returns the means over these
    steps of loss, clipped share, ratio drift, gradient norm and trained tokens. ``progress`` is the share of the run's
    steps that are done, for ``training.schedule``. Raises FloatingPointError for a gradient that is not finite; the
    weights are then those before the call."""
    decay = (1 + math.cos(math.pi * progress)) / 2 if plan.schedule == "cosine" else 1.0
    optimizer.learning_rate = plan.learning_rate * decay
    size = plan.mini_batch_prompts
    mini_batches = [groups[start : start + size] for start in range(0, len(groups), size)] * plan.inner_epochs
    model.train()
    try:
        with undone_by_errors(model, len(mini_batches) > 1):
            figures = [_optimizer_step(model, optimizer, mini_batch, plan) for mini_batch in mini_batches]
    finally:
        model.eval()
    return {name: sum(row[name] for row in figures) / len(figures) for name in figures[0]} if figures else {}


def _optimizer_step(model: torch.nn.Module, optimizer: AdamW, groups: Sequence[Sequence[Sample]],
                    plan: Training) -> dict[str, float]:  # fmt: skip
    """Make one optimiser step on a mini-batch, with gradients summed over its micro-batches; returns its metrics.
    Raises FloatingPointError for a gradient that is not finite."""
    samples = [sample for group in groups for sample in group]
    tokens, weight = sum(len(s.old_logprobs) for s in samples), math.fsum(w for s in samples for w in s.weights)
    scale = (weight if plan.loss_aggregation == "token_mean" else len(samples)) or 1.0
    loss_sum = clipped = drift = 0.0
    model.zero_grad(set_to_none=True)
    for rows in micro_batches(groups, plan.micro_batch):
        logprobs = token_logprobs(model, [pieces(row) for row in rows], plan.temperature)
        old, advantages, weights = (
            torch.tensor([x for row in rows for s in row for x in getattr(s, name)], device=logprobs.device)
            for name in ("old_logprobs", "advantages", "weights")
        )
        loss = clipped_surrogate(logprobs, old, advantages) * weights
        (loss.sum() / scale).backward()
        ratio = torch.exp((logprobs - old).detach())
        loss_sum += float(loss.detach().sum())
        clipped += float(((ratio - 1).abs() > CLIP_RATIO).sum())
        drift = max(drift, float((ratio - 1).abs().max())) if ratio.numel() else drift
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    if not torch.isfinite(norm):
        raise FloatingPointError("the gradient is not finite; the weights are those before the step")
    optimizer.step()
    return {
        "policy/loss": loss_sum / scale,
        "policy/clipped_share": clipped / max(1, tokens),
        "policy/max_ratio_drift": drift,
        "policy/grad_norm": float(norm),
        "policy/trained_tokens": float(tokens),
    }
