"""The verdicts on all claims of the paper as JSON, as Markdown pages and as CSV."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from ...files import write_text
from ...job import Job
from ...settings import Settings
from .. import layout
from ..methods import notices, tier_mark
from ..table import interval, markdown_page, number, to_csv
from .claims import Claim, TrainingClaim, read_claims
from .evidence import Evidence
from .judge import judge
from .verdict import APART, DECIMALS, UNDECIDABLE, WHY_APART, Statement, Verdict, count_verdicts


def write_claims(settings: Settings, job: Job) -> None:
    """Stage ``write_claims``: judge every claim of the paper by the results, and write the verdicts as ``json``, ``md``
    and ``csv``. Claims about training time are judged on the separate page ``time``, since time differs between runs.
    The numbers of claims by verdict become metrics of the job.

    A claim without results has the verdict `not run`. Raises ClaimsError for a malformed ``claims.yaml``, and
    ProvenanceError, EvaluationError or TableError for results that cannot be used; nothing is written then.
    """
    results, claims = job.inputs["results"], read_claims()
    timed = [claim for claim in claims if isinstance(claim, TrainingClaim) and claim.by == "seconds"]
    ledger = make_ledger(settings, results, claims, timed)
    # The claims about time, now judged.
    timed_rows = [_table_row(entry) for entry in make_ledger(settings, results, timed)["claims"]]
    timed_title = f"The paper's claims about training time ({ledger['marks']})"
    forms = {
        "json": json.dumps(ledger, indent=1, ensure_ascii=False) + "\n",
        "md": _to_markdown(settings, ledger),
        "time": markdown_page(timed_title, [layout.table(settings, "claims.time", timed_rows)]),
        "csv": to_csv(ledger["claims"], list(ledger["claims"][0]), DECIMALS),
    }
    for form, text in forms.items():
        write_text(job.out[form], text)
    job.metrics.update({f"claims/{name.replace(' ', '_')}": count for name, count in ledger["counts"].items()})
    print(f"{ledger['headline']}: " + ", ".join(f"{count} {name}" for name, count in ledger["counts"].items()))


def make_ledger(
    settings: Settings, results: str | Path, claims: Iterable[Claim], judged_apart: Sequence[Claim] = ()
) -> dict[str, Any]:
    """Judge claims by the results in a folder. Returns the contents of ``claims.json``. The claims ``judged_apart`` are
    not judged; they get the verdict `timed apart`.

    The contents are ``tier``, ``decoding``, ``marks`` (words on the tier and the origin of the cases), ``judges``
    (sentences about who judged the diagnoses), ``headline`` and ``counts`` (:func:`~.verdict.count_verdicts`), and
    ``claims``: dicts with the fields of a claim and of its verdict.
    """
    evidence = Evidence(settings, results)  # reads each evaluation once for all claims
    judged = []
    for claim in claims:
        verdict = Verdict(APART, WHY_APART) if claim in judged_apart else judge(claim, evidence)
        judged.append({field.name: getattr(claim, field.name) for field in fields(Statement)} | asdict(verdict))
    headline, counts = count_verdicts(judged)
    judges = tuple(evidence.results.judging_notes())
    return {"tier": settings.tier, "marks": tier_mark(settings), "decoding": evidence.decoding, "judges": judges,
            "headline": headline, "counts": counts, "claims": judged}  # fmt: skip


def _to_markdown(settings: Settings, ledger: Mapping[str, Any]) -> str:
    """Return the page ``claims.md``: numbers of claims by verdict, headline claims, undecidable claims, then all claims
    by their place in the paper. ``ledger`` is that of :func:`make_ledger`."""
    rows = [_table_row(entry) for entry in ledger["claims"]]
    counts = [{"verdict": name, "means": name, "claims": count} for name, count in ledger["counts"].items()]
    counted = layout.table(
        settings, "claims.counts", counts, ledger["decoding"], headline=ledger["headline"],
        judges=list(ledger["judges"]), notices=notices(settings),
    )  # fmt: skip
    headlines = [row for row in rows if row["headline"]]
    undecidable = [row for row in rows if row["kind"] == UNDECIDABLE]
    parts = [counted, layout.table(settings, "claims.judged", headlines, place="Headline claims"),
             layout.table(settings, "claims.undecidable", undecidable)]  # fmt: skip
    for place in dict.fromkeys(row["place"] for row in rows):
        of_place = [row for row in rows if row["place"] == place]
        parts.append(layout.table(settings, "claims.judged", of_place, place=place))
    return markdown_page(layout.title(settings, "claims"), parts)


def _table_row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of ``claims.json`` as the row of a table, with its numbers, lists and counts as text."""
    value, low, high = entry["measured"], entry["low"], entry["high"]
    measured = ""
    if value is not None:
        text = number(value) if low is None or high is None else interval(value, low, high)
        measured = f"{text} {entry['unit']}".strip()
    return {
        **entry,
        "printed": ", ".join(entry["printed"]),
        "measured": measured,
        "k": f"{entry['k']} / {entry['n']}" if entry["k"] else entry["n"],
        "seeds": ", ".join(map(str, entry["seeds"])),
        "verdict": ", ".join(filter(None, (entry["verdict"], entry["scope"]))),
    }
