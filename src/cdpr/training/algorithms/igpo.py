"""IGPO: a turn's reward is the gain in probability of the true answer (Wang et al., ICLR 2026, arXiv 2510.14967).

As published, the reward of the last turn is the outcome, all rewards of a group are standardised together, and a
decision is credited with the sum of the rewards from its turn on. Unlike in the publication, the price of a turn, in
units of correctness, is subtracted from its reward: otherwise costs would not count. The probability of a name is the
geometric mean over its tokens.
"""

from itertools import pairwise

from ...credit.belief import read_beliefs
from ...credit.continuations import discounted_sums
from ...settings import Settings
from ..algorithm import Algorithm, Group, GroupAdvantages, standardise


class Igpo(Algorithm):
    """IGPO: A_t is the sum of the standardised rewards from turn t on. The reward of a turn is p(truth | s_{t+1}) -
    p(truth | s_t), the gain in probability of the true disease, minus the price of the turn. In the last turn the
    outcome (0 or 1) replaces the gain."""

    reads = ("utility", "comparators")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each decision: the sum of the standardised rewards from this decision on."""
        weight = self.settings.comparators.correctness_weight
        states = [state for trajectory in group for state in trajectory.states]
        beliefs = await read_beliefs(self.context.policy, states, "per_token")
        rewards = []
        for trajectory in group:
            gains = [after - before for before, after in pairwise(beliefs[s.key] for s in trajectory.states)]
            gains.append(float(trajectory.correct))  # of the last turn: the outcome
            # The return without a right diagnosis is minus the price of the turn.
            minus_prices = [self.return_of(0.0, step.effort) / weight for step in trajectory.steps]
            rewards.append([gain + minus_price for gain, minus_price in zip(gains, minus_prices, strict=True)])
        decisions = [discounted_sums(row, discount=1.0) for row in standardise(rewards)]
        return GroupAdvantages(decisions=decisions, counts={"credit/states": len(beliefs)})

    @classmethod
    def scoring_policies(cls, settings: Settings) -> set[str]:
        """Return ``{"current"}``: the policy in training scores the names of the true disease."""
        return {"current"}
