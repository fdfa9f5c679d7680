"""What the computing costs: what every ``run.json`` tells of time and memory, as a page.

Timings are another at every run, so they are no result and no part of ``report.html``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..files import write_text
from ..job import Job
from ..records import RunRecord, record_files
from ..results.results import results_folder
from ..results.table import Column, Row, Table, markdown_page, to_markdown
from ..settings import Settings

SLOWEST = 15
_RESOURCES = (Column("cpu_hours", "Processor (h)", decimals=3), Column("memory_mb", "Most memory (MiB)", decimals=0))
_STAGES = (Column("stage", "Stage", align="l"), Column("jobs", "Jobs"), Column("seconds", "Total (s)", decimals=1),
           Column("median_seconds", "Median (s)", decimals=1), *_RESOURCES,
           Column("share", "Share of time (%)", decimals=1))  # fmt: skip
_SLOWEST = (Column("job", "Job", align="l"), Column("seconds", "Time (s)", decimals=1), *_RESOURCES)


@dataclass(frozen=True)
class Timing:
    """One execution of ``<stage>`` or ``<stage>/<job>``: wall-clock and processor seconds, largest resident memory in
    MiB."""

    name: str
    seconds: float
    cpu_seconds: float
    memory_mb: float

    @property
    def stage(self) -> str:
        """The stage that it is a job of."""
        return self.name.partition("/")[0]


def write_timings(settings: Settings, job: Job) -> None:
    """Write the page and its numbers. Files that cannot be used are named on the page."""
    timed, unusable = read_timings(results_folder(settings, job))
    summary = summarise(timed, unusable)
    write_text(job.out["json"], json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], page(summary))
    job.metrics.update(jobs=summary["jobs"], seconds=summary["seconds"])
    print(f"{summary['jobs']} jobs, {len(summary['unusable'])} files that cannot be used")


def read_timings(results: Path) -> tuple[list[Timing], list[str]]:
    """All executions below the results folder, and what is wrong with the records that cannot be used."""
    jobs: list[Timing] = []
    unusable = []
    for path in record_files(results):
        try:
            record = RunRecord.read(path)
        except ValueError as error:
            unusable.append(str(error))
            continue
        name = "/".join((record.stage, *record.options.values()))
        jobs.append(Timing(name, record.wall_seconds, record.cpu_seconds, record.peak_memory_mb))
    return jobs, unusable


def summarise(jobs: Sequence[Timing], unusable: Sequence[str] = ()) -> dict[str, Any]:
    """Sums by stage, the most expensive first; the slowest jobs; what all of it would take one after another."""
    total = sum(job.seconds for job in jobs)
    stages = []
    for stage in dict.fromkeys(job.stage for job in jobs):
        own = [job for job in jobs if job.stage == stage]
        seconds = sum(job.seconds for job in own)
        stages.append({
            "stage": stage, "jobs": len(own), "seconds": round(seconds, 2),
            "median_seconds": round(median(job.seconds for job in own), 2), **_resources(own),
            "share": round(seconds / total, 6) if total else 0.0,
        })  # fmt: skip
    stages.sort(key=lambda entry: (-entry["seconds"], entry["stage"]))
    slowest = sorted(jobs, key=lambda job: (-job.seconds, job.name))[:SLOWEST]
    return {
        "jobs": len(jobs), "seconds": round(total, 2), **_resources(jobs), "stages": stages,
        "slowest": [{"job": job.name, "seconds": job.seconds, **_resources([job])} for job in slowest],
        "unusable": list(unusable),
    }  # fmt: skip


def page(summary: dict[str, Any]) -> str:
    """The page in Markdown."""
    about = (
        f"{summary['jobs']} jobs took {span(summary['seconds'])} one after another and {summary['cpu_hours']:.2f} "
        f"processor hours; the largest of them held {summary['memory_mb']:,.0f} MiB. Jobs that run side by side are "
        "slower each, and sooner done together. Timings are another at every run: they are no result.\n"
    )
    if not summary["jobs"]:
        about = "missing: run.json of any job. They are written as jobs end: `snakemake --cores all`.\n"
    parts = [("All jobs", about)]
    if summary["jobs"]:
        stages = [entry | {"share": 100 * entry["share"]} for entry in summary["stages"]]
        parts += [("By stage", _table(_STAGES, stages)), ("Slowest jobs", _table(_SLOWEST, summary["slowest"]))]
    if summary["unusable"]:
        listed = "".join(f"- {' '.join(text.split())}\n" for text in summary["unusable"])
        parts.append(("Files that cannot be used", f"They are left out of the sums.\n\n{listed}"))
    return markdown_page("What the computing costs", parts)


def span(seconds: float) -> str:
    """``2 h 05 min``, ``3 min 07 s`` or ``4.2 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _table(columns: Sequence[Column], entries: Sequence[dict[str, Any]]) -> str:
    return to_markdown(Table(columns, [Row(entry) for entry in entries]))


def _resources(jobs: Sequence[Timing]) -> dict[str, float]:
    """Processor hours and largest memory of jobs."""
    cpu = sum(job.cpu_seconds for job in jobs)
    return {"cpu_hours": round(cpu / 3600, 6), "memory_mb": max((job.memory_mb for job in jobs), default=0.0)}
