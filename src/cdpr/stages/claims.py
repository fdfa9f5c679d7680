"""Stage ``claims``: what the results say of each of the paper's claims."""

from __future__ import annotations

from ..job import Job
from ..ledger import write_claims
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the ledger as JSON, Markdown and CSV; its counts by verdict become metrics and tags."""
    counts = write_claims(settings, job.inputs["results"], job.out["json"].with_suffix(""))
    for verdict, count in counts.items():
        name = f"claims/{verdict.replace(' ', '_')}"
        job.metrics[name] = count
        job.tags[name] = str(count)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
