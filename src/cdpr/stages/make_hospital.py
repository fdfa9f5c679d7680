"""Stage ``make_hospital``: raw files of the synthetic hospital."""

from __future__ import annotations

from ..hospital import write_raw
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Write the three data sets, each in its native format."""
    for dataset, folder in job.out.items():
        count = write_raw(settings.hospital, dataset, folder)
        job.metrics[f"cases/{dataset}"] = count
        print(f"{dataset}: {count} cases")
