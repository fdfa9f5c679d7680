"""The ledger as JSON, as a page to read and as a table."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from ..files import with_suffix, write_text
from ..results.methods import tier_mark
from ..results.sources import notices
from ..results.table import Column, Row, Table, interval, markdown_page, number, to_csv, to_markdown
from ..settings import Settings
from .measure import Evidence
from .outcome import VERDICTS
from .schema import Claim, read_claims
from .verdict import judge

_DIGITS = 6


def write_claims(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> dict[str, int]:
    """Write ``out_stem`` + ``.json``, ``.md`` and ``.csv``; returns how many claims have each verdict.

    What was not run, or is missing, is a verdict of its own. Raises ClaimsError for a malformed ledger,
    ProvenanceError, EvaluationError or CurveError for results that cannot be used; nothing is written then.
    """
    ledger = make_ledger(settings, results_dir, read_claims())
    forms = {
        ".json": json.dumps(ledger, indent=1, ensure_ascii=False) + "\n",
        ".md": _page(settings, ledger),
        ".csv": to_csv(_plain_table(ledger["claims"])),
    }
    for suffix, text in forms.items():
        write_text(with_suffix(out_stem, suffix), text)
    return ledger["counts"]


def make_ledger(settings: Settings, results_dir: str | Path, claims: Sequence[Claim]) -> dict[str, Any]:
    """Tier, counts by verdict, every claim with its verdict, and the audit of the paper against itself."""
    evidence = Evidence(settings, results_dir)
    entries = [_entry(claim, evidence) for claim in claims]
    counted = Counter(entry["verdict"] for entry in entries)
    return {
        "tier": settings.tier, "marks": tier_mark(settings), "decoding": evidence.decoding,
        "counts": {verdict: counted[verdict] for verdict in VERDICTS}, "claims": entries, "audit": _audit(),
    }  # fmt: skip


def _entry(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    outcome = asdict(judge(claim, evidence))
    for name in ("measured", "low", "high"):
        outcome[name] = _rounded(outcome[name])
    said = {name: getattr(claim, name) for name in ("id", "place", "kind", "says", "headline")}
    return said | {"printed": list(claim.printed)} | outcome


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), _DIGITS) + 0.0


def _audit() -> list[dict[str, Any]]:
    from .audit import audit_paper

    return [finding.as_dict() for finding in audit_paper()]


def _page(settings: Settings, ledger: Mapping[str, Any]) -> str:
    entries = ledger["claims"]
    headlines = [entry for entry in entries if entry["headline"]]
    parts = [("What holds here", _counts(settings, ledger)), ("Headline claims", to_markdown(_table(headlines)))]
    by_place = {place: list(group) for place, group in groupby(_by_place(entries), key=lambda entry: entry["place"])}
    parts += [(place, to_markdown(_table(group))) for place, group in by_place.items()]
    disagree = sum(not finding["agrees"] for finding in ledger["audit"])
    title = f"The paper against itself: {disagree} of {len(ledger['audit'])} checks do not agree"
    parts.append((title, to_markdown(_audit_table(ledger["audit"]))))
    return markdown_page(f"The paper's claims ({ledger['marks']})", parts)


def _counts(settings: Settings, ledger: Mapping[str, Any]) -> str:
    rows = [Row({"verdict": name, "claims": count, "means": _MEANS[name]}) for name, count in ledger["counts"].items()]
    heads = {"verdict": "Verdict", "claims": "Claims", "means": "Meaning"}
    columns = [Column(name, header, align="l") for name, header in heads.items()]
    notes = [
        "On synthetic or private cases, an average that holds them, at another tier or with another backbone than the "
        "paper's no printed figure is compared and no claim is more than `same direction`.",
        f"{ledger['decoding'].capitalize()} decoding. Intervals are 95%: paired bootstrap over cases, seeds averaged "
        "per case; for training times, tokens and curves Student's over seeds. `clear`: the interval settles the "
        "matter. Training seconds are wall-clock times of jobs that may have run side by side; tokens do not depend on "
        "the machine. "
        "Verdicts are not corrected for their number.",
        *notices(settings),
    ]
    return to_markdown(Table(columns, rows, notes=notes))


_CLEAR = {None: "", True: ", clear", False: ", not clear"}
_MEANS = {
    "reproduced": "on the data, at the scale and with the backbone of the paper: the printed figure in the interval, "
                  "or the claimed direction with an interval that excludes the contrary",
    "same direction": "the estimate lies on the claimed side",
    "not supported": "the estimate does not lie on the claimed side; the interval leaves it open",
    "deviates": "the interval excludes what is claimed or printed",
    "not run": "nothing was measured that could be held against it",
    "as stated": "of the configuration, no result: this run is set up as the paper says",
    "set otherwise": "of the configuration, no result: this run is set up differently",
}  # fmt: skip


def _table(entries: Sequence[Mapping[str, Any]]) -> Table:
    columns = [
        Column("says", "Claim", align="l"), Column("printed", "Printed"), Column("measured", "Measured [95%]"),
        Column("k", "k / N"), Column("seeds", "Seeds"), Column("verdict", "Verdict", align="l"),
        Column("why", "Why", align="l"),
    ]  # fmt: skip
    return Table(columns, [Row({
        "says": entry["says"], "printed": ", ".join(entry["printed"]), "measured": _measured(entry),
        "k": f"{entry['k']} / {entry['n']}" if entry["k"] else entry["n"],
        "seeds": ", ".join(map(str, entry["seeds"])), "verdict": _verdict(entry), "why": entry["why"],
    }) for entry in entries])  # fmt: skip


def _verdict(entry: Mapping[str, Any]) -> str:
    return entry["verdict"] + _CLEAR[entry["clear"]] + (f", {entry['scope']}" if entry["scope"] else "")


def _measured(entry: Mapping[str, Any]) -> str:
    value, low, high = (entry[name] for name in ("measured", "low", "high"))
    if value is None:
        return ""
    shown = number(value) if low is None or high is None else interval(value, low, high)
    return f"{shown} {entry['unit']}".strip()


def _plain_table(entries: Sequence[Mapping[str, Any]]) -> Table:
    names = list(entries[0]) if entries else []
    columns = [Column(name, name, decimals=_DIGITS) for name in names]
    return Table(columns, [Row({name: _plain(entry[name]) for name in names}) for entry in entries])


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def _by_place(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    order = {place: i for i, place in enumerate(dict.fromkeys(entry["place"] for entry in entries))}
    return sorted(entries, key=lambda entry: order[entry["place"]])


def _audit_table(findings: Sequence[Mapping[str, Any]]) -> Table:
    names = {"place": "Place", "says": "Check", "printed": "Printed", "recomputed": "Recomputed", "agrees": "Agrees",
             "note": "Note"}  # fmt: skip
    columns = [Column(name, header, align="l") for name, header in names.items()]
    ordered = sorted(findings, key=lambda finding: bool(finding["agrees"]))
    rows = [Row({n: ("yes" if f[n] else "no") if n == "agrees" else str(f[n]) for n in names}) for f in ordered]
    return Table(columns, rows)
