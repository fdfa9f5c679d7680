"""Utility-GRPO: the final reward of an episode includes its costs; there is no process reward.

The paper lacks this control. If CDPR estimated its values without error, its trajectory-level form would *be* this rule
with the correctness weight (1 + beta) / beta (``comparators.correctness_weight``; docs/method.md, "What CDPR is when
nothing is estimated"). At that weight any difference between the two is bias or noise of the counterfactual estimates.
"""

from ..algorithm import Algorithm, Group, GroupAdvantages, repeat_over_decisions


class UtilityGrpo(Algorithm):
    """Utility-GRPO: the advantage of a trajectory is its group-relative utility U (equation "utility"): weighted
    correctness minus the costs of its examinations."""

    reads = ("training.normalise", "utility", "comparators")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each trajectory from its utility; all its decisions get it."""
        scores = [self.return_of(trajectory.correct, trajectory.effort()) for trajectory in group]
        return GroupAdvantages(decisions=repeat_over_decisions(self.normalise_scores(scores), group), scores=scores)
