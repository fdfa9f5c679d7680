"""Utility-GRPO: the costs in the terminal reward and no process reward.

The control that the paper lacks. Without estimation error trajectory-level CDPR *is* this rule with the correctness
weight (1 + beta) / beta (``comparators.correctness_weight``; docs/method.md, "What CDPR is when nothing is estimated").
At that weight any difference between the two is bias or noise of the counterfactual estimates.
"""

from ..algorithm import Algorithm, Group, GroupAdvantages, repeat_over_decisions


class UtilityGrpo(Algorithm):
    """A = group-relative U(tau), equation "utility"."""

    reads = ("training.normalise", "utility", "comparators")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each trajectory, from its utility."""
        scores = [self.return_of(trajectory.correct, trajectory.effort()) for trajectory in group]
        return GroupAdvantages(decisions=repeat_over_decisions(self.normalise_scores(scores), group), scores=scores)
