"""Stage ``sample_case``: one test case with its prices, and what each agent did on it."""

from __future__ import annotations

from ..job import Job
from ..report.sample_case import write_sample_case
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_sample_case(settings, job.inputs["cases"], job.inputs["results"], job.out["csv"].with_suffix(""))
