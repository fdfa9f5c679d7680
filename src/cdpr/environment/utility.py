"""The outcome reward and the utility of an episode."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ..settings import Section, Settings, SettingsError, Tests, Utility
from .state import Effort, Trajectory


def outcome_reward(trajectory: Trajectory) -> float:
    """The outcome reward R_out of a trajectory, equation "outcome": 1 for a right diagnosis, else 0."""
    return float(trajectory.correct)


def count_tests(effort: Effort, tests: Tests) -> int:
    """Count the examinations N_tests of an effort as the settings ``environment.tests`` say. ``count`` chooses requests
    with a new result (``available``) or all issued requests; ``count_physical`` adds items of the physical
    examination."""
    counted = effort.available if tests.count == "available" else effort.issued
    return counted + (effort.physical if tests.count_physical else 0)


class Term(NamedTuple):
    """One term of the utility apart from correctness: ``sign * weight * amount / unit``, such as -lambda_cost * cost in
    US dollars / cost_unit_usd.

    ``weight`` and ``unit`` are not numbers, but the names of keys in the section ``utility`` of the settings
    (``lambda_cost``, ``cost_unit_usd``), which hold them. A unit is in US dollars; an empty ``unit`` means no division.
    ``amount`` is a function that computes the amount of an effort; ``symbol`` is its name in formulas.
    """

    symbol: str
    weight: str
    amount: Callable[[Effort, Tests], float]
    sign: int = -1
    unit: str = ""

    def value(self, effort: Effort, weights: Utility, tests: Tests) -> float:
        """Compute what the term adds to the utility U of an effort: sign * weight * amount / unit."""
        weighted = self.sign * getattr(weights, self.weight) * self.amount(effort, tests)
        return weighted / getattr(weights, self.unit) if self.unit else weighted

    def formula(self, weights: Utility) -> str:
        """Write the term with its sign and weight, such as " - 0.1 tests"."""
        per_unit = f" / {getattr(weights, self.unit):g} USD" if self.unit else ""
        return f" {'-' if self.sign < 0 else '+'} {getattr(weights, self.weight):g} {self.symbol}{per_unit}"


def declared_terms(section: type[Section]) -> list[Term]:
    """List the terms of the utility that a section of settings declares by its weights
    (:func:`~cdpr.settings.section.weight`). Raises SettingsError for a key that is neither a weight nor the unit of a
    weight, and AttributeError for an amount that :class:`Effort` does not count."""
    # The function ``weight`` stores the fields of a Term with the key that it declares.
    extras = ((name, field.json_schema_extra) for name, field in section.model_fields.items())
    terms: Any = {name: extra["term"] for name, extra in extras if isinstance(extra, dict) and "term" in extra}
    # Keys without a term must be units, and all units must be keys. ``^``: what is only in one of the two sets.
    units = {term["unit"] for term in terms.values()} - {""}
    if odd := sorted((section.model_fields.keys() - terms.keys()) ^ units):
        raise SettingsError(f"the section `{section.__name__}` has {', '.join(odd)}, neither weight nor unit of one; "
                            "declare each with `weight(...)`, or name it as the `unit` of a weight")  # fmt: skip
    # The weight of a term is the key itself; the amount, declared by its name, becomes a function.
    return [Term(**term | {"weight": name, "amount": _amount_function(term["amount"])}) for name, term in terms.items()]


def _amount_function(name: str) -> Callable[[Effort, Tests], float]:
    """Make the function that returns the amount ``name`` of an effort: an attribute of :class:`Effort`, or N_tests for
    ``tests``. Raises AttributeError for an unknown name."""
    if name == "tests":
        return count_tests
    getattr(Effort(), name)  # raises for an unknown name
    return lambda effort, _: getattr(effort, name)


TERMS = declared_terms(Utility)  # everything that computes or prints a utility follows this list


def utility(correct: float, effort: Effort, weights: Utility, tests: Tests) -> float:
    """Compute the utility U = 1(correct) - lambda_test N_tests - lambda_cost C_total - lambda_na N_na, equation
    "utility".

    ``correct`` is 0 or 1, or a probability. ``weights`` are the lambdas, ``tests`` the rule by which N_tests counts.
    C_total is in units of ``cost_unit_usd`` US dollars. Counts of ``effort`` may be arrays: U is then an array of their
    shape.
    """
    total = correct
    for term in TERMS:
        total = total + term.value(effort, weights, tests)
    return total


def utility_formula(weights: Utility) -> str:
    """Write the formula of U with these weights for readers, such as "Acc. as a share - 0.1 tests". Terms of weight 0
    are left out."""
    return "Acc. as a share" + "".join(term.formula(weights) for term in TERMS if getattr(weights, term.weight))


ReturnOf = Callable[[float, Effort], float]
"""A function that computes a return, in units of utility, from correctness (or its probability) and an effort."""


def weighted_utility(settings: Settings) -> ReturnOf:
    """Make the return function of the utility-based algorithms: U with correctness multiplied by
    ``comparators.correctness_weight``. The function takes correctness and effort: of one decision, of a suffix, or of a
    whole trajectory."""
    weight, tests = settings.comparators.correctness_weight, settings.environment.tests
    return lambda correct, effort: utility(weight * correct, effort, settings.utility, tests)
