"""Linear layers of a model that is trained in float32 on a CPU: oneDNN forward and backward.

Torch multiplies with MKL there, which leaves half of an AMD processor idle (see ``llm/transformer.py``).
"""

from __future__ import annotations

import torch

from ...llm.transformer import ONEDNN_LINEAR, padded


class _Product(torch.autograd.Function):
    """``x @ weight.T`` and its gradients; ``x`` [..., in], ``weight`` [out, in]."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        return (
            _multiply(flat, weight.t().contiguous()).view_as(x) if ctx.needs_input_grad[0] else None,
            flat.t() @ x.reshape(-1, x.shape[-1]) if ctx.needs_input_grad[1] else None,
        )


class _Linear(torch.nn.Linear):
    def forward(self, x):
        return _Product.apply(x, self.weight)


def _multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return ONEDNN_LINEAR(x, weight, None, "none", [], "")


def use_onednn(model: torch.nn.Module) -> torch.nn.Module:
    """The model, its linear layers without bias computed by oneDNN where torch has it; otherwise as it was."""
    for layer in model.modules() if ONEDNN_LINEAR is not None else ():
        weight = getattr(layer, "weight", None)
        plain = type(layer) is torch.nn.Linear and layer.bias is None
        if plain and weight.device.type == "cpu" and weight.dtype == torch.float32:
            layer.__class__ = _Linear
    return model


def padded_width(model: torch.nn.Module, longest: int) -> int:
    """To how many tokens a batch is best padded whose longest sequence has ``longest``."""
    return padded(longest) if any(type(layer) is _Linear for layer in model.modules()) else longest
