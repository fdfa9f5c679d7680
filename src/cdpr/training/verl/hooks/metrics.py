"""Rows of the learning curve from what verl's trainer knows at the end of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

_KEPT = {
    "actor/pg_loss": "policy/loss",
    "actor/pg_clipfrac": "policy/clipped_share",
    "actor/grad_norm": "policy/grad_norm",
    "actor/entropy": "policy/entropy",
}
_TIMES = {"gen": "time/rollout_and_credit", "update_actor": "time/update", "update_weights": "time/weights"}


def training_row(
    episodes: Sequence[Mapping[str, float]],
    credit: Mapping[str, float],
    metrics: Mapping[str, Any],
    timing: Mapping[str, float],
) -> dict[str, float]:
    """One step, under our names: what the group hook reports of each of its ``episodes``, the algorithm's own figures,
    and what verl knows itself. Failed episodes count in ``rollout/failed`` alone."""
    row: dict[str, float] = {}
    for name in episodes[0]:
        values = [episode[name] for episode in episodes if not math.isnan(episode[name])]
        prefix = "rollout/" if name in ("failed", "fatal") else "train/"
        row |= {prefix + name: fmean(values)} if values else {}
    row |= credit
    row |= {ours: float(metrics[theirs]) for theirs, ours in _KEPT.items() if theirs in metrics}
    correction = {name: x for name, x in metrics.items() if name.startswith("rollout_corr/")}
    row |= {name: float(x) for name, x in correction.items() if isinstance(x, (int, float)) and math.isfinite(x)}
    return row | {ours: timing[theirs] for theirs, ours in _TIMES.items() if theirs in timing}


def validation_row(metrics: Mapping[str, Any]) -> dict[str, float]:
    """verl names a validation metric ``val-aux/cdpr/accuracy/mean@1``; here it is ``validation/accuracy``."""
    row = {}
    for name, value in metrics.items():
        parts = name.split("/")
        if parts[0] in ("val-core", "val-aux") and parts[-1] == "mean@1" and "failed" not in name:
            row[f"validation/{'/'.join(parts[2:-1])}"] = float(value)
    return row


def problem(row: Mapping[str, float], allowed: float) -> str | None:
    """Why the run must stop after this step; None where it may go on."""
    if row.get("rollout/fatal"):
        return "a fault arose in an episode or in its credit (see the log of the agent-loop worker)"
    if row.get("rollout/failed", 0.0) > allowed:
        return f"{row['rollout/failed']:.0%} of the episodes failed: is the rollout server well?"
    failed = row.get("credit/failed", 0.0) if "credit/fresh" in row else 0.0  # not all tell how much they asked for
    asked = failed + row.get("credit/fresh", 0.0) + row.get("credit/probes", 0.0)
    if asked and failed / asked > allowed:
        return f"{failed / asked:.0%} of the replies asked for credit failed: is the frozen server well?"
    return None
