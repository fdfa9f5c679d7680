"""Stage ``main_table``: Table 1."""

from __future__ import annotations

from ..report.main_table import write_main_results
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Write the table as CSV, Markdown and LaTeX."""
    write_main_results(settings, job.inputs["results"], job.out["csv"].with_suffix(""))
