"""The ledger as JSON, as a page to read and as a table."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...files import write_text
from ...job import Job
from ...settings import Settings
from .. import layout
from ..methods import tier_mark
from ..sources import notices
from ..table import interval, markdown_page, number, to_csv
from .claims import Claim, read_claims
from .evidence import Evidence
from .judge import judge
from .verdict import APART, COUNTED, UNDECIDABLE, Judged, Ledger, Verdict

_DIGITS = 6


def write_claims(settings: Settings, job: Job) -> None:
    """Stage: judge every claim of the paper by ``inputs["results"]`` and write ``json``, ``md`` and ``csv``, and
    separately the claims about ``time``; the counts become metrics and tags.

    What was not run, or is missing, is a verdict of its own. Raises ClaimsError for a malformed ledger,
    ProvenanceError, EvaluationError or TableError for results that cannot be used; nothing is written then.
    """
    results, claims = job.inputs["results"], read_claims()
    timed = [claim for claim in claims if claim.by == "seconds"]
    ledger = make_ledger(settings, results, claims, {claim.id for claim in timed})
    of_time = make_ledger(settings, results, timed)["claims"]
    plain = [{name: _plain(value) for name, value in entry.items()} for entry in ledger["claims"]]
    forms = {
        "json": json.dumps(ledger, indent=1, ensure_ascii=False) + "\n",
        "md": _page(settings, ledger),
        "time": markdown_page(
            f"The paper's claims about training time ({ledger['marks']})",
            [layout.part(settings, "claims.time", [entry | _cells(entry) for entry in of_time])],
        ),
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
    """Make the ledger: tier, counts, and every claim with its verdict; those with an id in ``apart`` are not judged
    here."""
    evidence = Evidence(settings, results)
    judged = tuple(_judged(claim, Verdict(APART, COUNTED[APART]) if claim.id in apart else judge(claim, evidence))
                   for claim in claims)  # fmt: skip
    judges = tuple(evidence.results.judging_notes())
    return asdict(Ledger(settings.tier, tier_mark(settings), evidence.decoding, judges, claims=judged))


def _judged(claim: Claim, judgement: Verdict) -> Judged:
    """Add the verdict to a claim, with rounded numbers, and None for those that are not finite."""
    verdict = asdict(judgement)
    for name in ("measured", "low", "high"):
        value = verdict[name]
        verdict[name] = None if value is None or not math.isfinite(value) else round(float(value), _DIGITS) + 0.0
    fields = {name: getattr(claim, name) for name in ("id", "also", "place", "kind", "says", "headline", "printed")}
    return Judged(**fields, **verdict)


def _page(settings: Settings, ledger: Mapping[str, Any]) -> str:
    entries = [entry | _cells(entry) for entry in ledger["claims"]]
    counts = [{"verdict": name, "claims": count, "means": COUNTED[name]} for name, count in ledger["counts"].items()]
    words = {"headline": ledger["headline"], "judges": list(ledger["judges"]), "notices": notices(settings)}
    undecidable = [entry for entry in entries if entry["kind"] == UNDECIDABLE]
    places = {"Headline claims": [entry for entry in entries if entry["headline"]]}
    by_place = {place: [entry for entry in entries if entry["place"] == place]
                for place in dict.fromkeys(entry["place"] for entry in entries)}  # fmt: skip
    first, *others = (
        layout.part(settings, "claims.judged", rows, place=place) for place, rows in (places | by_place).items()
    )
    return markdown_page(layout.title(settings, "claims"), [
        layout.part(settings, "claims.counts", counts, ledger["decoding"], **words), first,
        layout.part(settings, "claims.undecidable", undecidable), *others,
    ])  # fmt: skip


def _cells(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Format the cells of a claim that the page shows otherwise than ``claims.json`` has them."""
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
