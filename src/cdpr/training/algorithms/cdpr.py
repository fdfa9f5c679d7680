"""CDPR: outcome reward plus counterfactual process rewards (paper, section "Training with
Counterfactual Process Reward")."""

from __future__ import annotations

from ...credit.diagnostics import summarise
from ...credit.process_reward import ProcessReward
from ...credit.score import process_score, trajectory_score, weighted_rewards
from ...environment.utility import outcome_reward
from .base import Advantages, Context, Groups, equal_groups, every_decision, normalised


class Cdpr:
    """A = group-relative G, with G = R_out + beta * sum of R_proc over the selected states."""

    def __init__(self, context: Context):
        self.context, self.settings, self.credit = context, context.settings, context.settings.credit
        self.lag = self.credit.continuation.lag if self.credit.continuation.policy == "lagged" else None
        policy = {"frozen_init": context.frozen, "lagged": context.snapshot, "current": lambda: context.policy}
        self.process_reward = ProcessReward(
            context.environment,
            context.policy,
            policy[self.credit.continuation.policy](),
            self.credit,
            self.settings.utility,
            context.seed,
        )

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """One advantage per trajectory; with ``credit.level: step`` the process reward goes to its own decision."""
        if self.lag and iteration % self.lag == 0:
            self.context.snapshot()
        reports = await self.process_reward.score(groups, iteration, iteration // self.lag if self.lag else 0)
        process = [report.process for report in reports]
        outcome = [[outcome_reward(trajectory) for trajectory in group] for group in groups]
        if self.credit.level == "step":
            scores = outcome
            decisions = self._step_level(every_decision(normalised(outcome, self.settings), groups), process)
        elif self.credit.normalise == "apart" and self.credit.beta > 0:
            scores, advantages = self._apart(outcome, process)
            decisions = every_decision(advantages, groups)
        else:
            scores = [
                [trajectory_score(r, p, self.credit) for r, p in zip(*pair, strict=True)]
                for pair in zip(outcome, process, strict=True)
            ]
            decisions = every_decision(normalised(scores, self.settings), groups)
        metrics = summarise(reports, self.credit) | equal_groups(scores)
        metrics["credit/equal_outcome_groups"] = equal_groups(outcome)["train/equal_groups"]
        rows = [report.row(iteration + 1, group) for report, group in zip(reports, groups, strict=True)]
        return Advantages(decisions, metrics=metrics, records=rows)

    def _step_level(self, decisions, process):
        """A_t = A(R_out) + beta R_proc(s_t, a_t)."""
        return [
            [
                [a + w for a, w in zip(steps, weighted_rewards(rewards, self.credit), strict=True)]
                for steps, rewards in zip(*pair, strict=True)
            ]
            for pair in zip(decisions, process, strict=True)
        ]

    def _apart(self, outcome, process):
        """A = A(R_out) + beta A(P), with P the process part before beta: beta keeps its meaning where all outcomes
        of a group are equal."""
        beta = self.credit.beta
        part = [[process_score(rewards, self.credit) / beta for rewards in group] for group in process]
        scores = [[r + beta * p for r, p in zip(*pair, strict=True)] for pair in zip(outcome, part, strict=True)]
        pairs = zip(normalised(outcome, self.settings), normalised(part, self.settings), strict=True)
        return scores, [[a + beta * p for a, p in zip(*pair, strict=True)] for pair in pairs]

    def state(self):
        """The rollout cache, least recently used first, and whose continuations it holds."""
        return self.process_reward.cache.entries, self.process_reward.version

    def restore(self, state) -> None:
        """Continue with the cache of an interrupted run."""
        self.process_reward.cache.entries, self.process_reward.version = state


def build(context: Context) -> Cdpr:
    """The algorithm."""
    return Cdpr(context)
