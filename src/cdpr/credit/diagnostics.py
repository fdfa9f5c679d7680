"""Figures of one batch of credit reports, logged every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import StatisticsError, correlation, fmean, stdev

from ..settings.credit import Credit
from .report import CreditReport
from .score import process_score


def summarise(reports: Sequence[CreditReport], credit: Credit) -> dict[str, float]:
    """Selection, cost of estimation and size of the process reward, under names that begin ``credit/``.

    ``credit/corr_selected_bonus`` is the correlation, over trajectories, of the number of selected states with
    G - R_out: away from zero it is a hidden bonus for going on (or for stopping early).
    """
    states = [s for report in reports for s in report.states]
    probed = [s.entropy for s in states if s.entropy is not None]
    processes = [steps for report in reports for steps in report.process]
    rewards = [r for steps in processes for r in steps if r is not None]
    selected = [sum(r is not None for r in steps) for steps in processes]
    bonus = [process_score(steps, credit) for steps in processes]
    counts = ("probes", "fresh", "cached", "suffixes", "failed", "unvalued", "clipped")
    tokens = ("probe_tokens", "continuation_tokens")
    return {
        "credit/states": len(states),
        "credit/selected_share": sum(bool(s.reason) for s in states) / max(1, len(states)),
        "credit/disagreed_share": sum(s.reason == "disagreed" for s in states) / max(1, len(states)),
        "credit/entropy": fmean(probed) if probed else 0.0,
        "credit/candidates": sum(len(s.candidates) for s in states),
        "credit/selected_per_trajectory": fmean(selected) if selected else 0.0,
        "credit/r_proc_mean": fmean(rewards) if rewards else 0.0,
        "credit/r_proc_std": stdev(rewards) if len(rewards) > 1 else 0.0,
        "credit/corr_selected_bonus": _correlation(selected, bonus),
        **{f"credit/{name}": sum(getattr(report, name) for report in reports) for name in (*counts, *tokens)},
    }


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one side is constant."""
    try:
        return correlation(x, y)
    except StatisticsError:
        return 0.0
