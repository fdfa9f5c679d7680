"""GRPO: the score of a trajectory is its outcome alone."""

from ...environment.utility import outcome_reward
from ..algorithm import Algorithm, Group, GroupAdvantages, repeat_over_decisions


class Grpo(Algorithm):
    """GRPO: the advantage of a trajectory is its group-relative outcome R_out, which is 1 for a right diagnosis and
    else 0."""

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each trajectory from its outcome; all its decisions get it."""
        scores = [outcome_reward(trajectory) for trajectory in group]
        return GroupAdvantages(decisions=repeat_over_decisions(self.normalise_scores(scores), group), scores=scores)
