"""GRPO: the outcome alone is the score."""

from __future__ import annotations

from ...environment.utility import outcome_reward
from .base import Advantages, Context, Groups, Stateless, equal_groups, every_decision, normalised


class Grpo(Stateless):
    """A = group-relative R_out."""

    def __init__(self, context: Context):
        self.settings = context.settings

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """One advantage per trajectory."""
        scores = [[outcome_reward(trajectory) for trajectory in group] for group in groups]
        decisions = every_decision(normalised(scores, self.settings), groups)
        return Advantages(decisions, metrics=equal_groups(scores))


def build(context: Context) -> Grpo:
    """The algorithm."""
    return Grpo(context)
