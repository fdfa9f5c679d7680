"""Stage ``dynamic_vs_static``: Table 3."""

from __future__ import annotations

from ..job import Job
from ..report.dynamic_vs_static import write_dynamic_vs_static
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_dynamic_vs_static(settings, job.inputs["results"], job.out["csv"].with_suffix(""))
