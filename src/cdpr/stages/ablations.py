"""Stage ``ablations``: Table 2."""

from __future__ import annotations

from ..job import Job
from ..report.ablations import write_ablations
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_ablations(settings, job.inputs["results"], job.out["csv"].with_suffix(""))
