"""VinePPO-style credit: Monte-Carlo values at every state of every trajectory (Kazemnejad et al., 2024)."""

from __future__ import annotations

import asyncio
from statistics import pstdev

from ...credit.rollouts import Draws
from ...credit.vine import group_advantages, state_values
from ...environment.utility import weighted_utility
from .base import Advantages, Context, Groups, Stateless


class VinePpo(Stateless):
    """A_t = r_t + V(s_{t+1}) - V(s_t), where V is the mean return of whole continuations by the current policy, the
    same ones wherever trajectories share a state. Advantages are divided by their deviation over the batch."""

    def __init__(self, context: Context):
        self.context, self.worth = context, weighted_utility(context.settings)
        self.numbers = range(context.settings.comparators.continuations)

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """One advantage per decision."""
        context = self.context
        draws = [Draws(context.environment, context.policy, context.seed, ("actor", iteration)) for _ in groups]
        values = await asyncio.gather(
            *(state_values(d, group, self.numbers, self.worth) for d, group in zip(draws, groups, strict=True))
        )
        decisions = [group_advantages(*pair, self.worth) for pair in zip(groups, values, strict=True)]
        scale = pstdev([a for group in decisions for steps in group for a in steps]) or 1.0
        decisions = [[[a / scale for a in steps] for steps in group] for group in decisions]
        metrics = {
            "credit/states": sum(map(len, values)),
            "credit/continuation_tokens": sum(d.tokens for d in draws),
            "credit/failed": sum(d.failed for d in draws),
        }
        return Advantages(decisions, metrics=metrics)


def build(context: Context) -> VinePpo:
    """The algorithm."""
    return VinePpo(context)
