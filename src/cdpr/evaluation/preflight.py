"""Is there anything to learn before hours are spent?"""

from __future__ import annotations

import json
from pathlib import Path

from ..job import Job
from ..settings import Settings
from .row import read_rows


def check_headroom(settings: Settings, job: Job) -> None:
    """Stage ``check_headroom``: mean utility per case of the warm start and of the same policy made to diagnose at
    once, both as sampled in training, written and printed; a warning, never an error.

    Where the second is higher, the best that a policy can quickly learn from the utility is to order nothing,
    and training collapses to it.
    """
    start, never = (mean_utility(job.inputs[name], "sampled") for name in ("warm_start", "immediate"))
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
    report = {"warm_start": start, "immediate": never, "safe": safe, "message": message}
    job.out["report"].write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    job.metrics.update(warm_start_utility=start, immediate_utility=never)
    print(message)


def mean_utility(evaluation: Path, decoding: str) -> float:
    """Mean utility of a decoding in an evaluation file (of all rows where it was not evaluated)."""
    rows = list(read_rows(evaluation))
    chosen = [row.utility for row in rows if row.decoding == decoding] or [row.utility for row in rows]
    return sum(chosen) / len(chosen)
