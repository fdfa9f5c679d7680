"""The ledger of claims and the audit of the paper, as the page shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ledger.audit import AuditFinding
from ..ledger.verdict import COUNTED, counted_as
from ..results.provenance import ProvenanceError, check_tier, read_record
from ..results.table import interval
from ..settings import Settings


@dataclass(frozen=True)
class Claim:
    """A claim, as text; ``slug`` is the verdict as a class of the page's style, ``runs`` are (name, anchor)."""

    id: str
    place: str
    says: str
    verdict: str
    slug: str
    headline: bool
    why: str
    printed: str
    measured: str
    clear: str
    cases: str
    runs: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Claims:
    """The ledger: how many claims count as what, the claims, the findings."""

    counts: Sequence[tuple[str, str, int]]
    claims: Sequence[Claim]
    audit: Sequence[AuditFinding]

    @property
    def headlines(self) -> list[Claim]:
        """The claims that the paper stands on."""
        return [claim for claim in self.claims if claim.headline]

    @property
    def disagreements(self) -> list[AuditFinding]:
        """The findings that do not agree."""
        return [finding for finding in self.audit if not finding.agrees]


def read_claims(settings: Settings, path: Path, anchor_of: Callable[[str], str]) -> Claims | None:
    """The ledger, or None where there is none. ``anchor_of`` leads from a run to its place on the page. Raises
    ProvenanceError for a ledger of another tier, one that is no JSON, or an entry without an id or a verdict."""
    if not path.exists():
        return None
    content = read_record(path)
    check_tier(settings, path, content)
    entries = _entries(path, content, "claims")
    claims = [_claim(path, entry, anchor_of) for entry in entries]
    counted = dict.fromkeys(COUNTED, 0)
    for claim, entry in zip(claims, entries, strict=True):
        name = counted_as(_text(entry.get("kind")), claim.verdict)
        counted[name] = counted.get(name, 0) + 1
    audit = [_finding(entry) for entry in _entries(path, content, "audit")]
    return Claims([(name, slug(name), count) for name, count in counted.items()], claims, audit)


def slug(verdict: str) -> str:
    """A verdict as a class name; one that is not known looks like `not run`."""
    return (verdict if verdict in COUNTED else "not run").replace(" ", "-")


def _entries(path: Path, content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    entries = content.get(name) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ProvenanceError(f"{path}: field {name!r}: expected a list of objects; run the stage `claims` again")
    return entries


def _claim(path: Path, entry: Mapping[str, Any], anchor_of: Callable[[str], str]) -> Claim:
    if not entry.get("id") or not entry.get("verdict"):
        raise ProvenanceError(f"{path}: claim {entry.get('id')!r}: no id or no verdict; run the stage `claims` again")
    # `not run (why)` counts as `not run`, with its reason.
    verdict, _, reason = str(entry["verdict"]).partition(" (")
    clear = entry.get("clear")
    runs = entry.get("runs") or []
    runs = runs if isinstance(runs, list) else [runs]
    return Claim(
        id=_text(entry["id"]), place=_text(entry.get("place")), says=_text(entry.get("says")), verdict=verdict,
        slug=slug(verdict), headline=bool(entry.get("headline")), why=_text(entry.get("why")) or reason.rstrip(")"),
        printed=_text(entry.get("printed")), measured=_measured(entry),
        clear="" if clear is None else "clear" if clear else "not clear", cases=_cases(entry),
        runs=[(str(run), anchor_of(str(run))) for run in runs],
    )  # fmt: skip


def _finding(entry: Mapping[str, Any]) -> AuditFinding:
    texts = {name: _text(entry.get(name)) for name in ("id", "place", "says", "printed", "recomputed", "note")}
    return AuditFinding(**texts, agrees=bool(entry.get("agrees")))


def _measured(entry: Mapping[str, Any]) -> str:
    measured, low, high = (entry.get(name) for name in ("measured", "low", "high"))
    unit = f" {_text(entry['unit'])}" if entry.get("unit") else ""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (measured, low, high)):
        return interval(measured, low, high, 2 if max(abs(low), abs(high)) >= 1 else 3) + unit
    return "" if measured is None else _text(measured) + unit


def _cases(entry: Mapping[str, Any]) -> str:
    k, n, seeds = (_text(entry.get(name)) for name in ("k", "n", "seeds"))
    of = f"{k} / {n}" if k and n else f"N = {n}" if n else ""
    return ", ".join(filter(None, (of, f"seeds {seeds}" if seeds else "")))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)
