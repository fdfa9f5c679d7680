"""Stage ``timings``: what the computing costs, as a page and as numbers."""

from __future__ import annotations

from ..job import Job
from ..report.timings import write_timings
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Sum up the timings of all jobs."""
    summary = write_timings(job.inputs["results"], job.out["md"], job.out["json"])
    job.metrics.update(jobs=summary["jobs"], seconds=summary["seconds"])
    print(f"{summary['jobs']} jobs, {len(summary['unusable'])} files that cannot be used")
