"""The time and memory of all jobs as a page, from every ``run.json``.

Timings differ between runs, so they are no result and no part of ``report.html``.
"""

from collections import defaultdict
from datetime import timedelta
from statistics import fmean
from typing import Any

import pandas as pd

from ..files import write_text
from ..job import Job
from ..records import RunRecord, record_files
from ..settings import Settings
from . import layout
from .table import markdown_page

SLOWEST = 15


def write_timings(settings: Settings, job: Job) -> None:
    """Write the page. Files that cannot be used are named on it."""
    rows, unusable, trained = list[tuple[Any, ...]](), list[str](), defaultdict[str | None, list[float]](list)
    for path in record_files(job.inputs["results"]):
        try:
            record = RunRecord.read(path)
        except ValueError as error:
            unusable.append(str(error))
            continue
        name = "/".join((record.stage, *record.options.values()))
        if record.stage == "train_policy" and "seconds" in record.metrics:
            trained[record.tags.get("variant")].append(record.metrics["seconds"])
        rows.append((record.stage, name, record.wall_seconds, record.cpu_seconds / 3600, record.peak_memory_mb))
    jobs = pd.DataFrame(rows, columns=["stage", "job", "seconds", "cpu_hours", "memory_mb"])
    missing = "missing: run.json of any job. They are written as jobs end: `snakemake --cores all`."
    parts: list[tuple[Any, ...]] = summary(settings, jobs) if rows else [("All jobs", missing)]
    if trained:
        means = [{"variant": v, "runs": len(s), "minutes": fmean(s) / 60} for v, s in trained.items()]
        parts.append(layout.part(settings, "timings.trainings", means))
    if unusable:
        parts.append(("Files that cannot be used", "They are left out of the sums.", unusable))
    write_text(job.out["md"], markdown_page("What the computing costs", parts))
    job.metrics.update(jobs=len(jobs), seconds=round(float(jobs.seconds.sum()), 2))
    print(f"{len(jobs)} jobs, {len(unusable)} files that cannot be used")


def summary(settings: Settings, jobs: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Sum up what all jobs (``<stage>/<job>``) would take one after another, by stage with the most expensive first,
    and list the slowest jobs, as parts of the page. Wall-clock seconds, hours of processors, largest resident memory in
    MiB."""
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
    stages = stages.sort_values(["seconds", "stage"], ascending=[False, True])
    slowest = jobs.sort_values(["seconds", "job"], ascending=[False, True]).head(SLOWEST)
    return [("All jobs", about), layout.part(settings, "timings.stages", stages.to_dict("records")),
            layout.part(settings, "timings.slowest", slowest.to_dict("records"))]  # fmt: skip
