"""GRPO: the outcome alone is the score."""

from ...environment.utility import outcome_reward
from ..algorithm import Algorithm, Group, GroupAdvantages, every_decision


class Grpo(Algorithm):
    """A = group-relative R_out."""

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each trajectory, from its outcome."""
        scores = [outcome_reward(trajectory) for trajectory in group]
        return GroupAdvantages(decisions=every_decision(self.normalised(scores), group), scores=scores)
