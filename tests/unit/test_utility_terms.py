"""Every statement of the utility follows the list of its terms."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cdpr.agents.reference import ValueOfInformation
from cdpr.environment import Effort, State
from cdpr.environment import utility as utility_module
from cdpr.environment.utility import TERMS, Term, declared_terms, utility, utility_formula
from cdpr.report.inspector.oracle import Oracle
from cdpr.report.main_table import add_levels
from cdpr.report.results import Results
from cdpr.report.table import Sheet
from cdpr.settings import SettingsError, parse_settings
from cdpr.settings.schema import Utility
from cdpr.settings.section import key, weight

REWARD = Term("results", "cost_unit_usd", lambda effort, _: effort.available, sign=1)
MISSES = Term("misses", "lambda_test", lambda effort, _: effort.unavailable + effort.invalid)
EFFORT = Effort(issued=5, available=3, unavailable=2, invalid=1, repeated=0, physical=2, cost_usd=170.0)


def test_the_shipped_formula():
    formula = utility_formula(parse_settings({}).utility)
    assert formula == "Acc. as a share - 0.05 tests - 0.02 cost / 1 USD - 0.1 N_na"


def test_a_term_of_weight_zero_is_in_no_formula():
    formula = utility_formula(parse_settings({"utility": {"lambda_cost": 0.0}}).utility)
    assert formula == "Acc. as a share - 0.05 tests - 0.1 N_na"


class WithPhysical(Utility):
    lambda_physical: float = weight(0.01, "physical", symbol="bedside")


class Unknown(Utility):
    lambda_smile: float = weight(0.01, "smiles")


class WithoutTerm(Utility):
    lambda_physical: float = key(0.01, "Price of a physical examination.")


class WithOddUnit(Utility):
    lambda_physical: float = weight(0.01, "physical", unit="cost_unit")


def test_a_weight_declares_its_term():
    *shipped, added = declared_terms(WithPhysical)
    assert [term.symbol for term in shipped] == [term.symbol for term in TERMS] == ["tests", "cost", "N_na"]
    weights, counting = WithPhysical(lambda_physical=0.5), parse_settings({}).environment.tests
    assert added.value(EFFORT, weights, counting) == -0.5 * EFFORT.physical
    assert added.formula(weights) == " - 0.5 bedside"
    with pytest.raises(AttributeError, match="smiles"):
        declared_terms(Unknown)
    with pytest.raises(SettingsError, match="`WithoutTerm` has lambda_physical, neither weight nor unit"):
        declared_terms(WithoutTerm)
    with pytest.raises(SettingsError, match="`WithOddUnit` has cost_unit, neither"):
        declared_terms(WithOddUnit)


def value_of(formula: str, correct: float, amounts: dict[str, float]) -> float:
    """A stated formula, computed."""
    total = correct
    for sign, price, name, unit in re.findall(
        r" ([-+]) ([\d.]+) ([A-Za-z_ ]+?)(?: / ([\d.]+) USD)?(?= [-+]|$)", formula
    ):
        total += (1 if sign == "+" else -1) * float(price) * amounts[name] / float(unit or 1)
    return total


@pytest.mark.parametrize("added", [[], [REWARD], [MISSES, REWARD]])
@pytest.mark.parametrize("tests", [{}, {"count": "available"}, {"count_physical": True}])
def test_an_added_term_reaches_every_formula_and_every_planner(case, monkeypatch, tmp_path, added, tests):
    settings = parse_settings({"utility": {"cost_unit_usd": 7.5}, "environment": {"tests": tests}})
    weights, counting = settings.utility, settings.environment.tests
    base = utility(1.0, EFFORT, weights, counting)
    monkeypatch.setattr(utility_module, "TERMS", [*TERMS, *added])
    total = utility(1.0, EFFORT, weights, counting)
    assert total == pytest.approx(base + sum(term.value(EFFORT, weights, counting) for term in added))
    amounts = {term.symbol: float(term.amount(EFFORT, counting)) for term in utility_module.TERMS}
    sheet = Sheet(settings, "main_table")
    add_levels(sheet, Results(settings, tmp_path, []), "greedy")
    caption = re.search("Utility: (.*?), on average", sheet.tables[0].caption)
    for formula in (utility_formula(weights), caption.group(1)):
        assert value_of(formula, 1.0, amounts) == pytest.approx(total)
    agent = ValueOfInformation(settings)
    charge, miss = agent.charges(State(case))
    prices = agent.prices(State(case))
    for n, physical in enumerate(agent.physical):
        one = Effort(physical=1) if physical else Effort(issued=1, available=1, cost_usd=float(prices[n]))
        assert charge[n] == -utility(0.0, one, weights, counting)
    assert charge.shape == agent.physical.shape and np.any(agent.physical)
    assert miss == -utility(0.0, Effort(issued=1, unavailable=1), weights, counting)
    assert agent.loss(Effort(invalid=1)) == -utility(0.0, Effort(invalid=1), weights, counting)
    invalid, unavailable = ("invalid", ""), ("unavailable", "no such examination")
    values = Oracle(settings, "mimic_iv").opinion(State(case), ("end", ""), [invalid, unavailable]).values
    assert values[invalid] - values[unavailable] == pytest.approx(miss - agent.loss(Effort(invalid=1)))
