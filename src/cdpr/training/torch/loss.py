"""The clipped surrogate (paper, section "Policy Update"; conventions of verl)."""

from __future__ import annotations

import torch


def clipped_surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    clip_ratio: float,
    dual_clip: float,
) -> torch.Tensor:
    """Loss of each token: -min(rho A, clip(rho, 1-eps, 1+eps) A), bounded by -dual_clip A where A < 0.

    All arguments have the same shape; the log-ratio is clamped to +-20, as in verl.
    """
    ratio = torch.exp((logprobs - old_logprobs).clamp(-20, 20))
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - clip_ratio, 1 + clip_ratio))
    return torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)
