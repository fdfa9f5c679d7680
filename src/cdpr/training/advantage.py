"""Group-relative advantages (paper, section "Group-relative Advantage"; conventions of verl)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

EPSILON = 1e-6


def group_relative(scores: torch.Tensor, normalise: str = "group_std", floor: float = 0.25) -> torch.Tensor:
    """A = (G - mean_G) / (sigma_G + 1e-6) within each group.

    ``scores``: (groups, n) trajectory scores; returns the same shape. sigma_G is the sample standard
    deviation, as in verl. ``normalise``: ``group_std``; ``none`` centres only; ``floor`` divides by the
    larger of sigma_G and ``floor``. A group of one keeps its score (mean 0, deviation 1), as in verl; a group
    of equal scores gets exactly 0, which rounding of the mean might miss.
    """
    if scores.shape[1] == 1:
        return scores.clone() if normalise != "group_std" else scores / (1 + EPSILON)
    equal = (scores == scores[:, :1]).all(dim=1, keepdim=True)
    centred = (scores - scores.mean(dim=1, keepdim=True)).masked_fill(equal, 0.0)
    if normalise == "none":
        return centred
    sigma = scores.std(dim=1, keepdim=True)
    if normalise == "floor":
        return centred / sigma.clamp_min(floor)
    return centred / (sigma + EPSILON)
