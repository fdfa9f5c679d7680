"""The training loop of the engine ``torch``, from top to bottom: roll out, compute advantages, compute the loss, take
optimiser steps, log, save."""

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
from ...llm import run_async
from ...settings import Training
from ..algorithm import Group, check_finite, credit_record, score_groups
from ..training_run import CLIP_RATIO, MAX_GRAD_NORM, Log, open_training_log
from .optimisers import AdamW
from .update import Sample, clipped_surrogate, logprobs_and_entropies, make_samples, micro_batches, row_segments
from .weights import load_checkpoint, save_checkpoint

if TYPE_CHECKING:
    from .trainer import Trainer

#: The samples of a batch by group.
Batch = Sequence[Sequence[Sample]]


def train(
    trainer: "Trainer", state: Path, log: Log | None = None, record: Log | None = None, steps: int | None = None
) -> None:
    """Train until ``steps`` iterations are done, counted from the beginning of the run; None: all iterations of the
    run. An interrupted training resumes from the checkpoint in the folder ``state``, with the same result to the byte.

    ``log`` is called with a row of metrics after every iteration, and before the first one of a new run; by default it
    appends the row to a file in ``state`` and prints the learning curve. ``record`` is called with the credit of every
    iteration (process rewards, say), where the algorithm records it. An advantage or gradient that is not finite ends
    the run: the weights remain those before that iteration, and the last row says ``diverged``. Source: paper, section
    "Policy Update".
    """
    training, checkpoint, log = trainer.settings.training, state / "checkpoint.pt", log or open_training_log(state)
    steps = trainer.run.steps if steps is None else steps
    if saved := load_checkpoint(checkpoint):
        trainer.load_state_dict(saved)
    else:
        log(trainer.validate())
    while trainer.step < steps:
        try:
            row = iterate(trainer, record)
        except FloatingPointError as error:
            # The error names the case, which must not be logged for credentialed ones.
            message = "a step diverged" if trainer.run.train[0].credentialed else error
            logging.getLogger(__name__).warning("%s", message)
            log(trainer.progress | {"step": trainer.step + 1, "diverged": True})
            break
        gc.collect()  # the stage has switched automatic collection off
        last = trainer.step == steps
        if trainer.run.validation and (last or trainer.step % training.validate_every == 0):
            row |= trainer.validate()
        log(row)
        if last or trainer.step % training.save_every == 0:
            save_checkpoint(checkpoint, trainer.state_dict())


def iterate(trainer: "Trainer", record: Log | None = None) -> dict[str, Any]:
    """Run one iteration, from rollouts to optimiser steps; returns its row of metrics. ``record`` is called with the
    credit of the iteration, where the algorithm records it. Raises FloatingPointError for an advantage or gradient that
    is not finite; the weights are then those before the call."""
    begin, tokens, calls = trainer.clock(), trainer.generated_tokens, trainer.environment.calls.copy()
    trainer.clear_caches()
    # Roll out: a group of episodes for each case of the batch.
    groups = run_async(roll_out(trainer, trainer.step))
    rollout_end, rollout_tokens = trainer.clock(), trainer.generated_tokens - tokens
    # Score: the algorithm computes the advantage of every decision (CDPR: by counterfactual credit).
    scored = run_async(score_groups(trainer.algorithm, groups, trainer.step))
    credit_metrics = trainer.algorithm.finish_batch(scored)
    check_finite(groups, scored)  # again: finish_batch may change advantages
    credit_end = trainer.clock()
    # Update: compute the loss and take optimiser steps.
    samples, progress = make_samples(groups, scored), trainer.step / trainer.run.steps
    update_metrics = update(trainer.model, trainer.optimizer, samples, trainer.settings.training, progress)
    end = trainer.clock()
    trainer.advance(end - begin, trainer.generated_tokens - tokens)
    if record and (line := credit_record(trainer.step, scored)):
        record(line)
    row = trainer.progress | trainer.run.summarise("train", [trajectory for group in groups for trajectory in group])
    row |= credit_metrics | update_metrics | {"rollout/tokens": rollout_tokens}
    row |= {f"calls/{name}": count - calls[name] for name, count in trainer.environment.calls.items()}
    times = {"rollout": rollout_end - begin, "credit": credit_end - rollout_end, "update": end - credit_end}
    return row | {f"time/{name}": seconds for name, seconds in times.items()}


async def roll_out(trainer: "Trainer", step: int) -> list[Group]:
    """Run the episodes of iteration ``step`` concurrently, ``training.group_size`` for each case of its batch. Returns
    one group of trajectories for each case."""

    async def roll_out_case(case: CaseRecord) -> Group:
        """Run the ``training.group_size`` episodes of one case, each with a seed of its own."""
        seeds = [trainer.run.episode_seed(case, step, i) for i in range(trainer.settings.training.group_size)]
        return await asyncio.gather(*(run_episode(trainer.environment, trainer.policy, case, seed) for seed in seeds))

    return await asyncio.gather(*(roll_out_case(trainer.run.train[index]) for index in trainer.run.batch_indices(step)))


def update(
    model: torch.nn.Module, optimizer: AdamW, groups: Batch, training: Training, progress: float = 0.0
) -> dict[str, float]:
    """Update the policy on a batch, one optimiser step per mini-batch and inner epoch. ``groups`` has the samples of
    each group. Returns the metrics of :func:`_take_step`, as means over these steps, by name; empty without groups.

    ``progress`` is the share of the run's iterations that are done; with ``training.schedule: cosine`` it lowers the
    learning rate. Raises FloatingPointError for a gradient that is not finite; the weights are then those before the
    call."""
    decay = (1 + math.cos(math.pi * progress)) / 2 if training.schedule == "cosine" else 1.0
    optimizer.learning_rate = training.learning_rate * decay
    size = training.mini_batch_prompts
    mini_batches = [groups[start : start + size] for start in range(0, len(groups), size)] * training.inner_epochs
    # A single step that fails has not changed the weights yet, so there is nothing to restore.
    trained = [p for p in model.parameters() if p.requires_grad] if len(mini_batches) > 1 else []
    before = [p.detach().to("cpu", copy=True) for p in trained]
    model.train()
    try:
        rows = [_take_step(model, optimizer, mini_batch, training) for mini_batch in mini_batches]
    except FloatingPointError:
        for parameter, values in zip(trained, before, strict=True):
            parameter.data.copy_(values)
        raise
    finally:
        model.eval()
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]} if rows else {}


def _take_step(model: torch.nn.Module, optimizer: AdamW, groups: Batch, training: Training) -> dict[str, float]:
    """Take one optimiser step on a mini-batch, with gradients summed over micro-batches. The loss is the policy loss,
    minus ``training.entropy_weight`` times the policy's mean entropy. Returns metrics by name: the policy loss; the
    share of tokens whose ratio of new to old probability is outside the clip range; the largest drift of this ratio,
    |ratio - 1|; the gradient norm; the number of trained tokens; and, with an entropy bonus, the mean entropy. Raises
    FloatingPointError for a gradient that is not finite; the weights are then unchanged."""
    samples = [sample for group in groups for sample in group]
    tokens = sum(len(sample.old_logprobs) for sample in samples)
    total_weight = math.fsum(weight for sample in samples for weight in sample.weights)
    # The policy loss and the mean entropy are weighted sums over tokens, divided by this number.
    divisor = (total_weight if training.loss_aggregation == "token_mean" else len(samples)) or 1.0  # not by 0
    loss_sum = entropy_sum = clipped = max_drift = 0.0
    model.zero_grad(set_to_none=True)
    # Sum the gradients of all micro-batches.
    for rows in micro_batches(groups, training.micro_batch):
        logprobs, entropies = logprobs_and_entropies(
            model, [row_segments(row) for row in rows], training.temperature, training.entropy_weight > 0
        )
        # Values of all generated tokens, in the same order as ``logprobs``.
        old, advantages, weights = (
            torch.tensor([x for row in rows for sample in row for x in getattr(sample, name)], device=logprobs.device)
            for name in ("old_logprobs", "advantages", "weights")
        )
        loss = clipped_surrogate(logprobs, old, advantages) * weights
        loss_sum += float(loss.detach().sum())
        if entropies is not None:
            entropy_sum += float((entropies.detach() * weights).sum())
            loss = loss - training.entropy_weight * entropies * weights
        (loss.sum() / divisor).backward()
        drift = (torch.exp((logprobs - old).detach()) - 1).abs()
        clipped += float((drift > CLIP_RATIO).sum())
        max_drift = max(max_drift, float(drift.max())) if drift.numel() else max_drift
    # Clip the gradient and take the step.
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
    if not torch.isfinite(norm):
        raise FloatingPointError("the gradient is not finite; the weights are those before the step")
    optimizer.step()
    metrics = {
        "policy/loss": loss_sum / divisor,
        "policy/clipped_share": clipped / max(1, tokens),
        "policy/max_ratio_drift": max_drift,
        "policy/grad_norm": float(norm),
        "policy/trained_tokens": float(tokens),
    }
    if training.entropy_weight:
        metrics["policy/entropy"] = entropy_sum / divisor
    return metrics
