"""What a workup is worth: outcome reward and utility."""

from __future__ import annotations

from collections.abc import Iterable

from ..environment.state import Effort, Step, Trajectory
from ..settings.schema import Settings, Tests, Utility


def mean(values: Iterable[float]) -> float:
    """The plain arithmetic mean; that of ``statistics`` takes longer than what is averaged here."""
    listed = list(values)
    return sum(listed) / len(listed)


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


def step_return(step: Step, correct: bool, settings: Settings) -> float:
    """The part of U that one decision earns, correctness weighted by ``comparators.correctness_weight``."""
    weights, tests = settings.utility, settings.environment.tests
    return utility(settings.comparators.correctness_weight * correct, step.effort, weights, tests)


def trajectory_return(trajectory: Trajectory, settings: Settings, start: int = 0) -> float:
    """U of a trajectory from decision ``start`` on, correctness weighted by ``comparators.correctness_weight``."""
    correct = settings.comparators.correctness_weight * trajectory.correct
    return utility(correct, trajectory.effort(start), settings.utility, settings.environment.tests)
