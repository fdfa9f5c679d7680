"""The clinicians whose workups a policy first imitates: they know medicine, and have habits."""

from dataclasses import dataclass

import numpy as np

from ..environment import RequestTest, State, Turn, parse_action
from ..seeding import derive_seed
from ..settings import Settings
from .reference import Price, ValueOfInformation

_EFFORT = 0.01  # utility lost to any order of a clinician who does not look at prices


@dataclass(frozen=True)
class Habits:
    """Shares of cases by habit, from 0 to 1, and when each habit stops.

    ``premature``: diagnoses at once (``at_once`` of these cases) or after one examination; ``defensive``: orders what
    informs most at any price, and stops at the posterior probability ``certainty``. The economical habit has all other
    cases and stops at ``confidence``. ``patience``: examinations after which every habit diagnoses.
    """

    premature: float = 0.25
    at_once: float = 0.6
    defensive: float = 0.3
    certainty: float = 0.95
    confidence: float = 0.80
    patience: int = 4


class Clinician(ValueOfInformation):
    """Gives the likeliest diagnosis after a workup in one of three :class:`Habits`; the economical one weighs
    information against its price.

    The number of a case decides the habit. No policy sees that number: one that imitates the workups learns all three
    habits and picks at random.
    """

    habits = Habits()

    def __init__(self, settings: Settings, dataset: str = "mimic_iv", price: Price | None = None):
        super().__init__(settings, dataset, price)
        self.reasons = settings.environment.prompt.style == "full"

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """A reply as the full prompt asks for it, with differential diagnoses and a reason; forced or compact ones have
        neither."""
        turn = await super().act(state, forced, seed)
        if forced or not self.reasons:
            return turn
        p, action = self.posterior(state), parse_action(turn.text)
        first, second, third = (self.doctor.diseases[k] for k in np.argsort(-p, kind="stable")[:3])
        if isinstance(action, RequestTest):
            thinking = f"Top differentials: (1) {first}, (2) {second}, (3) {third}. {action.name} discriminates best."
            reason = f"To tell {first} from {second}."
        else:
            thinking = f"{first} explains the findings better than {second}."
            reason = f"{first} is the most likely diagnosis, with a probability of {p.max():.0%}."
        return Turn(f"THINKING: {thinking}\n{turn.text}\nReason: {reason}")

    def choose(self, state: State, seed: int) -> int | None:
        """An examination, or None when sure enough or out of patience."""
        habits, drawn = self.habits, derive_seed("habit", state.case.note_id) / 2**63
        patience, enough, charges = habits.patience, habits.confidence, self.charges
        if drawn < habits.premature:
            patience = 0 if drawn < habits.premature * habits.at_once else 1
        elif drawn < habits.premature + habits.defensive:
            enough, charges = habits.certainty, self.efforts
        p = self.posterior(state)
        if self.requests(state) >= patience or p.max() >= enough:
            return None
        charge, miss = charges(state)
        gain = np.where(self.asked(state), -np.inf, self.doctor.net_gain(p, charge, miss))
        return int(gain.argmax()) if np.isfinite(gain.max()) else None

    def efforts(self, state: State) -> tuple[np.ndarray, float]:
        """As :meth:`charges` to one who does not look at prices."""
        return np.where(self.physical, 0.0, _EFFORT), _EFFORT
