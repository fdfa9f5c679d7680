"""The verdicts on all claims of the paper as JSON, as Markdown pages and as CSV."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...files import write_text
from ...job import Job
from ...settings import Settings
from .. import layout
from ..methods import notices, tier_mark
from ..table import markdown_page, to_csv
from .claims import Claim, read_claims
from .evidence import Evidence
from .judge import judge
from .verdict import APART, DECIMALS, UNDECIDABLE, JudgedClaim, Ledger, Verdict, count_verdicts

# The verdict on a claim about time in the ledger.
_APART = Verdict(
    verdict=APART, why="about time, which is another one at every run: `claims_of_time.md` judges it on this machine"
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
    timed_rows = [_table_row(claim) for claim in make_ledger(settings, results, timed).claims]
    timed_title = f"The paper's claims about training time ({ledger.marks})"
    forms = {
        "json": ledger.model_dump_json(indent=1) + "\n",
        "md": _to_markdown(settings, ledger),
        "time": markdown_page(timed_title, [layout.table(settings, "claims.time", timed_rows)]),
        "csv": to_csv([claim.model_dump() for claim in ledger.claims], list(JudgedClaim.model_fields), DECIMALS),
    }
    for form, text in forms.items():
        write_text(job.out[form], text)
    job.metrics.update({f"claims/{name.replace(' ', '_')}": count for name, count in ledger.counts.items()})
    print(f"{ledger.headline}: " + ", ".join(f"{count} {name}" for name, count in ledger.counts.items()))


def make_ledger(
    settings: Settings, results: str | Path, claims: Iterable[Claim], judged_apart: Sequence[Claim] = ()
) -> Ledger:
    """Judge claims by the results in a folder. The claims ``judged_apart`` are not judged; they get the verdict `timed
    apart`."""
    evidence = Evidence(settings, results)  # reads each evaluation once for all claims
    judged = []
    for claim in claims:
        verdict = _APART if claim in judged_apart else judge(claim, evidence)
        judged.append(JudgedClaim.model_validate(claim | verdict.model_dump()))
    headline, counts = count_verdicts(judged)
    return Ledger(
        tier=settings.tier, marks=tier_mark(settings), decoding=evidence.decoding, headline=headline, counts=counts,
        judges=tuple(evidence.judging_notes()), claims=judged,
    )  # fmt: skip


def _to_markdown(settings: Settings, ledger: Ledger) -> str:
    """Return the page ``claims.md``: numbers of claims by verdict, headline claims, undecidable claims, then all claims
    by their place in the paper."""
    rows = [_table_row(claim) for claim in ledger.claims]
    counts = [{"verdict": name, "means": name, "claims": count} for name, count in ledger.counts.items()]
    counted = layout.table(
        settings, "claims.counts", counts, ledger.decoding, headline=ledger.headline, judges=list(ledger.judges),
        notices=notices(settings),
    )  # fmt: skip
    shown = {"Headline claims": [row for row in rows if row["headline"]]}
    for row in rows:
        shown.setdefault(row["place"], []).append(row)
    first, *others = (layout.table(settings, "claims.judged", shown[place], place=place) for place in shown)
    undecidable = [row for row in rows if row["kind"] == UNDECIDABLE]
    tables = [counted, first, layout.table(settings, "claims.undecidable", undecidable), *others]
    return markdown_page(layout.title(settings, "claims"), tables)


def _table_row(claim: JudgedClaim) -> dict[str, Any]:
    """Return a claim as the row of a table, with its numbers, lists and counts as text."""
    verdict = ", ".join(filter(None, (claim.verdict, claim.scope)))
    printed = ", ".join(claim.printed)
    return claim.model_dump() | {"printed": printed, "measured": claim.figure, "cases": claim.cases, "verdict": verdict}
