"""Language models: :func:`open_model` opens a :class:`Model` of any kind, in this process or on a server."""

# ruff: noqa: F401

from .spec import ModelSpec, open_model
from .types import Completion, Messages, Model, ModelFailure, ModelUnavailable, Sampling, Usage
