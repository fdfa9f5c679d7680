"""Stage ``plot_credit_quality``: one figure as PNG and PDF."""

from __future__ import annotations

import json

from ..job import Job
from ..report.credit_quality import plot_credit_quality
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Draw the figure."""
    quality = json.loads(job.inputs["quality"].read_text(encoding="utf-8"))
    plot_credit_quality(settings, quality, job.out["png"].with_suffix(""))
