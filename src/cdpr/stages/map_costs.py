"""Stage ``map_costs``: prices and billing groups for case records."""

from __future__ import annotations

from ..costs import map_costs
from ..settings import Settings
from ..tracking import Run


def run(settings: Settings, job: Run) -> None:
    """Price the records and write which catalogue row priced what."""
    job.metrics.update(map_costs(settings.costs, job.inputs["records"], job.out["cases"], job.out["coverage"]))
