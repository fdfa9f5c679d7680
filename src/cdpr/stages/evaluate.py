"""Stage ``evaluate``."""

from ..evaluation.run import evaluate_agent as run

__all__ = ["run"]
