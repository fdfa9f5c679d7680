"""GiGPO: a step-level advantage within groups of decisions at the same anchor state (Feng et al., 2025)."""

from __future__ import annotations

import torch

from ...credit.tree import build_tree
from ...environment import Trajectory
from ...environment.utility import weighted_utility
from ..advantage import group_relative
from .base import Advantages, Context, Groups, Stateless, equal_groups, every_decision, normalised


class Gigpo(Stateless):
    """A = group-relative U(tau) + omega * anchor-relative return to go; no extra rollouts. A state that only one
    trajectory visits has no step-level part."""

    def __init__(self, context: Context):
        self.settings, self.worth = context.settings, weighted_utility(context.settings)

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """One advantage per decision."""
        scores = [[self.worth(trajectory.correct, trajectory.effort()) for trajectory in group] for group in groups]
        decisions = every_decision(normalised(scores, self.settings), groups)
        anchored = sum(self._add_step_level(group, steps) for group, steps in zip(groups, decisions, strict=True))
        return Advantages(decisions, metrics=equal_groups(scores) | {"credit/anchored_decisions": anchored})

    def _add_step_level(self, group, decisions: list[list[float]]) -> int:
        """Adds the step-level part in place; returns how many decisions got one."""
        plan, anchored = self.settings.training, 0
        to_go = [self._returns_to_go(trajectory) for trajectory in group]
        for node in build_tree(group).values():
            if len(node.visits) < 2:
                continue
            returns = torch.tensor([[to_go[i][t] for i, t in node.visits]], dtype=torch.float64)
            relative = group_relative(returns, plan.normalise, plan.normalise_floor)[0].tolist()
            for (i, t), a in zip(node.visits, relative, strict=True):
                decisions[i][t] += self.settings.comparators.gigpo_weight * a
            anchored += len(node.visits)
        return anchored

    def _returns_to_go(self, trajectory: Trajectory) -> list[float]:
        """Discounted returns R_t = r_t + gamma R_{t+1}."""
        returns, ahead = [], 0.0
        for t, step in reversed(list(enumerate(trajectory.steps))):
            last = t == len(trajectory.steps) - 1
            now = self.worth(last and trajectory.correct, step.effort)
            ahead = now + self.settings.comparators.gigpo_discount * ahead
            returns.append(ahead)
        return returns[::-1]


def build(context: Context) -> Gigpo:
    """The algorithm."""
    return Gigpo(context)
