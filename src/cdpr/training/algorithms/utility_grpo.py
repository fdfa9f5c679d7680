"""Utility-GRPO: the costs in the terminal reward and no process reward.

The control that the paper lacks: it tells how much of CDPR's effect comes from the cost terms and how
much from counterfactual credit.
"""

from __future__ import annotations

from ...environment.utility import weighted_utility
from ..algorithm import NORMALISATION, Algorithm, Group, GroupAdvantages, every_decision


class UtilityGrpo(Algorithm):
    """A = group-relative U(tau), equation "utility"."""

    reads = (*NORMALISATION, "utility", "comparators.correctness_weight")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        worth = weighted_utility(self.settings)
        scores = [worth(trajectory.correct, trajectory.effort()) for trajectory in group]
        return GroupAdvantages(decisions=every_decision(self.normalised(scores), group), scores=scores)
