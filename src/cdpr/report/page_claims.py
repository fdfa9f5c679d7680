"""The ledger of claims and the audit of the paper, as the page shows them: ``claims.json``, typed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from ..ledger.verdict import COUNTED, UNDECIDABLE
from ..results.provenance import ProvenanceError, check_tier
from ..results.table import interval
from ..settings import Settings


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class ShownClaim(_Entry):
    """A claim with its verdict and what stands behind it."""

    id: str = Field(min_length=1)
    verdict: str = Field(min_length=1)
    kind: str = ""
    place: str = ""
    says: str = ""
    headline: bool = False
    why: str = ""
    printed: list[str] = []
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    clear: bool | None = None
    k: str = ""
    n: int | str | None = None
    seeds: list[int] = []
    runs: list[str] = []

    @property
    def figure(self) -> str:
        """What was measured, with its interval and unit, and whether that settles the matter; empty without."""
        if self.measured is None:
            return ""
        text = f"{self.measured:.4g}"
        if self.low is not None and self.high is not None:
            digits = 2 if max(abs(self.low), abs(self.high)) >= 1 else 3
            text = interval(self.measured, self.low, self.high, digits)
        return f"{text} {self.unit}".rstrip()

    @property
    def cases(self) -> str:
        """``58 / 100, seeds 0, 1``."""
        of = f"{self.k} / {self.n}" if self.k and self.n else f"N = {self.n}" if self.n else ""
        seeds = f"seeds {', '.join(map(str, self.seeds))}" if self.seeds else ""
        return ", ".join(filter(None, (of, seeds)))


class ShownCheck(_Entry):
    """A number of the paper, recomputed from its others."""

    id: str
    place: str = ""
    says: str = ""
    printed: str = ""
    recomputed: str = ""
    agrees: bool = False
    note: str = ""


class ShownLedger(_Entry):
    """All claims and checks."""

    tier: str | None = None
    claims: list[ShownClaim] = []
    audit: list[ShownCheck] = []

    @property
    def counts(self) -> dict[str, int]:
        """How many claims count as what, in the order of telling."""
        counted = Counter(UNDECIDABLE if claim.kind == UNDECIDABLE else claim.verdict for claim in self.claims)
        return {name: counted[name] for name in (*COUNTED, *counted)}


def read_ledger(settings: Settings, path: Path) -> ShownLedger | None:
    """The ledger, or None where there is none. Raises ProvenanceError for a ledger of another tier and for a file that
    is none."""
    if not path.exists():
        return None
    try:
        ledger = ShownLedger.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise ProvenanceError(f"{path}: no ledger of claims ({error}); run the stage `write_claims` again") from error
    check_tier(settings, path, ledger.tier)
    return ledger


def slug(verdict: str) -> str:
    """A verdict as a class of the page's style; one that is not known looks like `not run`."""
    return (verdict if verdict in COUNTED else "not run").replace(" ", "-")
