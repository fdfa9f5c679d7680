"""The verdicts on all claims of the paper as JSON, as Markdown pages and as CSV."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from ...files import write_text
from ...job import Job
from ...records import ProvenanceError
from ...settings import Settings
from ..methods import notices, tier_mark
from ..provenance import check_tier
from ..table import Row, Sheet, declarations, interval
from .claims import Claim, read_claims, validator
from .evidence import Evidence
from .judge import judge
from .verdict import APART, UNDECIDABLE, count_verdicts, verdict_of

# The contents of ``claims.json``, by field: ``ledger`` in ``workflow/paper/claims.schema.yaml``.
Ledger = dict[str, Any]
# The verdict on a claim about time in the ledger.
_APART = verdict_of(
    APART, "about time, which is another one at every run: `claims_of_time.md` judges it on this machine"
)


def write_claims(settings: Settings, job: Job) -> None:
    """Stage ``write_claims``: judge every claim of the paper by the results, and write the verdicts as ``json``, ``md``
    and ``csv``. Claims about training time are judged on the separate page ``time``, since time differs between runs.
    The numbers of claims by verdict become metrics of the job.

    A claim without results has the verdict `not run`. Raises ClaimsError for a malformed ``claims.yaml``, and
    ProvenanceError, EvaluationError or TableError for results that cannot be used; nothing is written then.
    """
    results, claims = job.inputs["results"], read_claims()
    timed = [claim for claim in claims if claim.get("by") == "seconds"]
    ledger = make_ledger(settings, results, claims, timed)
    sheet = _ledger_sheet(settings, ledger)
    time = Sheet(settings, "claims_of_time")
    time.add("judged", [claim_row(claim) for claim in make_ledger(settings, results, timed)["claims"]])
    sheet.write({form: job.out[form] for form in ("md", "csv")})
    write_text(job.out["json"], to_json(ledger, indent=1).decode() + "\n")
    write_text(job.out["time"], time.markdown())
    counts = ledger["counts"]
    job.metrics.update({f"claims/{name.replace(' ', '_')}": count for name, count in counts.items()})
    print(f"{ledger['headline']}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def make_ledger(
    settings: Settings, results: str | Path, claims: Iterable[Claim], judged_apart: Sequence[Claim] = ()
) -> Ledger:
    """Judge claims by the results in a folder. The claims ``judged_apart`` are not judged; they get the verdict `timed
    apart`."""
    evidence = Evidence(settings, results)  # reads each evaluation once for all claims
    judged = [claim | (_APART if claim in judged_apart else judge(claim, evidence)) for claim in claims]
    headline, counts = count_verdicts(judged)
    return {
        "tier": settings.tier, "marks": tier_mark(settings), "decoding": evidence.decoding,
        "judges": evidence.judging_notes(), "headline": headline, "counts": counts,
        "claims": [{name: claim[name] for name in declarations()["claims"]["csv"]} for claim in judged],
    }  # fmt: skip


def read_ledger(settings: Settings, path: Path) -> Ledger | None:
    """Read ``claims.json``, the claims in it as the rows of :func:`claim_row`; returns None where there is none. Raises
    ProvenanceError for a file that is no ledger, and for one of another tier (scale of the experiment) than the
    settings."""
    if not path.exists():
        return None
    try:
        ledger = json.loads(path.read_bytes())
        # Where it breaks the rules; not the messages, which quote values: what a file holds may be private.
        problems = [error.json_path for error in validator("ledger").iter_errors(ledger)]
    except ValueError as error:
        problems = [str(error)]
    if problems:
        raise ProvenanceError(f"{path}: no ledger of claims ({', '.join(problems)}); remove it and run `snakemake "
                              "--cores all claims`")  # fmt: skip
    check_tier(settings, path, ledger["tier"])
    return ledger | {"claims": [claim_row(claim) for claim in ledger["claims"]]}


def claim_row(claim: Row) -> Row:
    """Return a claim of the ledger as the row of a table, with the texts that are shown:

    - the measured number with interval and unit (``4.93 [2.10, 7.76] points``); empty where nothing was measured;
    - the ``cases``: right diagnoses, cases and training seeds (``58 / 100, seeds 0, 1``); ``N = 100, seeds 0, 1`` where
      right diagnoses were not counted.
    """
    measured, low, high, k, n = (claim[name] for name in ("measured", "low", "high", "k", "n"))
    figure = "" if measured is None else f"{measured:.4g}"
    if measured is not None and low is not None and high is not None:
        figure = interval(measured, low, high, 2 if max(abs(low), abs(high)) >= 1 else 3)
    cases = (f"{k} / {n}" if k else f"N = {n}") if n else ""
    seeds = f"seeds {', '.join(map(str, claim['seeds']))}" if claim["seeds"] else ""
    return claim | {
        "printed_text": ", ".join(claim["printed"]), "cases_text": ", ".join(filter(None, (cases, seeds))),
        "measured_text": f"{figure} {claim['unit']}".rstrip() if figure else "",
        "verdict_text": ", ".join(filter(None, (claim["verdict"], claim["scope"]))),
    }  # fmt: skip


def _ledger_sheet(settings: Settings, ledger: Ledger) -> Sheet:
    """Return the page ``claims.md``: numbers of claims by verdict, headline claims, undecidable claims, then all claims
    by their place in the paper."""
    sheet = Sheet(settings, "claims", headline=ledger["headline"], judges=ledger["judges"], notices=notices(settings))
    counts = [{"verdict": name, "means": name, "claims": count} for name, count in ledger["counts"].items()]
    sheet.add("counts", counts, ledger["decoding"])
    sheet.rows += [claim_row(claim) for claim in ledger["claims"]]
    sheet.add("judged", [row for row in sheet.rows if row["headline"]], place="Headline claims")
    sheet.add("undecidable", [row for row in sheet.rows if row["kind"] == UNDECIDABLE])
    by_place: dict[str, list[Row]] = {}
    for row in sheet.rows:
        by_place.setdefault(row["place"], []).append(row)
    for place, rows in by_place.items():
        sheet.add("judged", rows, place=place)
    return sheet
