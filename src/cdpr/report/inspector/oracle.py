"""How a reference agent that knows the model of the synthetic hospital judges a decision: its posterior over diseases,
and the value of every action.

The posterior is Bayes' rule under the model that generated the cases. The value of an action is the expected utility
from this decision on, under that posterior, if at most one more examination follows the action and the likeliest
disease is then named. The reference policy ``value_of_information`` plans with these values, which are lower bounds of
those of the best policy.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...agents.reference import ValueOfInformation
from ...credit.states import ActionKey
from ...environment import Effort, State, TableJudge
from ...hospital.posterior import canonical_name
from ...settings import Settings

_SHOWN = 5  # how many diseases of a posterior are shown
_NEGLIGIBLE = 1e-3  # the gain in utility up to which the reference policy does not request an examination


class Opinion(NamedTuple):
    """The reference's judgement of one decision.

    - ``posterior``: the likeliest diseases with their probabilities.
    - ``values``: the values of the compared actions, the action taken first, in units of utility. None for an
      examination that the model does not know, unless the record lacks it: then only its charge counts.
    - ``best``: the best of all actions, and ``best_value`` its value.
    - ``lost``: the best value minus that of the action taken; None where the latter is not known.
    """

    posterior: tuple[tuple[str, float], ...]
    values: dict[ActionKey, float | None]
    best: ActionKey
    best_value: float
    lost: float | None

    @property
    def disagrees(self) -> bool:
        """Whether the best action is better than the action taken by more than :data:`_NEGLIGIBLE`, up to which the
        reference would not have ordered another examination. False where the value of the action taken is unknown."""
        return self.lost is not None and self.lost > _NEGLIGIBLE


class Oracle:
    """Judges decisions on the cases of one data set of the synthetic hospital (:class:`Opinion`)."""

    def __init__(self, settings: Settings, dataset: str):
        self.agent, self._judge = ValueOfInformation(settings, dataset), TableJudge()

    def opinion(self, state: State, taken: ActionKey, others: Iterable[ActionKey]) -> Opinion:
        """Judge the action ``taken`` in a state, and value the actions ``others``.

        An action is a pair (kind, text). A diagnosis is (``end``, text), where an empty text stands for the likeliest
        disease. A request is (kind, examination), where the kind says how it is answered: ``result``, ``repeat`` (of an
        earlier request), ``unavailable``, ``over_budget`` or ``invalid``.
        """
        doctor = self.agent.doctor  # the model of the hospital: its diseases and examinations
        actions = list(dict.fromkeys([taken, *others]))
        names = {(kind, text): canonical_name(text) for kind, text in actions if kind != "end"}
        # The index of the examination of each request that the model knows.
        exam_of = {action: doctor.exams.index(name) for action, name in names.items() if name in doctor.exams}
        posterior, requested = self.agent.posterior(state), self.agent.is_requested(state)
        # The utility lost to an examination with a result [examinations], and to a request without one (a miss).
        charge, miss = self.agent.charges(state)
        # By how much each examination is better than diagnosing now. To save time `two_step_gain` leaves out those that
        # gain little, unless they are listed.
        open_exams = [exam for exam in exam_of.values() if not requested[exam]]
        gain = doctor.two_step_gain(posterior, charge, miss, requested, also=open_exams)
        diagnosed = float(posterior.max())  # the value of naming the likeliest disease now
        best_exam, best_gain = int(gain.argmax()), float(gain.max())
        unchanged = diagnosed + max(best_gain, 0.0)  # the value of the state after a request that brought nothing

        def value(action: ActionKey) -> float | None:
            """Return the value of an action, as :attr:`Opinion.values` has it."""
            kind, text = action
            if kind == "end":
                return self._probability_right(posterior, text) if text else diagnosed
            if kind == "invalid":  # it costs something, and the state stays as it is
                return unchanged - self.agent.loss(Effort(invalid=1))
            if kind == "over_budget":  # it counts as missing, and the diagnosis comes next
                return diagnosed - miss
            if action not in exam_of:  # unknown to the model: its value is known only if the record lacks it
                return unchanged - miss if kind == "unavailable" else None
            if requested[exam_of[action]]:  # a repeated result is free of charge; a missing one costs again
                return unchanged if kind == "repeat" else unchanged - miss
            return diagnosed + float(gain[exam_of[action]])

        values = {action: value(action) for action in actions}
        best, best_value = ("end", doctor.diseases[int(posterior.argmax())]), diagnosed
        if best_gain > _NEGLIGIBLE:
            best, best_value = ("result", doctor.key(doctor.exams[best_exam])), diagnosed + best_gain
        value_taken = values[taken]
        lost = None if value_taken is None else max(0.0, best_value - value_taken)
        likeliest = np.argsort(-posterior, kind="stable")[:_SHOWN]
        shown = tuple((doctor.diseases[int(disease)], float(posterior[disease])) for disease in likeliest)
        return Opinion(shown, values, best, best_value, lost)

    def _probability_right(self, posterior: np.ndarray, diagnosis: str) -> float:
        """Return the probability, under a ``posterior`` [diseases], that a diagnosis is judged right."""
        is_right = [self._judge.verdict(diagnosis, disease).correct for disease in self.agent.doctor.diseases]
        return float(posterior[np.array(is_right)].sum())
