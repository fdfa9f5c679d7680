"""What a workup is worth: outcome reward and utility."""

from __future__ import annotations

from ..environment.state import Effort, Trajectory
from ..settings.schema import Tests, Utility


def outcome_reward(trajectory: Trajectory) -> float:
    """R_out = 1(diagnosis is right), equation "outcome"."""
    return float(trajectory.correct)


def count_tests(effort: Effort, tests: Tests) -> int:
    """N_tests under the counting rule of ``environment.tests``."""
    counted = effort.available if tests.count == "available" else effort.issued
    return counted + (effort.physical if tests.count_physical else 0)


def utility(correct: float, effort: Effort, weights: Utility, tests: Tests) -> float:
    """U = 1(correct) - lambda_test N_tests - lambda_cost C_total - lambda_na N_na, equation "utility".

    ``correct`` may be a probability; C_total is measured in units of ``cost_unit_usd`` US dollars.
    """
    return (
        correct
        - weights.lambda_test * count_tests(effort, tests)
        - weights.lambda_cost * effort.cost_usd / weights.cost_unit_usd
        - weights.lambda_na * effort.infeasible
    )
