"""What the computing costs: what every ``run.json`` tells of time and memory, as a page.

Timings are another at every run, so they are no result and no part of ``report.html``.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from ..files import write_text
from ..job import Job
from ..records import RunRecord, record_files
from ..results.table import Column, Table, markdown_page, to_markdown
from ..settings import Settings

SLOWEST = 15
_RESOURCES = (Column("cpu_hours", "Processor (h)", decimals=3), Column("memory_mb", "Most memory (MiB)", decimals=0))
_STAGES = (Column("stage", "Stage", align="l"), Column("jobs", "Jobs"), Column("seconds", "Total (s)", decimals=1),
           Column("median_seconds", "Median (s)", decimals=1), *_RESOURCES,
           Column("share", "Share of time (%)", decimals=1))  # fmt: skip
_SLOWEST = (Column("job", "Job", align="l"), Column("seconds", "Time (s)", decimals=1), *_RESOURCES)
_DECIMALS = {"seconds": 2, "median_seconds": 2, "cpu_hours": 6, "share": 6}


def write_timings(settings: Settings, job: Job) -> None:
    """Write the page and its numbers. Files that cannot be used are named on the page."""
    summary = summarise(job.inputs["results"])
    write_text(job.out["json"], json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], page(summary))
    job.metrics.update(jobs=summary["jobs"], seconds=summary["seconds"])
    print(f"{summary['jobs']} jobs, {len(summary['unusable'])} files that cannot be used")


def summarise(results: Path) -> dict[str, Any]:
    """Sums by stage, the most expensive first; the slowest jobs (``<stage>/<job>``); what all of it would take one
    after another; and what is wrong with the records that cannot be used. Wall-clock seconds, hours of processors, and
    the largest resident memory in MiB."""
    rows, unusable = [], []
    for path in record_files(results):
        try:
            record = RunRecord.read(path)
        except ValueError as error:
            unusable.append(str(error))
            continue
        job = "/".join((record.stage, *record.options.values()))
        rows.append((record.stage, job, record.wall_seconds, record.cpu_seconds / 3600, record.peak_memory_mb))
    jobs = pd.DataFrame(rows, columns=["stage", "job", "seconds", "cpu_hours", "memory_mb"])
    stages = jobs.groupby("stage", as_index=False).agg(
        jobs=("job", "size"), seconds=("seconds", "sum"), median_seconds=("seconds", "median"),
        cpu_hours=("cpu_hours", "sum"), memory_mb=("memory_mb", "max"))  # fmt: skip
    stages["share"] = stages.seconds / (jobs.seconds.sum() or 1.0)
    slowest = jobs.sort_values(["seconds", "job"], ascending=[False, True]).head(SLOWEST).drop(columns="stage")
    return {
        "jobs": len(jobs),
        "seconds": round(float(jobs.seconds.sum()), 2),
        "cpu_hours": round(float(jobs.cpu_hours.sum()), 6),
        "memory_mb": float(jobs.memory_mb.max()) if rows else 0.0,
        "stages": stages.sort_values(["seconds", "stage"], ascending=[False, True]).round(_DECIMALS).to_dict("records"),
        "slowest": slowest.round({"cpu_hours": 6}).to_dict("records"),
        "unusable": unusable,
    }


def page(summary: dict[str, Any]) -> str:
    """The page in Markdown."""
    about = (
        f"{summary['jobs']} jobs took {timedelta(seconds=round(summary['seconds']))} h one after another and "
        f"{summary['cpu_hours']:.2f} processor hours; the largest of them held {summary['memory_mb']:,.0f} MiB. Jobs "
        "that run side by side are slower each, and sooner done together. Timings are another at every run: they are "
        "no result.\n"
    )
    if not summary["jobs"]:
        about = "missing: run.json of any job. They are written as jobs end: `snakemake --cores all`.\n"
    parts = [("All jobs", about)]
    if summary["jobs"]:
        stages = [entry | {"share": 100 * entry["share"]} for entry in summary["stages"]]
        parts += [("By stage", to_markdown(Table(_STAGES, stages))),
                  ("Slowest jobs", to_markdown(Table(_SLOWEST, summary["slowest"])))]  # fmt: skip
    if summary["unusable"]:
        listed = "".join(f"- {' '.join(text.split())}\n" for text in summary["unusable"])
        parts.append(("Files that cannot be used", f"They are left out of the sums.\n\n{listed}"))
    return markdown_page("What the computing costs", parts)
