"""What a run tells verl, and whether it fits; needs no verl."""

from .configuration import check, overrides, report, resolve

__all__ = ["check", "overrides", "report", "resolve"]
