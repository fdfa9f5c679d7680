"""GRPO: the outcome alone is the score."""

from ...environment.utility import outcome_reward
from ..algorithm import Algorithm, Group, GroupAdvantages, repeat_over_decisions


class Grpo(Algorithm):
    """A = group-relative R_out."""

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each trajectory, from its outcome."""
        scores = [outcome_reward(trajectory) for trajectory in group]
        return GroupAdvantages(decisions=repeat_over_decisions(self.normalise_scores(scores), group), scores=scores)
