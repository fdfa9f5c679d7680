"""What a workup is worth: outcome reward and utility."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..settings.schema import Settings, Tests, Utility
from .state import Effort, Trajectory


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


Worth = Callable[[float, Effort], float]
"""What a verdict (or its probability) and an effort are worth together, in units of utility."""


def weighted_utility(settings: Settings) -> Worth:
    """U with correctness weighted by ``comparators.correctness_weight``: the return of the utility-based comparators.
    Both terms may be those of one decision, of a suffix, or of a whole trajectory."""
    weight, tests = settings.comparators.correctness_weight, settings.environment.tests
    return lambda correct, effort: utility(weight * correct, effort, settings.utility, tests)
