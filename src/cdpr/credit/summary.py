"""Averages over finished workups, under the names that curves and tables use."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ..environment.state import Trajectory
from ..environment.utility import utility
from ..settings.schema import Tests, Utility


def summarise_workups(trajectories: Sequence[Trajectory], weights: Utility, tests: Tests) -> dict[str, float]:
    """Accuracy (share), AEN (issued examinations), AEC (US dollars), N_na, utility, share of forced
    diagnoses and turns, each as a mean over cases."""
    efforts = [t.effort() for t in trajectories]
    return {
        "accuracy": fmean(t.correct for t in trajectories),
        "aen": fmean(e.issued for e in efforts),
        "aec": fmean(e.cost_usd for e in efforts),
        "n_na": fmean(e.infeasible for e in efforts),
        "physical": fmean(e.physical for e in efforts),
        "utility": fmean(utility(t.correct, e, weights, tests) for t, e in zip(trajectories, efforts, strict=True)),
        "forced": fmean(t.forced for t in trajectories),
        "turns": fmean(len(t.steps) for t in trajectories),
    }
