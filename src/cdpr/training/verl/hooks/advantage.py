"""The advantages that our algorithms gave, as one of verl's estimators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from ....settings.schema import Training
from .group import Finished

NAME = "cdpr"


@register_adv_est(NAME)
def given(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """A of every sampled token, (rows, tokens): the trainer has put it where verl expects rewards, because verl's
    estimators see nothing else."""
    advantages = token_level_rewards * response_mask
    return advantages, advantages


def given_rewards(
    keys: Sequence[str], masks: Sequence[torch.Tensor], finished: Finished, plan: Training
) -> list[torch.Tensor]:
    """What stands where verl expects the rewards of each row's tokens: their advantages, 0 for a row that teaches
    nothing.

    A token's weight in the loss is a factor of its advantage: the loss grows with it in proportion. verl divides the
    loss by what it counts in the mini-batch (here the batch): tokens, or rows under ``sequence_sum``; the torch trainer
    by the sum of weights, or trajectories. So all are multiplied by the quotient of the two.
    """
    scale = 1.0
    if finished.weights and plan.loss_aggregation == "token_mean":
        weights = [finished.weights.get(key, float(mask.sum())) for key, mask in zip(keys, masks, strict=True)]
        scale = float(sum(mask.sum() for mask in masks)) / sum(weights)
    elif finished.weights:
        scale = len(keys) / (plan.prompts_per_batch * plan.group_size)
    rewards = [finished.advantages.get(key, [0.0] * len(mask)) for key, mask in zip(keys, masks, strict=True)]
    return [torch.tensor(row, dtype=torch.float32) * scale for row in rewards]
