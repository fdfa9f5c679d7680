"""The optimiser Muon, for the hidden matrices of the tiny policy and of readers of its size, and a schedule."""

import math
from collections import defaultdict
from collections.abc import Iterable

import torch

# Coefficients of the polynomial that brings singular values near 1 in five steps, by the authors of Muon.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """The optimiser Muon (Jordan et al. 2024): steepest descent of hidden matrices in the spectral norm.

    It equals ``torch.optim.Muon`` with its default momentum (0.95, Nesterov) and learning-rate adjustment, but computes
    in the precision of the parameters: bfloat16, as in torch, takes 17 times as long on processors without
    instructions for it. All parameters are matrices; those of one shape are updated together.
    """

    def __init__(self, matrices: Iterable[torch.nn.Parameter], lr: float, weight_decay: float):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": 0.95})

    @torch.no_grad()
    def step(self, closure=None):
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    shapes[p.shape].append(p)
            for (rows, columns), matrices in shapes.items():
                directions = [self._direction(p, p.grad, group["momentum"]) for p in matrices]
                scale = group["lr"] * max(1.0, rows / columns) ** 0.5
                for p, update in zip(matrices, orthogonal(torch.stack(directions)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-scale)

    def _direction(self, p: torch.nn.Parameter, gradient: torch.Tensor, momentum: float) -> torch.Tensor:
        """Update the momentum of a matrix; returns its gradient with Nesterov momentum."""
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        return gradient.lerp(state["momentum"].lerp_(gradient, 1 - momentum), momentum)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of matrices [N, rows, columns] near 1 by Newton-Schulz iteration; their singular
    vectors stay."""
    wide = matrices.mT if matrices.shape[-2] > matrices.shape[-1] else matrices
    x = wide / wide.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if matrices.shape[-2] > matrices.shape[-1] else x


def matrices_and_rest(model: torch.nn.Module) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Split the parameters of a language model into its hidden matrices, which Muon trains, and all others."""
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "head" not in n]
    return hidden, [p for p in model.parameters() if all(p is not matrix for matrix in hidden)]


def rise_and_fall(step: int, steps: int, rise: int) -> float:
    """Compute the share of the peak learning rate in ``step`` of ``steps``: it rises linearly in the first ``rise``
    steps, and falls as half a cosine to 0."""
    return min((step + 1) / rise, 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps))))
