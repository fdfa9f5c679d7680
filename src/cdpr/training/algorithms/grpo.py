"""GRPO: the outcome alone is the score."""

from __future__ import annotations

from ...credit.utility import outcome_reward
from .base import Context, Scores, Stateless


class Grpo(Stateless):
    """G = R_out."""

    async def score(self, groups, iteration: int) -> Scores:
        """Outcome rewards."""
        return Scores([[outcome_reward(trajectory) for trajectory in group] for group in groups])


def build(context: Context) -> Grpo:
    """The algorithm."""
    return Grpo()
