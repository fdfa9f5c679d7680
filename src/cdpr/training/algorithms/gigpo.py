"""GiGPO: a step-level advantage within groups of decisions at the same anchor state (Feng et al., 2025)."""

from __future__ import annotations

from ...credit.tree import build_tree
from ...environment import Trajectory
from ...environment.utility import weighted_utility
from ..advantage import group_relative
from ..algorithm import NORMALISATION, Algorithm, Context, Group, GroupAdvantages, every_decision


class Gigpo(Algorithm):
    """A = group-relative U(tau) + omega * anchor-relative return to go; no extra rollouts. A state that only one
    trajectory visits has no step-level part."""

    reads = (
        *NORMALISATION,
        "utility",
        "comparators.correctness_weight",
        "comparators.gigpo_weight",
        "comparators.gigpo_discount",
    )

    def __init__(self, context: Context):
        super().__init__(context)
        self.worth = weighted_utility(context.settings)

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        scores = [self.worth(trajectory.correct, trajectory.effort()) for trajectory in group]
        decisions = every_decision(self.normalised(scores), group)
        counts = {"credit/anchored_decisions": self._add_step_level(group, decisions)}
        return GroupAdvantages(decisions=decisions, scores=scores, counts=counts)

    def _add_step_level(self, group: Group, decisions: list[list[float]]) -> int:
        """Adds the step-level part in place; returns how many decisions got one."""
        import torch

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
        returns: list[float] = []
        for step in reversed(trajectory.steps):
            now = self.worth(not returns and trajectory.correct, step.effort)
            returns.append(now + self.settings.comparators.gigpo_discount * (returns[-1] if returns else 0.0))
        return returns[::-1]
