"""The optimisers AdamW, and Muon with AdamW, and a schedule of their learning rates.

They are no subclasses of ``torch.optim.Optimizer``: using that class imports a compiler, which takes longer than a
short training.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.adamw import adamw

from ..training_run import WEIGHT_DECAY

# By the authors of Muon: five steps of the polynomial A x + B x^3 + C x^5 bring singular values x near 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_MOMENTUM = 0.95  # of Muon


class AdamW:
    """AdamW with the defaults of ``torch.optim.AdamW``. It calls torch's function ``adamw``, because using the
    optimiser class imports a compiler, which takes seconds.

    A step moves a weight by about the learning rate, however small its gradient is, unless it is small against
    ``epsilon``. In a model whose output layer is its embeddings, every token has a gradient in every step."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float, epsilon: float = 1e-8):
        """Keep the ``parameters`` as a list; a parameter gets its moving averages in its first step."""
        self.parameters, self.learning_rate, self.epsilon = list(parameters), learning_rate, epsilon
        self.states: dict[int, dict[str, torch.Tensor]] = {}  # step and moving averages, by number of the parameter

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        trained = {number: p for number, p in enumerate(self.parameters) if p.grad is not None}
        # The condition, which is true for all of them, is for the type checker.
        gradients = [p.grad for p in trained.values() if p.grad is not None]
        # The state of a parameter begins with zeros.
        for number in trained.keys() - self.states.keys():
            zero, step = torch.zeros_like(trained[number]), torch.zeros((), device=trained[number].device)
            self.states[number] = {"mean": zero, "square": zero.clone(), "step": step}
        # Of the parameters that have a gradient: moving averages of gradients and of their squares, and step counts.
        means, squares, steps = ([self.states[n][name] for n in trained] for name in ("mean", "square", "step"))
        options: dict[str, Any] = {"lr": self.learning_rate, "beta1": 0.9, "beta2": 0.999, "eps": self.epsilon}
        options |= {"weight_decay": WEIGHT_DECAY, "amsgrad": False, "maximize": False, "fused": True}
        adamw(list(trained.values()), gradients, means, squares, [], steps, **options)

    def state_dict(self) -> dict[int, dict[str, torch.Tensor]]:
        """Return the state for a checkpoint: by the number of a parameter its step count and moving averages."""
        return self.states

    def load_state_dict(self, states: dict[int, dict[str, torch.Tensor]]) -> None:
        """Restore step counts and moving averages from ``states``, a result of :meth:`state_dict`, on the devices of
        the parameters."""
        for number, tensors in states.items():
            device = self.parameters[number].device
            self.states[number] = {name: tensor.to(device) for name, tensor in tensors.items()}


class MuonAndAdamW:
    """Muon for the hidden matrices of a language model, AdamW for its other parameters and for those in ``further``.
    ``muon_rate`` and ``adam_rate`` are their peak learning rates. Without a ``model`` only ``further`` is trained.

    Muon (Jordan et al. 2024) is steepest descent of matrices in the spectral norm. This one equals ``torch.optim.Muon``
    with its default momentum (0.95, Nesterov) and learning-rate adjustment, but computes in the precision of the
    parameters. Torch computes in bfloat16, which takes 17 times as long on processors without instructions for it.
    """

    def __init__(
        self,
        model: torch.nn.Module | None,
        muon_rate: float,
        adam_rate: float,
        further: Any = (),
        epsilon: float = 1e-8,
    ):
        """Divide the parameters between Muon (hidden matrices) and AdamW (embeddings, heads, vectors and
        ``further``), which gets ``epsilon``."""
        self.matrices: list[torch.nn.Parameter] = []
        others = list(further)
        for name, p in model.named_parameters() if model else ():
            is_hidden_matrix = p.ndim == 2 and "embed" not in name and "head" not in name
            trained_with = self.matrices if is_hidden_matrix else others
            trained_with.append(p)
        self.momenta = [torch.zeros_like(matrix) for matrix in self.matrices]
        self.muon_rate, self.adam_rate, self.adam = muon_rate, adam_rate, AdamW(others, adam_rate, epsilon)

    @torch.no_grad()
    def step(self, rate_share: float) -> None:
        """Update all parameters that have a gradient, at the share ``rate_share`` of both peak learning rates."""
        learning_rate, self.adam.learning_rate = self.muon_rate * rate_share, self.adam_rate * rate_share
        self.adam.step()
        numbers_by_shape: dict[torch.Size, list[int]] = defaultdict(list)
        for number, matrix in enumerate(self.matrices):
            if matrix.grad is not None:
                numbers_by_shape[matrix.shape].append(number)
        for (rows, columns), numbers in numbers_by_shape.items():  # matrices of one shape are updated together
            nesterov = []
            for number in numbers:
                gradient: Any = self.matrices[number].grad
                momentum = self.momenta[number].lerp_(gradient, 1 - _MOMENTUM)  # a moving average, updated in place
                nesterov.append(gradient.lerp(momentum, _MOMENTUM))  # the gradient moved towards the momentum
            # Muon's adjustment to the shape of the matrices.
            step_size = learning_rate * max(1.0, rows / columns) ** 0.5
            for number, direction in zip(numbers, orthogonalise(torch.stack(nesterov)), strict=True):
                self.matrices[number].mul_(1 - learning_rate * WEIGHT_DECAY).add_(direction, alpha=-step_size)

    def state_dict(self) -> dict[str, Any]:
        """Return Muon's momenta and the state of AdamW, for a checkpoint."""
        return {"momenta": self.momenta, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore Muon's momenta and the state of AdamW from ``state``, a result of :meth:`state_dict`."""
        for momentum, saved in zip(self.momenta, state["momenta"], strict=True):
            momentum.copy_(saved)
        self.adam.load_state_dict(state["adam"])


def orthogonalise(matrices: torch.Tensor) -> torch.Tensor:
    """Bring the singular values of matrices [N, rows, columns] near 1 by Newton-Schulz iteration, and keep their
    singular vectors; returns the same shape."""
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if is_tall else matrices  # the smaller of the two Gram matrices is cheaper
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = _A * x + (_B * gram + _C * gram @ gram) @ x
    return x.mT if is_tall else x


def warmup_and_cosine(step: int, steps: int, warmup: int) -> float:
    """Compute the share of the peak learning rate in ``step`` (from 0) of ``steps``: the smaller one of a linear rise
    over the first ``warmup`` steps and of half a cosine that falls from 1 to 0 over all steps."""
    return min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps))))
