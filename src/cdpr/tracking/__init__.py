"""Records of every stage; MLflow as an index over them that can be rebuilt at any time."""

from ..metrics_log import MetricsLog
from .frame import StageError, stage

__all__ = ["MetricsLog", "StageError", "stage"]
