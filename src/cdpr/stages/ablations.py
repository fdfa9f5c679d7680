"""Stage ``ablations``."""

from ..report.ablations import write_ablations as run

__all__ = ["run"]
