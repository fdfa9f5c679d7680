"""Stage ``plot_credit_quality``."""

from ..report.credit_quality import plot_credit_quality as run

__all__ = ["run"]
