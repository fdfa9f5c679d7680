"""Figures of one batch of credit reports, logged every iteration."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from .report import CreditReport


def summarise(reports: Sequence[CreditReport], outcome: Sequence[Sequence[float]], beta: float) -> dict[str, float]:
    """Selection, cost of estimation and size of the process reward, under names that begin ``credit/``.

    ``credit/corr_selected_bonus`` is the correlation, over trajectories, of the number of selected
    states with the process part of the score: away from zero it is a hidden bonus for going on (or for
    stopping early).
    """
    states = [s for report in reports for s in report.states]
    evaluated = [s for s in states if s.candidates]
    rewards = [r for report in reports for steps in report.process for r in steps if r is not None]
    chosen = [sum(r is not None for r in steps) for report in reports for steps in report.process]
    bonus = [beta * sum(r or 0.0 for r in steps) for report in reports for steps in report.process]
    return {
        "credit/states": len(states),
        "credit/selected_share": len(evaluated) / max(1, len(states)),
        "credit/entropy": fmean(s.entropy for s in states) if states else 0.0,
        "credit/disagreed_share": sum(s.disagreed for s in states) / max(1, len(states)),
        "credit/selected_per_trajectory": fmean(chosen) if chosen else 0.0,
        "credit/r_proc_mean": fmean(rewards) if rewards else 0.0,
        "credit/r_proc_std": _deviation(rewards),
        "credit/clipped": sum(report.clipped for report in reports),
        "credit/probes": sum(report.probes for report in reports),
        "credit/fresh_continuations": sum(report.fresh for report in reports),
        "credit/cached_continuations": sum(report.cached for report in reports),
        "credit/corr_selected_bonus": _correlation(chosen, bonus),
        "credit/equal_outcome_groups": fmean(len(set(group)) == 1 for group in outcome) if outcome else 0.0,
    }


def _deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = fmean(values)
    return (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one side is constant."""
    sx, sy = _deviation(x), _deviation(y)
    if sx == 0 or sy == 0:
        return 0.0
    mx, my = fmean(x), fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / ((len(x) - 1) * sx * sy)
