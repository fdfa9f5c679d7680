"""CDPR: outcome reward plus counterfactual process rewards (paper, section "Training with
Counterfactual Process Reward")."""

from __future__ import annotations

import asyncio

from ...credit.diagnostics import summarise
from ...credit.process_reward import ProcessReward
from ...credit.utility import outcome_reward
from .base import Context, Scores


class Cdpr:
    """G = R_out + beta * sum of R_proc over the selected states, equation "trajectory score"."""

    def __init__(self, context: Context):
        self.credit = context.settings.credit
        continuation = context.frozen() if self.credit.continuation.policy == "frozen_init" else context.policy
        self.process_reward = ProcessReward(
            context.environment, context.policy, continuation, self.credit, context.settings.utility, context.seed
        )

    async def score(self, groups, iteration: int) -> Scores:
        """Trajectory scores; with ``credit.step_level`` the process reward goes to its own decision instead."""
        reports = await asyncio.gather(*(self.process_reward.score_group(group, iteration) for group in groups))
        bonus = [[[self.credit.beta * (r or 0.0) for r in steps] for steps in report.process] for report in reports]
        outcome = [[outcome_reward(trajectory) for trajectory in group] for group in groups]
        metrics = summarise(reports, outcome, self.credit.beta)
        if self.credit.step_level:
            return Scores(outcome, bonus, metrics)
        total = [
            [r_out + sum(steps) for r_out, steps in zip(*pair, strict=True)]
            for pair in zip(outcome, bonus, strict=True)
        ]
        return Scores(total, None, metrics)

    def state(self):
        """The rollout cache, least recently used first."""
        return self.process_reward.cache.entries

    def restore(self, state) -> None:
        """Continue with the cache of an interrupted run."""
        self.process_reward.cache.entries = state


def build(context: Context) -> Cdpr:
    """The algorithm."""
    return Cdpr(context)
