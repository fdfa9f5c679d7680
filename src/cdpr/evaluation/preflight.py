"""Is there anything to learn before hours are spent?"""

from __future__ import annotations

import json
from pathlib import Path

from ..job import Job
from ..settings import Settings
from .row import read_rows


def check_headroom(settings: Settings, job: Job) -> None:
    """Stage ``check_headroom``: write the comparison and print it; a warning, never an error."""
    report = compare(settings, job.inputs["warm_start"], job.inputs["immediate"])
    job.out["report"].write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    job.metrics.update(warm_start_utility=report["warm_start"], immediate_utility=report["immediate"])
    print(report["message"])


def compare(settings: Settings, warm_start: Path, immediate: Path) -> dict:
    """Mean utility per case of the warm start and of the same policy made to diagnose at once, both as sampled in
    training.

    Where the second is higher, the best that a policy can quickly learn from the utility is to order nothing,
    and training collapses to it.
    """
    start, never = mean_utility(warm_start, "sampled"), mean_utility(immediate, "sampled")
    safe = start > never
    message = (
        f"preflight: U(warm start) {start:.3f} {'>' if safe else '<='} U(immediate diagnosis) {never:.3f}, "
        f"at {settings.utility.cost_unit_usd:g} USD per cost unit"
    )
    if not safe:
        message = (
            f"WARNING {message}: expect training to collapse to never testing. Raise utility.cost_unit_usd, lower the "
            "lambdas, or start from a better policy (warm_start.*)."
        )
    return {"warm_start": start, "immediate": never, "safe": safe, "message": message}


def mean_utility(evaluation: Path, decoding: str) -> float:
    """Mean utility of a decoding in an evaluation file (of all rows where it was not evaluated)."""
    rows = list(read_rows(evaluation))
    chosen = [row.utility for row in rows if row.decoding == decoding] or [row.utility for row in rows]
    return sum(chosen) / len(chosen)
