"""Language models. :func:`open_model` opens the :class:`Model` that a :class:`ModelSpec` describes: weights in this
process, or a model on a server."""

# ruff: noqa: F401

from .spec import ModelSpec, open_model
from .types import Completion, Messages, Model, ModelFailure, ModelUnavailable, Sampling, Usage
