"""Reference agents, which know the probabilities of the synthetic hospital. Some are upper bounds of accuracy or
utility; others follow a simple rule, such as "request the cheapest examination first".

They see the presentation and the results like any other agent, and compute the probability of each disease by
:class:`~cdpr.hospital.posterior.Diagnostician`. They cannot read the texts of real hospitals, and name the most
frequent disease there.
"""

import functools
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from cachetools import LRUCache, cachedmethod

from ..costs import price_of
from ..environment import Agent, Effort, FinalDiagnosis, RequestTest, State, Turn, parse_action, render_action
from ..environment.state import render_differential
from ..environment.utility import utility
from ..hospital.posterior import Diagnostician, canonical_name
from ..seeding import derive_seed
from ..settings import Settings

_NEGLIGIBLE = 1e-3  # gain in utility below which an examination is not worth a request
_CACHE = 4096  # states whose posterior is cached, at most
_EFFORT = 0.01  # utility lost to any request of a clinician who ignores prices


class ReferenceAgent(Agent):
    """An agent that knows the posterior probability of each disease. Subclasses choose the examination.

    ``dataset`` names the synthetic hospital whose probabilities it knows. ``doctor`` is the
    :class:`~cdpr.hospital.posterior.Diagnostician` that computes them. Arrays over diseases and examinations are in the
    order of ``doctor.diseases`` and ``doctor.exams``. ``physical`` is the mask of those examinations that are items of
    the physical examination.
    """

    one_decoding = True

    def __init__(self, settings: Settings, dataset: str = "mimic_iv"):
        """Prepare the model of the hospital, the prices by examination key, and an empty cache of posteriors."""
        self.settings = settings
        self.doctor = doctor = Diagnostician(dataset=dataset)
        self.price = functools.cache(lambda key: price_of(key, settings.costs))
        self.physical = np.array([doctor.hospital.examinations[e].kind == "physical" for e in doctor.exams])
        self._posteriors: LRUCache[tuple, np.ndarray] = LRUCache(_CACHE)

    @classmethod
    def build(cls, settings: Settings, spec: None, temperature: float, dataset: str) -> Self:
        """Build the agent for the data set ``dataset``. It has no model, so ``spec`` and ``temperature`` are not
        used."""
        return cls(settings, dataset)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Request the examination that :meth:`choose` returns. Diagnose the likeliest disease where it returns None, or
        if ``forced``."""
        exam = None if forced else self.choose(state, seed)
        if exam is None:
            likeliest = self.doctor.diseases[int(self.posterior(state).argmax())]
            return Turn(render_action(FinalDiagnosis(likeliest), "full"))
        return Turn(render_action(RequestTest(self.doctor.key(self.doctor.exams[exam])), "full"))

    @abstractmethod
    def choose(self, state: State, seed: int) -> int | None:
        """Choose the next action: returns the index of the examination to request (in ``doctor.exams``), or None to
        diagnose. ``seed`` is for agents that choose at random."""

    @cachedmethod(lambda self: self._posteriors, key=lambda self, state: state.key)
    def posterior(self, state: State) -> np.ndarray:
        """Compute P(disease | state), shape [diseases]. It is cached by state, so that a step takes one update of the
        posterior before it. Steps without a new result change nothing."""
        if not state.history:
            return self.doctor.prior(state.case.case_summary)
        before = self.posterior(State(state.case, state.history[:-1]))
        answer = state.history[-1].observation
        if answer.kind != "result" or answer.exam_key is None:
            return before
        return self.doctor.update(before, answer.exam_key, answer.text)

    def differential(self, state: State) -> str:
        """Write the likeliest diseases with their probabilities in tenths, "DIFFERENTIAL: Sepsis 6, Pneumonia 2": the
        first line of a compact reply. They are as many as the setting ``environment.prompt.differential`` says; where
        that is 0, the text is empty."""
        p, size = self.posterior(state), self.settings.environment.prompt.differential
        return render_differential((self.doctor.diseases[k], p[k]) for k in np.argsort(-p, kind="stable")[:size])

    def is_requested(self, state: State) -> np.ndarray:
        """Whether each examination was requested before: a mask, shape [examinations]. True for the examination that a
        request named, and for the one whose result answered it (they may differ: a part and its panel)."""
        requested = [step.action.name for step in state.history if isinstance(step.action, RequestTest)]
        answered = [step.observation.exam_key for step in state.history if step.observation.exam_key is not None]
        names = {canonical_name(name) for name in (*requested, *answered)}
        return np.array([exam in names for exam in self.doctor.exams])

    def count_requests(self, state: State) -> int:
        """Count the examinations requested so far, without items of the physical examination."""
        return int((self.is_requested(state) & ~self.physical).sum())

    def prices(self, state: State) -> np.ndarray:
        """Return the price of each examination at this state in US dollars, shape [examinations]. It is 0 for items of
        the physical examination, and for examinations that are billed together with one that was charged before (such
        as the parts of one panel)."""
        # Prices with the same ``group`` are charged once per case; None: billed alone.
        paid_groups = {self.price(key).group for key in state.obtained} - {None}
        prices = [self.price(self.doctor.key(exam)) for exam in self.doctor.exams]
        return np.array([0.0 if price.group in paid_groups else price.usd for price in prices])


class ZeroTest(ReferenceAgent):
    """Names the likeliest disease at once, without any examination."""

    def choose(self, state: State, seed: int) -> int | None:
        """Return None: diagnose at once."""
        return None


class AllTests(ReferenceAgent):
    """Requests every examination that the hospital knows, then diagnoses: the upper bound of accuracy."""

    unlimited_turns = True

    def choose(self, state: State, seed: int) -> int | None:
        """Choose the first examination that was not requested yet, an index of ``doctor.exams``; None where all
        were."""
        left = np.flatnonzero(~self.is_requested(state))
        return int(left[0]) if left.size else None


class RandomTests(ReferenceAgent):
    """Requests ``limit`` random examinations, then diagnoses. Items of the physical examination are not requested."""

    limit = 3

    def choose(self, state: State, seed: int) -> int | None:
        """Choose a random examination that was not requested yet, by ``seed``; None after ``limit`` requests. Returns
        an index of ``doctor.exams``."""
        if self.count_requests(state) >= self.limit:
            return None
        left = np.flatnonzero(~self.is_requested(state) & ~self.physical)
        return int(np.random.default_rng(seed).choice(left))


class CheapestFirst(ReferenceAgent):
    """Requests the cheapest examination until the likeliest disease has at least the probability ``confidence``, then
    diagnoses. Items of the physical examination, which are free, are not requested."""

    confidence = 0.8

    def choose(self, state: State, seed: int) -> int | None:
        """Choose the cheapest examination that was not requested yet, an index of ``doctor.exams``. None once the
        likeliest disease is probable enough, or when all but the physical items were requested."""
        if self.posterior(state).max() >= self.confidence:
            return None
        left = np.flatnonzero(~self.is_requested(state) & ~self.physical)
        return int(left[self.prices(state)[left].argmin()]) if left.size else None


class ValueOfInformation(ReferenceAgent):
    """Requests the examination with the highest expected gain in utility (equation "utility"), planning at most one
    more request after it. Diagnoses when no examination has a gain. It knows how often examinations are on record in
    the hospital, but not which ones are on this patient's record."""

    part = 1.0  # the share of the cost of a request that counts

    def charges(self, state: State) -> tuple[np.ndarray, float]:
        """Compute what requests cost, in units of utility. Returns the utility lost to an examination with a result,
        shape [examinations], and the utility lost to a request whose result is unavailable, a number."""
        physical: Any = self.physical.astype(int)  # 1 for an item of the physical examination, else 0
        usd: Any = self.prices(state)
        # The efforts of all examinations at once: each count is an array [examinations].
        with_result = Effort(issued=1 - physical, available=1 - physical, physical=physical, cost_usd=usd)
        return self.part * self.loss(with_result), self.part * self.loss(Effort(issued=1, unavailable=1))

    def loss(self, effort: Effort) -> Any:
        """Compute the utility lost to an effort: minus the utility U of the effort without a right diagnosis. It is an
        array where the counts of ``effort`` are arrays."""
        return 0.0 - utility(0.0, effort, self.settings.utility, self.settings.environment.tests)

    def choose(self, state: State, seed: int) -> int | None:
        """Choose the examination with the highest expected gain in utility, an index of ``doctor.exams``. None where no
        gain exceeds :data:`_NEGLIGIBLE`."""
        gain = self.doctor.two_step_gain(self.posterior(state), *self.charges(state), self.is_requested(state))
        return int(gain.argmax()) if gain.max() > _NEGLIGIBLE else None


class DiscountedInformation(ValueOfInformation):
    """The agent :class:`ValueOfInformation` with examinations at a quarter of their cost in utility. It shows the
    accuracy that more money would buy."""

    part = 0.25


class Clinician(ValueOfInformation):
    """An imitated clinician, who names the likeliest disease after examinations chosen by one of three habits.

    In the share ``premature`` of the cases (0 to 1) the clinician diagnoses after one examination, or in the share
    ``at_once`` of these without any. In the share ``defensive`` the clinician requests the most informative examination
    at any price, until a disease has at least the probability ``certainty``. In all other cases the clinician is
    economical: the information of an examination is weighed against its price, until a disease has at least the
    probability ``confidence``. Never more than ``patience`` examinations are requested; items of the physical
    examination do not count.

    A digest of the case's number decides the habit. Policies do not see this number, so a policy that imitates the
    clinician learns all three habits and mixes them at random.
    """

    premature, at_once, defensive = 0.25, 0.6, 0.3
    certainty, confidence, patience = 0.95, 0.80, 4

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Reply with the chosen request or diagnosis. In the full style the reply also has thoughts before the action
        and a reason after it, unless it is ``forced``."""
        turn = await super().act(state, forced, seed)
        if forced or self.settings.environment.prompt.style != "full":
            return turn
        posterior, action = self.posterior(state), parse_action(turn.text)
        first, second, third = (self.doctor.diseases[k] for k in np.argsort(-posterior, kind="stable")[:3])
        if isinstance(action, RequestTest):
            thinking = f"Top differentials: (1) {first}, (2) {second}, (3) {third}. {action.name} discriminates best."
            reason = f"To tell {first} from {second}."
        else:
            thinking = f"{first} explains the findings better than {second}."
            reason = f"{first} is the most likely diagnosis, with a probability of {posterior.max():.0%}."
        return Turn(f"THINKING: {thinking}\n{turn.text}\nReason: {reason}")

    def choose(self, state: State, seed: int) -> int | None:
        """Choose the examination with the highest expected gain, by the prices that the habit of the case considers;
        returns an index of ``doctor.exams``. None to diagnose: when the likeliest disease is probable enough, when the
        habit allows no further examination, or when all were requested."""
        # A uniform number in [0, 1), from a seed of 63 bits; it draws the habit of the case.
        uniform = derive_seed("habit", state.case.note_id) / 2**63
        # The economical habit, unless the case has another one.
        patience, stop_at, charges = self.patience, self.confidence, self.charges
        if uniform < self.premature:
            patience = 0 if uniform < self.premature * self.at_once else 1
        elif uniform < self.premature + self.defensive:
            stop_at, charges = self.certainty, self.equal_charges
        posterior = self.posterior(state)
        if self.count_requests(state) >= patience or posterior.max() >= stop_at:
            return None
        gain = np.where(self.is_requested(state), -np.inf, self.doctor.net_gain(posterior, *charges(state)))
        return int(gain.argmax()) if np.isfinite(gain.max()) else None  # -inf: all were requested

    def equal_charges(self, state: State) -> tuple[np.ndarray, float]:
        """Compute what requests cost if prices are ignored, in the form of :meth:`charges`: the same small loss of
        utility for every examination, 0 for items of the physical examination, and the same loss for a request without
        a result."""
        return np.where(self.physical, 0.0, _EFFORT), _EFFORT
