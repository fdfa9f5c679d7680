"""What the computing costs: the files of Snakemake's ``benchmark:`` as a page.

Timings are another at every run, so they are no result and no part of ``report.html``.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..files import write_text
from ..job import Job
from ..results.results import results_folder
from ..results.table import Column, Row, Table, markdown_page, to_markdown
from ..settings import Settings

SLOWEST = 15
_UNKNOWN = ("", "-", "NA")  # what Snakemake writes for a job too short to be measured
_RESOURCES = (Column("cpu_hours", "Processor (h)", decimals=3), Column("memory_mb", "Most memory (MiB)", decimals=0))
_STAGES = (Column("stage", "Stage", align="l"), Column("jobs", "Jobs"), Column("seconds", "Total (s)", decimals=1),
           Column("median_seconds", "Median (s)", decimals=1), *_RESOURCES,
           Column("share", "Share of time (%)", decimals=1))  # fmt: skip
_SLOWEST = (Column("job", "Job", align="l"), Column("seconds", "Time (s)", decimals=1), *_RESOURCES)


class TimingError(ValueError):
    """A line of timings that cannot be used; the message names file, line and field."""


@dataclass(frozen=True)
class Timing:
    """One execution of ``<stage>`` or ``<stage>/<job>``: wall-clock and processor seconds, largest resident memory in
    MiB (None: not measured)."""

    name: str
    seconds: float
    cpu_seconds: float | None
    memory_mb: float | None

    @property
    def stage(self) -> str:
        """The stage that it is a job of."""
        return self.name.partition("/")[0]


def write_timings(settings: Settings, job: Job) -> None:
    """Write the page and its numbers. Files that cannot be used are named on the page."""
    timed, unusable = read_timings(results_folder(settings, job) / "timings")
    summary = summarise(timed, unusable)
    write_text(job.out["json"], json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], page(summary))
    job.metrics.update(jobs=summary["jobs"], seconds=summary["seconds"])
    print(f"{summary['jobs']} jobs, {len(summary['unusable'])} files that cannot be used")


def read_timings(folder: Path) -> tuple[list[Timing], list[str]]:
    """All executions below a folder, and what is wrong with the files that cannot be used."""
    jobs: list[Timing] = []
    unusable = []
    for path in sorted(folder.rglob("*.tsv")):
        shown = path.relative_to(folder)
        try:
            rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(), delimiter="\t"))
            jobs += [_timing(shown, line, row) for line, row in enumerate(rows, 2)]
            if not rows:
                unusable.append(f"{shown}: holds no row")
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            unusable.append(f"{shown}: cannot be read ({error})")
        except TimingError as error:
            unusable.append(str(error))
    return jobs, unusable


def _timing(shown: Path, line: int, row: dict[str, Any]) -> Timing:
    seconds, cpu, memory = (_number(f"{shown}:{line}", row, name) for name in ("s", "cpu_time", "max_rss"))
    if seconds is None:
        raise TimingError(f"{shown}:{line}: field 's': expected seconds, got {row.get('s')!r}")
    return Timing(shown.with_suffix("").as_posix(), seconds, cpu, memory)


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
    memory = summary["memory_mb"]
    peak = "" if memory is None else f"; the largest of them held {memory:,.0f} MiB"
    hours = "" if summary["cpu_hours"] is None else f" and {summary['cpu_hours']:.2f} processor hours"
    about = (
        f"{summary['jobs']} jobs took {span(summary['seconds'])} one after another{hours}{peak}. Jobs that run side by "
        "side are slower each, and sooner done together. Timings are another at every run: they are no result.\n"
    )
    if not summary["jobs"]:
        about = "missing: timings/*.tsv. They are written as jobs run: `snakemake --cores all`.\n"
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


def _resources(jobs: Sequence[Timing]) -> dict[str, float | None]:
    """Processor hours and largest memory of those jobs for which they were measured."""
    cpu = [job.cpu_seconds for job in jobs if job.cpu_seconds is not None]
    memory = [job.memory_mb for job in jobs if job.memory_mb is not None]
    return {"cpu_hours": round(sum(cpu) / 3600, 6) if cpu else None, "memory_mb": max(memory, default=None)}


def _number(where: str, row: dict[str, Any], name: str) -> float | None:
    text = row.get(name)
    if text is None:
        raise TimingError(f"{where}: field {name!r} is missing")
    if text.strip() in _UNKNOWN:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise TimingError(f"{where}: field {name!r}: expected a number, got {text!r}")
    return value
