"""Stage ``make_hospital``: raw files of the synthetic hospital."""

from __future__ import annotations

from ..hospital.write import write_hospital
from ..job import Job
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the three data sets, each in its native format."""
    write_hospital(settings.hospital, job.out["mimic_iv"].parent, list(job.out))
    for dataset, folder in job.out.items():
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        job.metrics[f"bytes/{dataset}"] = size
        print(f"{dataset}: {size / 1e6:.1f} MB of raw files")
