"""The opinion of a reference that knows the synthetic hospital's model on a decision: posterior, and value of every
action.

The posterior is Bayes' rule under the model that made the cases. The value of an action is its expected utility from
here on under that posterior, if at most one more examination follows the first and the likeliest disease is then named:
what the reference policy ``value_of_information`` plans with, and a lower bound of what the best policy would reach.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...agents.reference import ValueOfInformation
from ...credit.states import ActionKey
from ...environment import Effort, State, TableJudge
from ...hospital.posterior import canonical_name
from ...settings import Settings

_SHOWN = 5  # diseases of a posterior
_NEGLIGIBLE = 1e-3  # as the reference policy's own


@dataclass(frozen=True)
class Opinion:
    """``posterior``: the likeliest diseases; ``values`` of the compared actions, None for what the model does not know;
    ``best`` action of all with its value ``best_value``; ``lost``: its value minus that of the action taken, in units
    of utility (None where the latter is not known)."""

    posterior: tuple[tuple[str, float], ...]
    values: dict[ActionKey, float | None]
    best: ActionKey
    best_value: float
    lost: float | None

    @property
    def disagrees(self) -> bool:
        """Whether the reference would have taken an action of a higher value."""
        return self.lost is not None and self.lost > _NEGLIGIBLE


class Oracle:
    """Opinions on states of one data set of the synthetic hospital."""

    def __init__(self, settings: Settings, dataset: str):
        self.agent, self._judge = ValueOfInformation(settings, dataset), TableJudge()

    def opinion(self, state: State, taken: ActionKey, others: Iterable[ActionKey]) -> Opinion:
        """Value the action ``taken`` at a state, a diagnosis by its words (``end``, text), and ``others``, where
        (``end``, "") is the likeliest disease."""
        agent, doctor = self.agent, self.agent.doctor
        p, (charge, miss), is_requested = agent.posterior(state), agent.charges(state), agent.is_requested(state)
        actions = list(dict.fromkeys([taken, *others]))
        exams = {action: doctor.exams.index(name) for action in actions if action[0] != "end"
                 and (name := canonical_name(action[1])) in doctor.exams}  # fmt: skip
        stop = float(p.max())
        open_exams = [exam for exam in exams.values() if not is_requested[exam]]
        gain = doctor.two_step_gain(p, charge, miss, is_requested, also=open_exams)
        best = int(gain.argmax())
        go_on = stop + max(float(gain[best]), 0.0)

        def value(action: ActionKey) -> float | None:
            """Return the expected utility from here on after an action; None for an examination that the model does not
            know."""
            kind, name = action
            if kind == "end":
                return self._chance(p, name) if name else stop
            if kind == "invalid":
                return go_on - agent.loss(Effort(invalid=1))
            if action not in exams:  # the model knows no such examination: nothing can come of it
                return go_on - miss if kind == "unavailable" else None
            if is_requested[exams[action]]:
                return go_on if kind == "repeat" else go_on - miss
            return stop + float(gain[exams[action]])

        values = {action: value(action) for action in actions}
        orders = bool(gain[best] > _NEGLIGIBLE)
        chosen = ("result", doctor.key(doctor.exams[best])) if orders else ("end", doctor.diseases[int(p.argmax())])
        value_taken, at_best = values[taken], stop + float(gain[best]) if orders else stop
        order = np.argsort(-p, kind="stable")[:_SHOWN]
        likely = tuple((doctor.diseases[int(d)], float(p[d])) for d in order)
        return Opinion(
            likely, values, chosen, at_best, None if value_taken is None else max(0.0, at_best - value_taken)
        )

    def _chance(self, p: np.ndarray, diagnosis: str) -> float:
        """Compute P(a diagnosis is judged right)."""
        judged = [self._judge.verdict(diagnosis, disease).correct for disease in self.agent.doctor.diseases]
        return float(p[np.array(judged)].sum())
