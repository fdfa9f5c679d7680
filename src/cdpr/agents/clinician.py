"""The clinician whose workups the tiny policy first imitates: wasteful, and sometimes wrong."""

from __future__ import annotations

import numpy as np

from ..environment import State
from ..settings import Settings
from .reference import Price, ValueOfInformation

_MOST_REQUESTS = 5
_PLAUSIBLE = 25


class Clinician(ValueOfInformation):
    """Orders informative examinations, with probability ``wasteful`` a plausible one by habit instead, until one
    disease reaches ``confidence`` or patience ends; with probability ``wrong`` settles for a mere possibility.

    Habit favours cheap examinations, as habits do. All randomness comes from the seed of the turn.
    """

    def __init__(self, settings: Settings, dataset: str = "mimic_iv", price: Price | None = None):
        super().__init__(settings, dataset, price)
        self.settings = settings.warm_start.clinician

    def choose(self, state: State, seed: int) -> int | None:
        """An examination, or None when sure or out of patience."""
        if self.posterior(state).max() >= self.settings.confidence or self.requests(state) >= _MOST_REQUESTS:
            return None
        rng = np.random.default_rng(seed)
        net = self.doctor.net_gain(self.posterior(state), *self.charges(state))
        net = np.where(self.asked(state), -np.inf, net)
        if rng.random() < self.settings.wasteful:
            net = np.where(self.physical, -np.inf, net)
            plausible = np.argsort(-net, kind="stable")[:_PLAUSIBLE]
            plausible = plausible[np.isfinite(net[plausible])]
            if plausible.size:
                habit = 1.0 / (10.0 + self.prices(state)[plausible])
                return int(rng.choice(plausible, p=habit / habit.sum()))
        return int(net.argmax()) if np.isfinite(net.max()) else None

    def diagnose(self, state: State, seed: int) -> str:
        """The likeliest disease, or now and then one drawn from the flattened posterior."""
        p = self.posterior(state)
        # Another stream than the choice of examinations, which the same seed may have fed at this turn.
        rng = np.random.default_rng([seed, 1])
        if rng.random() >= self.settings.wrong:
            return self.doctor.diseases[int(p.argmax())]
        flat = np.sqrt(p)
        return self.doctor.diseases[int(rng.choice(len(p), p=flat / flat.sum()))]
