"""Muon (Jordan et al. 2024) in single precision: steepest descent of hidden matrices in the spectral norm."""

from __future__ import annotations

from collections.abc import Iterable

import torch

# The polynomial that brings singular values near 1 in five steps, as the method's authors chose it.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """``torch.optim.Muon`` with its default momentum (0.95, Nesterov) and learning-rate adjustment, but in the
    parameters' own precision: torch's works in bfloat16, which takes 17 times as long on processors without
    instructions for it. Parameters are matrices; those of one shape are updated together."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter], lr: float, weight_decay: float):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for (rows, columns), matrices in shapes.items():
                directions = [self._direction(p, group["momentum"]) for p in matrices]
                scale = group["lr"] * max(1.0, rows / columns) ** 0.5
                for p, update in zip(matrices, orthogonal(torch.stack(directions)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)

    def _direction(self, p: torch.nn.Parameter, momentum: float) -> torch.Tensor:
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        average = state["momentum"].lerp_(p.grad, 1 - momentum)
        return p.grad.lerp(average, momentum)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """The matrices (N, rows, columns) with all singular values brought near 1, by Newton-Schulz iteration."""
    wide = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x
