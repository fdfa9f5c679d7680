"""Stage ``credit_quality``: what process rewards are worth as estimates of the advantage."""

from __future__ import annotations

import json

from ..analysis.credit_quality import credit_quality
from ..files import write_text
from ..job import Job
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Write the measures of all settings and print those of the default."""
    quality = credit_quality(settings, job.inputs["cases"], job.inputs["policy"])
    write_text(job.out["quality"], json.dumps(quality, indent=1) + "\n")
    default = next(row for row in quality["rows"] if row["default"])
    shown = {name: default[name] for name in ("bias", "variance", "rmse", "rank_correlation", "right_signs")}
    job.metrics.update(shown)
    print(f"{quality['decisions']} decisions: " + "  ".join(f"{name} {value:.3f}" for name, value in shown.items()))
