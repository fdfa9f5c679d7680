"""``claims.json``, typed: every claim with its verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from ..results.provenance import ProvenanceError, check_tier
from ..results.table import interval
from ..settings import Settings
from .verdict import COUNTED, MEASURED, UNDECIDABLE, Verdict


@dataclass(frozen=True, kw_only=True)
class _ClaimFields:
    id: str
    also: tuple[str, ...] = ()
    place: str = ""
    kind: str = ""
    says: str = ""
    headline: bool = False
    printed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Judged(Verdict, _ClaimFields):
    """What a claim says, and the verdict on it."""

    @property
    def figure(self) -> str:
        """What was measured, with its interval and unit; empty without."""
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


@dataclass(frozen=True)
class Ledger:
    """All claims; ``counts`` are the claims by what they count as, in the order of telling, ``headline``
    how many of them were measured."""

    __pydantic_config__ = ConfigDict(hide_input_in_errors=True)

    tier: str | None = None
    marks: str = ""
    decoding: str = ""
    headline: str = field(init=False)
    counts: dict[str, int] = field(init=False)
    claims: tuple[Judged, ...] = ()

    def __post_init__(self) -> None:
        counted = Counter(UNDECIDABLE if claim.kind == UNDECIDABLE else claim.verdict for claim in self.claims)
        object.__setattr__(self, "counts", {name: counted[name] for name in (*COUNTED, *counted)})
        measured, expected = sum(counted[name] for name in MEASURED), len(self.claims) - counted[UNDECIDABLE]
        headline = f"{measured} measured of {expected} claims; {counted[UNDECIDABLE]} more no result could ever decide"
        object.__setattr__(self, "headline", headline)


def read_ledger(settings: Settings, path: Path) -> Ledger | None:
    """The ledger, or None where there is none. Raises ProvenanceError for a ledger of another tier and for a file that
    is none."""
    if not path.exists():
        return None
    try:
        ledger = TypeAdapter(Ledger).validate_json(path.read_bytes())
    except ValueError as error:
        raise ProvenanceError(f"{path}: no ledger of claims ({error}); run the stage `write_claims` again") from error
    check_tier(settings, path, ledger.tier)
    return ledger
