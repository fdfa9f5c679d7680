"""The time and memory of all jobs as a page, from the ``run.json`` file of each.

Timings differ between runs, so they are no result and no part of ``report.html``.
"""

from datetime import timedelta
from typing import Any

import pandas as pd

from ..files import write_text
from ..job import Job
from ..records import RunRecord, record_files
from ..settings import Settings
from . import layout
from .table import markdown_page

SLOWEST = 15  # how many jobs the table of the slowest jobs has
# Columns of the frame of all jobs: stage and name of the job; elapsed seconds, CPU hours, and largest memory in MiB; of
# trainings also the variant, and the seconds without validation.
_COLUMNS = ["stage", "job", "seconds", "cpu_hours", "memory_mb", "variant", "training_seconds"]


def write_timings(settings: Settings, job: Job) -> None:
    """Stage ``write_timings``: write the page of times and memory as ``md``. It names the ``run.json`` files that
    cannot be read, and leaves them out of the sums."""
    rows: list[list[Any]] = []
    unusable: list[str] = []
    for path in record_files(job.inputs["results"]):
        try:
            record = RunRecord.read(path)
        except ValueError as error:
            unusable.append(str(error))
            continue
        name = "/".join((record.stage, *record.options.values()))  # train_policy/cdpr-seed0
        training_seconds = record.metrics.get("seconds") if record.stage == "train_policy" else None
        rows.append([record.stage, name, record.wall_seconds, record.cpu_seconds / 3600, record.peak_memory_mb,
                     record.tags.get("variant", ""), training_seconds])  # fmt: skip
    jobs = pd.DataFrame(rows, columns=_COLUMNS)
    missing = "missing: run.json of any job. They are written as jobs end: `snakemake --cores all`."
    parts: list[tuple[Any, ...]] = _tables(settings, jobs) if rows else [("All jobs", missing)]
    if unusable:
        parts.append(("Files that cannot be used", "They are left out of the sums.", unusable))
    write_text(job.out["md"], markdown_page("What the computing costs", parts))
    job.metrics.update(jobs=len(jobs), seconds=round(float(jobs.seconds.sum()), 2))
    print(f"{len(jobs)} jobs, {len(unusable)} files that cannot be used")


def _tables(settings: Settings, jobs: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Return the tables of the page with their headings: sums by stage, the slowest stage first; the slowest jobs; and
    the mean time of training by variant, without validation. ``jobs`` has a row per job with the columns
    :data:`_COLUMNS`. Empty tables are left out."""
    seconds = float(jobs.seconds.sum())
    about = (
        f"{len(jobs)} jobs took {timedelta(seconds=round(seconds))} h one after another and "
        f"{jobs.cpu_hours.sum():.2f} processor hours; the largest of them held {jobs.memory_mb.max():,.0f} MiB. Jobs "
        "that run side by side are slower each, but faster in total. Timings differ between runs: they are no result."
    )
    stages = jobs.groupby("stage", as_index=False).agg(
        jobs=("job", "size"), seconds=("seconds", "sum"), median_seconds=("seconds", "median"),
        cpu_hours=("cpu_hours", "sum"), memory_mb=("memory_mb", "max"))  # fmt: skip
    stages["share"] = 100 * stages.seconds / (seconds or 1.0)
    slowest = jobs.sort_values(["seconds", "job"], ascending=[False, True]).head(SLOWEST)
    trained = jobs.dropna(subset="training_seconds").groupby("variant", as_index=False, sort=False)
    trainings = trained.agg(runs=("job", "size"), minutes=("training_seconds", lambda seconds: seconds.mean() / 60))
    stages = stages.sort_values(["seconds", "stage"], ascending=[False, True])
    frames = {"stages": stages, "slowest": slowest, "trainings": trainings}
    tables = [layout.table(settings, f"timings.{name}", frame.to_dict("records")) for name, frame in frames.items()]
    return [("All jobs", about), *((heading, table) for heading, table in tables if table.rows)]
