"""Stage ``evaluate``: one agent on one benchmark."""

from __future__ import annotations

from ..evaluation.run import evaluate
from ..job import Job
from ..settings import Settings


def run(settings: Settings, job: Job) -> None:
    """Work up the test cases and write one line per case and decoding."""
    metrics = evaluate(
        settings, job.options["run"], job.inputs.get("policy"), job.inputs["cases"], job.out["evaluation"]
    )
    job.metrics.update(metrics)
    shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
    print(f"{job.options['run']} on {job.options['dataset']}: {shown}")
