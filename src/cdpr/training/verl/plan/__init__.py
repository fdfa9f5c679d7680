"""What a run tells verl, and whether it fits; needs no verl."""

from .configuration import CHECKPOINTS, check, overrides, report, resolve

__all__ = ["CHECKPOINTS", "check", "overrides", "report", "resolve"]
