"""The time and memory of all jobs as a page, from the ``run.json`` file of each.

Timings differ between runs, so they are no result and no part of ``report.html``.
"""

from datetime import timedelta

import pandas as pd

from ..files import write_text
from ..job import Job
from ..records import RunRecord, record_files
from ..settings import Settings
from .documents import render

SLOWEST = 15  # how many jobs the table of the slowest jobs has


def write_timings(settings: Settings, job: Job) -> None:
    """Stage ``write_timings``: write the page of times and memory as ``md``: sums by stage, the slowest first; the
    mean time of training by variant, without validation; and the slowest jobs. It names the ``run.json`` files that
    cannot be read, and leaves them out of the sums."""
    records: list[RunRecord] = []
    unusable: list[str] = []
    for path in record_files(job.inputs["results"]):
        try:
            records.append(RunRecord.read(path))
        except ValueError as error:
            unusable.append(str(error))
    # Job: train_policy/cdpr-seed0. The times are in seconds.
    jobs = pd.DataFrame({
        "stage": [record.stage for record in records],
        "job": ["/".join((record.stage, *record.options.values())) for record in records],
        "seconds": [record.wall_seconds for record in records],
        "cpu": [record.cpu_seconds for record in records],
        "memory_mb": [record.peak_memory_mb for record in records],
        "variant": [record.tags.get("variant", "") for record in records],
        "training": [record.metrics.get("seconds") for record in records],
    })  # fmt: skip
    stages = jobs.groupby("stage", as_index=False).agg(
        jobs=("job", "size"), seconds=("seconds", "sum"), median=("seconds", "median"), cpu=("cpu", "sum"),
        memory_mb=("memory_mb", "max"))  # fmt: skip
    trained = jobs[jobs.stage == "train_policy"].dropna(subset="training").groupby("variant", sort=False)
    frames = {
        "stages": stages.sort_values(["seconds", "stage"], ascending=[False, True]),
        "trainings": trained.agg(runs=("job", "size"), seconds=("training", "mean")).reset_index(),
        "slowest": jobs.sort_values(["seconds", "job"], ascending=[False, True]).head(SLOWEST),
    }
    seconds = float(jobs.seconds.sum())
    tables = {name: frame.to_dict("records") for name, frame in frames.items()}
    write_text(job.out["md"], render("timings.txt", count=len(jobs), seconds=seconds, cpu=float(jobs.cpu.sum()),
                                     time=timedelta(seconds=round(seconds)), unusable=unusable, **tables))  # fmt: skip
    job.metrics.update(jobs=len(jobs), seconds=round(seconds, 2))
    print(f"{len(jobs)} jobs, {len(unusable)} files that cannot be used")
