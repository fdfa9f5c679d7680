"""Stage ``credit_quality``: what process rewards are worth as estimates of the advantage."""

from ..analysis.credit_quality import measure_credit_quality as run

__all__ = ["run"]
