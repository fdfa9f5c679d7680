"""Language models behind one door: :func:`open_model` gives a :class:`Model`, whatever stands behind it."""

from .spec import ModelSpec, open_model
from .types import Completion, Messages, Model, ModelFailure, ModelUnavailable, Sampling

__all__ = [
    "Completion",
    "Messages",
    "Model",
    "ModelFailure",
    "ModelSpec",
    "ModelUnavailable",
    "Sampling",
    "open_model",
]
