"""Stage ``leak_control``."""

from ..report.leak_control import write_leak_control as run

__all__ = ["run"]
