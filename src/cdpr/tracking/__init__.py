"""What every stage writes down about itself; MLflow as an index over it that can be rebuilt at any time."""

from ..metrics_log import MetricsLog
from .stage import StageError, stage

__all__ = ["MetricsLog", "StageError", "stage"]
