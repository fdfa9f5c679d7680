"""The ledger as JSON, as a page to read and as a table."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..files import write_text
from ..job import Job
from ..results.methods import tier_mark
from ..results.sources import notices
from ..results.table import Column, Table, interval, markdown_page, number, to_csv, to_markdown
from ..settings import Settings
from .claims import Claim, read_claims
from .evidence import Evidence
from .judge import judge
from .verdict import APART, COUNTED, UNDECIDABLE, Judged, Ledger, Verdict

_DIGITS = 6


def write_claims(settings: Settings, job: Job) -> None:
    """Stage: hold every claim of the paper against ``inputs["results"]`` and write ``json``, ``md`` and ``csv``, and
    apart from them what is claimed of ``time``; the counts become metrics and tags.

    What was not run, or is missing, is a verdict of its own. Raises ClaimsError for a malformed ledger,
    ProvenanceError, EvaluationError or CurveError for results that cannot be used; nothing is written then.
    """
    results, claims = job.inputs["results"], read_claims()
    timed = [claim for claim in claims if claim.by == "seconds"]
    ledger = make_ledger(settings, results, claims, {claim.id for claim in timed})
    plain = [{name: _plain(value) for name, value in entry.items()} for entry in ledger["claims"]]
    forms = {
        "json": json.dumps(ledger, indent=1, ensure_ascii=False) + "\n",
        "md": _page(settings, ledger),
        "time": _page_of_time(make_ledger(settings, results, timed)),
        "csv": to_csv(plain, list(ledger["claims"][0]), _DIGITS),
    }
    for form, text in forms.items():
        write_text(job.out[form], text)
    counts = {f"claims/{name.replace(' ', '_')}": count for name, count in ledger["counts"].items()}
    job.metrics.update(counts)
    job.tags.update({name: str(count) for name, count in counts.items()})
    print(f"{ledger['headline']}: " + ", ".join(f"{count} {name}" for name, count in ledger["counts"].items()))


def make_ledger(
    settings: Settings, results: str | Path, claims: Sequence[Claim], apart: Collection[str] = ()
) -> dict[str, Any]:
    """Tier, counts, and every claim with its verdict; those with an id in ``apart`` are not judged here."""
    evidence = Evidence(settings, results)
    judged = tuple(_judged(claim, Verdict(APART, COUNTED[APART]) if claim.id in apart else judge(claim, evidence))
                   for claim in claims)  # fmt: skip
    judges = tuple(evidence.results.judging())
    return asdict(Ledger(settings.tier, tier_mark(settings), evidence.decoding, judges, claims=judged))


def _judged(claim: Claim, at: Verdict) -> Judged:
    verdict = asdict(at)
    for name in ("measured", "low", "high"):
        value = verdict[name]
        verdict[name] = None if value is None or not math.isfinite(value) else round(float(value), _DIGITS) + 0.0
    fields = {name: getattr(claim, name) for name in ("id", "also", "place", "kind", "says", "headline", "printed")}
    return Judged(**fields, **verdict)


def _page(settings: Settings, ledger: Mapping[str, Any]) -> str:
    entries = [entry | _cells(entry) for entry in ledger["claims"]]
    undecidable = [entry for entry in entries if entry["kind"] == UNDECIDABLE]
    parts = [
        ("What holds here", _counts(settings, ledger)),
        ("Headline claims", _table(_HEADS, [entry for entry in entries if entry["headline"]])),
        ("What no result could ever decide", _table({"place": "Place", "says": "Claim", "why": "Why"}, undecidable)),
    ]
    for place in dict.fromkeys(entry["place"] for entry in entries):
        parts.append((place, _table(_HEADS, [entry for entry in entries if entry["place"] == place])))
    return markdown_page(f"The paper's claims ({ledger['marks']})", parts)


def _page_of_time(ledger: Mapping[str, Any]) -> str:
    notes = ["Measured on this machine, from jobs that may have run side by side: another run takes other times, and "
             "may come to another verdict. Tokens, which do not depend on the machine, are judged in claims.md. "
             "Intervals are 95%, Student's over seeds."]  # fmt: skip
    table = _table(_HEADS, [entry | _cells(entry) for entry in ledger["claims"]], notes)
    return markdown_page(f"The paper's claims about training time ({ledger['marks']})", [("On this machine", table)])


def _counts(settings: Settings, ledger: Mapping[str, Any]) -> str:
    heads = {"verdict": "Verdict", "claims": "Claims", "means": "Meaning"}
    rows = [{"verdict": name, "claims": count, "means": COUNTED[name]} for name, count in ledger["counts"].items()]
    notes = [
        "On synthetic or private cases, an average that holds them, at another tier or with another backbone than the "
        "paper's no printed figure is compared and no claim is more than `same direction`.",
        f"{ledger['decoding'].capitalize()} decoding. Intervals are 95%: bootstrap over training seeds and cases, both "
        "paired; for training tokens and curves Student's over seeds. Verdicts are not corrected for their number.",
        *ledger["judges"],
        *notices(settings),
    ]
    return f"{ledger['headline']}.\n\n{_table(heads, rows, notes)}"


_HEADS = {"says": "Claim", "printed": "Printed", "measured": "Measured [95%]", "k": "k / N", "seeds": "Training seeds",
          "verdict": "Verdict", "why": "Why"}  # fmt: skip
_RIGHT = ("printed", "measured", "k", "seeds")


def _table(heads: Mapping[str, str], entries: Sequence[Mapping[str, Any]], notes: Sequence[str] = ()) -> str:
    columns = [Column(name, header, align="r" if name in _RIGHT else "l") for name, header in heads.items()]
    return to_markdown(Table(columns, entries, notes=notes))


def _cells(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows otherwise than ``claims.json`` holds it."""
    value, low, high = (entry[name] for name in ("measured", "low", "high"))
    text = "" if value is None else number(value) if low is None or high is None else interval(value, low, high)
    return {
        "printed": ", ".join(entry["printed"]),
        "measured": f"{text} {entry['unit']}".strip() if text else "",
        "k": f"{entry['k']} / {entry['n']}" if entry["k"] else entry["n"],
        "seeds": ", ".join(map(str, entry["seeds"])),
        "verdict": ", ".join(filter(None, (entry["verdict"], entry["scope"]))),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
