"""Utility-GRPO: the costs in the terminal reward and no process reward.

The control that the paper lacks: it tells how much of CDPR's effect comes from the cost terms and how
much from counterfactual credit.
"""

from __future__ import annotations

from ...credit.utility import utility
from .base import Context, Scores, Stateless


class UtilityGrpo(Stateless):
    """G = U(tau), equation "utility"."""

    def __init__(self, context: Context):
        self.weights = context.settings.utility
        self.tests = context.settings.environment.tests

    async def score(self, groups, iteration: int) -> Scores:
        """Utilities."""
        return Scores([[utility(t.correct, t.effort(), self.weights, self.tests) for t in group] for group in groups])


def build(context: Context) -> UtilityGrpo:
    """The algorithm."""
    return UtilityGrpo(context)
