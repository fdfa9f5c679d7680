"""Language models behind one door: :func:`open_model` gives a :class:`Model`, whatever stands behind it."""

# ruff: noqa: F401

from .spec import ModelSpec, open_model
from .types import Completion, Messages, Model, ModelFailure, ModelUnavailable, Sampling, Usage
