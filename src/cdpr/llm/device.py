"""Where a model of this process computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings.schema import Policy


def device_of(policy: Policy) -> str:
    """``cpu`` or ``cuda``. Raises RuntimeError for a GPU that is asked for and not there."""
    if policy.device == "cpu" or (policy.device == "auto" and policy.model == "tiny"):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if policy.device == "cuda":
        raise RuntimeError("policy.device: cuda, but torch finds no GPU; install a CUDA build of torch, or say auto")
    return "cpu"
