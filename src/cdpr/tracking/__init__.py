"""Records of every stage; MLflow as an index over them that can be rebuilt at any time."""

from .frame import StageError, stage

__all__ = ["StageError", "stage"]
