"""Language models. :func:`open_model` opens the :class:`Model` that a :class:`ModelSpec` describes: weights in this
process, or a model on a server."""

# ruff: noqa: F401

from .guard import GovernanceError, is_local
from .once import Once, gather_all, run_async
from .spec import ModelSpec, device_of, modules_of, open_model
from .types import CASE, DATASET, SYSTEM, Completion, Messages, Model, ModelFailure, ModelUnavailable, Sampling, Usage
