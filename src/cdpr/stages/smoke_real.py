"""Stage ``smoke_real``."""

from ..evaluation.smoke_real import try_real_model as run

__all__ = ["run"]
