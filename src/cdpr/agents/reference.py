"""Reference policies that know the synthetic hospital's model: the best that can be done, and how badly habits do.

All are ordinary agents: they see the presentation and the results, and read both through the hospital's
:class:`~cdpr.hospital.posterior.Diagnostician`. On cases that nobody here wrote they can read little and
fall back to the most frequent disease.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from ..environment import FinalDiagnosis, Observation, RequestTest, State, Turn, render_action
from ..hospital.posterior import Diagnostician, canonical_name
from ..settings.schema import Tests, Utility

Price = Callable[[State, str], float]
REFERENCE_POLICIES = ("zero_test", "all_tests", "random", "cheapest_first", "value_of_information")
_NEGLIGIBLE = 1e-3
_REMEMBERED = 4096


class ReferenceAgent:
    """Diagnoses the likeliest disease at once; others override :meth:`choose`."""

    def __init__(self, doctor: Diagnostician):
        self.doctor = doctor
        self.physical = np.array([doctor.hospital.examinations[e].kind == "physical" for e in doctor.exams])
        self._known: OrderedDict[tuple, np.ndarray] = OrderedDict()

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Request what :meth:`choose` says, or diagnose."""
        pick = None if forced else self.choose(state, seed)
        if pick is None:
            return Turn(render_action(FinalDiagnosis(self.diagnose(state, seed)), "full"))
        return Turn(render_action(RequestTest(self.doctor.key(self.doctor.exams[pick])), "full"))

    def choose(self, state: State, seed: int) -> int | None:
        """Index of the examination to request, or None to diagnose."""
        return None

    def diagnose(self, state: State, seed: int) -> str:
        """The likeliest disease."""
        return self.doctor.diseases[int(self.posterior(state).argmax())]

    def posterior(self, state: State) -> np.ndarray:
        """P(disease | state), shape [D]; remembered, so that a step costs one update."""
        p = self._known.get(state.key)
        if p is None:
            if state.history:
                p = self.posterior(State(state.case, state.history[:-1]))
                seen: Observation = state.history[-1].observation
                if seen.kind == "result":
                    p = self.doctor.update(p, seen.exam_key, seen.text)
            else:
                p = self.doctor.prior(state.presentation)
            self._known[state.key] = p
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return p

    def asked(self, state: State) -> np.ndarray:
        """Which examinations were requested already, shape [examinations] of bool."""
        names = set()
        for step in state.history:
            if isinstance(step.action, RequestTest):
                names.add(canonical_name(step.action.name))
            if step.observation.exam_key is not None:
                names.add(canonical_name(step.observation.exam_key))
        return np.array([exam in names for exam in self.doctor.exams])

    def requests(self, state: State) -> int:
        """Requests so far that are no items of the physical examination."""
        return int((self.asked(state) & ~self.physical).sum())


class AllTests(ReferenceAgent):
    """Orders every examination that the hospital knows, then diagnoses; the ceiling of accuracy."""

    unlimited_turns = True

    def choose(self, state: State, seed: int) -> int | None:
        """The next one in the model's order."""
        left = np.flatnonzero(~self.asked(state))
        return int(left[0]) if left.size else None


class RandomTests(ReferenceAgent):
    """Orders a fixed number of examinations at random, then diagnoses."""

    def __init__(self, doctor: Diagnostician, requests: int = 3):
        super().__init__(doctor)
        self.limit = requests

    def choose(self, state: State, seed: int) -> int | None:
        """One of those not asked for yet, each with equal chance."""
        if self.requests(state) >= self.limit:
            return None
        left = np.flatnonzero(~self.asked(state) & ~self.physical)
        return int(np.random.default_rng(seed).choice(left))


class PricedAgent(ReferenceAgent):
    """An agent that knows what examinations cost."""

    def __init__(self, doctor: Diagnostician, price: Price):
        super().__init__(doctor)
        self.price = price

    def prices(self, state: State) -> np.ndarray:
        """US dollars that each examination would cost now, shape [examinations]; physical ones are free."""
        return np.array(
            [
                0.0 if free else self.price(state, self.doctor.key(exam))
                for exam, free in zip(self.doctor.exams, self.physical, strict=True)
            ]
        )


class CheapestFirst(PricedAgent):
    """Orders by rising price until one disease is likely enough."""

    def __init__(self, doctor: Diagnostician, price: Price, confidence: float = 0.8):
        super().__init__(doctor, price)
        self.confidence = confidence

    def choose(self, state: State, seed: int) -> int | None:
        """The cheapest of those not asked for yet."""
        if self.posterior(state).max() >= self.confidence:
            return None
        left = np.flatnonzero(~self.asked(state) & ~self.physical)
        return int(left[self.prices(state)[left].argmin()]) if left.size else None


class ValueOfInformation(PricedAgent):
    """Orders the examination with the highest expected gain in the paper's utility (equation "utility"),
    as if a diagnosis followed; stops when none gains. It plans with the marginal availability."""

    def __init__(self, doctor: Diagnostician, price: Price, utility: Utility, tests: Tests):
        super().__init__(doctor, price)
        self.utility, self.tests = utility, tests

    def gains(self, state: State) -> np.ndarray:
        """Expected net gain of each examination, shape [examinations]; -inf for those asked for."""
        u = self.utility
        counted = ~self.physical | self.tests.count_physical
        charge = u.lambda_test * counted + u.lambda_cost * self.prices(state) / u.cost_unit_usd
        miss = u.lambda_na + (u.lambda_test if self.tests.count == "issued" else 0.0)
        net = self.doctor.net_gain(self.posterior(state), charge, miss)
        return np.where(self.asked(state), -np.inf, net)

    def choose(self, state: State, seed: int) -> int | None:
        """The best one, if it is worth its price."""
        net = self.gains(state)
        return int(net.argmax()) if net.max() > _NEGLIGIBLE else None


def reference_agent(name: str, doctor: Diagnostician, price: Price, utility: Utility, tests: Tests) -> ReferenceAgent:
    """A reference policy by its name in :data:`REFERENCE_POLICIES`. Raises ValueError for another name."""
    match name:
        case "zero_test":
            return ReferenceAgent(doctor)
        case "all_tests":
            return AllTests(doctor)
        case "random":
            return RandomTests(doctor)
        case "cheapest_first":
            return CheapestFirst(doctor, price)
        case "value_of_information":
            return ValueOfInformation(doctor, price, utility, tests)
    raise ValueError(f"reference policy {name!r}: expected one of {', '.join(REFERENCE_POLICIES)}")
