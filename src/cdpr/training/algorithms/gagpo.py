"""GAGPO: generalised advantage estimation with the group's mean returns at identical states as values (arXiv
2605.13217)."""

from collections import defaultdict
from statistics import fmean

from ...credit.continuations import group_advantages
from ...settings import Section, key
from ..algorithm import Algorithm, Group, GroupAdvantages, standardise


class Gagpo(Algorithm):
    """GAGPO: A_t = sum_k lambda^k d_{t+k} with d_t = r_t + V(s_{t+1}) - V(s_t). V(s) is the mean return to go over the
    group's visits of the state s. Advantages are standardised over all decisions of the group."""

    class Options(Section):
        decay: float = key(0.95, "lambda of generalised advantage estimation.", ge=0, le=1)

    reads = ("utility", "comparators")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each decision, standardised over all decisions of the group."""
        returns: dict[tuple, list[float]] = defaultdict(list)  # returns to go of all visits of a state, by its key
        for trajectory in group:
            for t, state in enumerate(trajectory.states):
                returns[state.key].append(self.return_of(trajectory.correct, trajectory.effort(t)))
        values = {state_key: fmean(of_state) for state_key, of_state in returns.items()}  # V(s)
        advantages = group_advantages(group, values, self.return_of, self.options.decay)
        return GroupAdvantages(decisions=standardise(advantages), counts={"credit/states": len(values)})
