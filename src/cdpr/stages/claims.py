"""Stage ``claims``."""

from ..ledger.page import write_claims as run

__all__ = ["run"]
