"""Stage ``main_table``: Table 1."""

from __future__ import annotations

from ..job import Job
from ..report.main_table import write_main_results
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_main_results(settings, job.inputs["results"], job.out["csv"].with_suffix(""))
