"""Advantages and loss against their definitions."""

from __future__ import annotations

import pytest
import torch

from cdpr.training.advantage import group_relative
from cdpr.training.loss import clipped_surrogate


def test_advantage_is_the_group_z_score_with_sample_deviation():
    scores = torch.tensor([[1.0, 0.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    got = group_relative(scores)
    assert torch.allclose(got[0], torch.tensor([0.5, -0.5, -0.5, 0.5]) / (scores[0].std() + 1e-6))
    assert torch.equal(got[1], torch.zeros(4))


def test_normalisations_agree_up_to_their_divisor():
    scores = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    centred = group_relative(scores, "none")
    assert torch.allclose(centred, scores - scores.mean(1, keepdim=True))
    assert torch.allclose(group_relative(scores, "floor", 100.0), centred / 100.0)
    assert torch.allclose(group_relative(scores, "floor", 1e-9), group_relative(scores), atol=1e-4)


def test_surrogate_by_hand():
    logprobs = torch.log(torch.tensor([1.5, 0.5, 1.5, 0.5, 5.0]))
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    loss = clipped_surrogate(logprobs, torch.zeros(5), advantages, 0.2, 3.0)
    assert torch.allclose(loss, torch.tensor([-1.2, -0.5, 1.5, 0.8, 3.0]))


def test_advantages_and_loss_equal_verl():
    core = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl is not installed")
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(6, 4, generator=generator)
    rewards = torch.zeros(24, 3)
    rewards[:, -1] = scores.flatten()
    import numpy as np

    expected, _ = core.compute_grpo_outcome_advantage(rewards, torch.ones(24, 3), np.repeat(np.arange(6), 4))
    assert torch.allclose(group_relative(scores).flatten(), expected[:, 0], atol=1e-6)
