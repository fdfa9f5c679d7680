"""What every stage writes down about itself; MLflow as an index over it that can be rebuilt at any time."""

from .metrics import MetricsLog
from .stage import Run, StageError, stage

__all__ = ["MetricsLog", "Run", "StageError", "stage"]
