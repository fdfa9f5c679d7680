"""Stage ``ingest``: raw files of one data set -> case records."""

from __future__ import annotations

from ..ingest import ingest
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Read the raw files and write records and the report of what was dropped."""
    dataset = job.options["dataset"]
    count = ingest(dataset, job.inputs["raw"], settings.data, job.out["records"], job.out["report"])
    job.metrics["cases"] = count
    print(f"{dataset}: {count} cases")
