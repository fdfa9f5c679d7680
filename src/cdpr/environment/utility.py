"""The value of an episode: outcome reward and utility."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..settings.schema import Settings, Tests, Utility
from ..settings.section import Section, SettingsError
from .state import Effort, Trajectory


def outcome_reward(trajectory: Trajectory) -> float:
    """The outcome reward R_out of a trajectory, equation "outcome": 1 for a right diagnosis, else 0."""
    return float(trajectory.correct)


def count_tests(effort: Effort, tests: Tests) -> int:
    """The number of examinations N_tests of an effort, under the counting rule ``environment.tests``."""
    counted = effort.available if tests.count == "available" else effort.issued
    return counted + (effort.physical if tests.count_physical else 0)


@dataclass(frozen=True)
class Term:
    """A term of the utility beside correctness: ``sign * weight * amount / unit``.

    ``weight`` and ``unit`` (in US dollars; empty: 1) are keys of the section ``utility``, which declares the terms.
    ``symbol`` is the name of the amount in formulas.
    """

    symbol: str
    weight: str
    amount: Callable[[Effort, Tests], float]
    sign: int = -1
    unit: str = ""

    def value(self, effort: Effort, weights: Utility, tests: Tests) -> float:
        """Compute what the term adds to the utility U of an effort."""
        weighted = self.sign * getattr(weights, self.weight) * self.amount(effort, tests)
        return weighted / getattr(weights, self.unit) if self.unit else weighted

    def formula(self, weights: Utility) -> str:
        """Write the term with its sign and weight, such as " - 0.1 tests"."""
        per_unit = f" / {getattr(weights, self.unit):g} USD" if self.unit else ""
        return f" {'-' if self.sign < 0 else '+'} {getattr(weights, self.weight):g} {self.symbol}{per_unit}"


def declared_terms(section: type[Section]) -> list[Term]:
    """List the utility's terms that the weights of a section declare (:func:`~cdpr.settings.section.weight`). Raises
    SettingsError for a key that is neither a weight nor the unit of one, AttributeError for an amount that
    :class:`Effort` does not count."""
    extras = ((name, field.json_schema_extra) for name, field in section.model_fields.items())
    terms: Any = {name: extra["term"] for name, extra in extras if isinstance(extra, dict) and "term" in extra}
    units = {term["unit"] for term in terms.values()} - {""}
    if odd := sorted((section.model_fields.keys() - terms.keys()) ^ units):
        raise SettingsError(f"the section `{section.__name__}` has {', '.join(odd)}, neither weight nor unit of one; "
                            "declare each with `weight(...)`, or name it as the `unit` of a weight")  # fmt: skip
    return [
        Term(**{**term, "weight": name, "amount": _amount_function(term["amount"])}) for name, term in terms.items()
    ]


def _amount_function(name: str) -> Callable[[Effort, Tests], float]:
    """Make the function that returns the amount ``name`` of an effort: a count of :class:`Effort`, or ``tests``. Raises
    AttributeError for an unknown name."""
    if name == "tests":
        return count_tests
    getattr(Effort(), name)  # raises for an unknown name
    return lambda effort, _: getattr(effort, name)


# Formulas and planners follow this list.
TERMS = declared_terms(Utility)


def utility(correct: float, effort: Effort, weights: Utility, tests: Tests) -> float:
    """Compute the utility U = 1(correct) - lambda_test N_tests - lambda_cost C_total - lambda_na N_na, equation
    "utility".

    ``correct`` is 0 or 1, or a probability. C_total is in units of ``cost_unit_usd`` US dollars. Counts of ``effort``
    may be arrays: U is then an array of their shape.
    """
    for term in TERMS:
        correct = correct + term.value(effort, weights, tests)
    return correct


def utility_formula(weights: Utility) -> str:
    """Write the formula of U with these weights, for readers; terms of weight 0 are left out."""
    return "Acc. as a share" + "".join(term.formula(weights) for term in TERMS if getattr(weights, term.weight))


ReturnOf = Callable[[float, Effort], float]
"""A function of correctness (or its probability) and effort that returns their return, in units of utility."""


def weighted_utility(settings: Settings) -> ReturnOf:
    """Make the return function of the utility-based algorithms: U with correctness weighted by
    ``comparators.correctness_weight``. It applies to one decision, to a suffix, or to a whole trajectory."""
    weight, tests = settings.comparators.correctness_weight, settings.environment.tests
    return lambda correct, effort: utility(weight * correct, effort, settings.utility, tests)
