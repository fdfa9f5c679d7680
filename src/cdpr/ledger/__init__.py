"""The paper's claims as facts, and what the results at hand say of each."""

from .page import write_claims
from .schema import ClaimsError, read_claims

__all__ = ["ClaimsError", "read_claims", "write_claims"]
