"""Stage ``leak_control``: benchmarks beside their leak-controlled variants."""

from __future__ import annotations

from ..job import Job
from ..report.leak_control import write_leak_control
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_leak_control(settings, job.inputs["results"], job.out["csv"].with_suffix(""))
