"""Utility-GRPO: the costs in the terminal reward and no process reward.

The control that the paper lacks: it tells how much of CDPR's effect comes from the cost terms and how
much from counterfactual credit.
"""

from __future__ import annotations

from ...environment.utility import weighted_utility
from .base import Advantages, Context, Groups, Stateless, equal_groups, every_decision, normalised


class UtilityGrpo(Stateless):
    """A = group-relative U(tau), equation "utility"."""

    def __init__(self, context: Context):
        self.settings, self.worth = context.settings, weighted_utility(context.settings)

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """One advantage per trajectory."""
        scores = [[self.worth(trajectory.correct, trajectory.effort()) for trajectory in group] for group in groups]
        decisions = every_decision(normalised(scores, self.settings), groups)
        return Advantages(decisions, metrics=equal_groups(scores))


def build(context: Context) -> UtilityGrpo:
    """The algorithm."""
    return UtilityGrpo(context)
