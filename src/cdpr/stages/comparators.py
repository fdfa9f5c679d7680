"""Stage ``comparators``: ways to assign credit in one table."""

from __future__ import annotations

from ..job import Job
from ..report.comparators import write_comparators
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_comparators(settings, job.inputs["results"], job.out["csv"].with_suffix(""))
