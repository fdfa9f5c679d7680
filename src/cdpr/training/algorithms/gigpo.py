"""GiGPO: to the advantage of the trajectory it adds an advantage among all decisions that the group took at the same
(anchor) state (Feng et al., 2025)."""

from pydantic import NonNegativeFloat

from ...credit.continuations import discounted_sums, step_returns
from ...credit.states import build_tree
from ...settings import Section, key
from ..algorithm import Algorithm, Group, GroupAdvantages, group_relative, repeat_over_decisions


class Gigpo(Algorithm):
    """GiGPO: A_t = A(tau) + omega A(s_t). A(tau) is the group-relative utility of the trajectory. A(s_t) is the return
    to go of the decision relative to the returns to go of all the group's visits of the same state, where there are
    several; else 0."""

    class Options(Section):
        weight: NonNegativeFloat = key(1.0, "Weight of the step-level advantage (omega).")
        #: Discount of the returns to go: 1 as in the paper's utility; its authors take 0.95, and divide by the standard
        #: deviation or by 1 (`training.normalise: none`).
        discount: float = key(1.0, decision="D38", gt=0, le=1)

    reads = ("training.normalise", "utility", "comparators")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each decision: the advantage of its trajectory in the group, plus the weighted
        advantage of the decision among all visits of its state."""
        scores = [self.return_of(trajectory.correct, trajectory.effort()) for trajectory in group]
        decisions = repeat_over_decisions(self.normalise_scores(scores), group)
        counts = {"credit/anchored_decisions": self._add_step_level(group, decisions)}
        return GroupAdvantages(decisions=decisions, scores=scores, counts=counts)

    def _add_step_level(self, group: Group, decisions: list[list[float]]) -> int:
        """Add the step-level advantage of each decision to ``decisions[i][t]`` (trajectory i, decision t), in place. At
        a state that the group visits several times, it is the return to go of the decision relative to those of the
        other visits. Returns the number of decisions at such states."""
        import torch

        count = 0
        # R_t = r_t + gamma R_{t+1}; correctness counts in the reward of the last decision alone.
        gamma = self.options.discount
        returns_to_go = [discounted_sums(step_returns(trajectory, self.return_of), gamma) for trajectory in group]
        for node in build_tree(group).values():
            if len(node.visits) < 2:
                continue
            returns = torch.tensor([[returns_to_go[i][t] for i, t in node.visits]], dtype=torch.float64)
            relative = group_relative(returns, self.settings.training.normalise)[0].tolist()
            for (i, t), advantage in zip(node.visits, relative, strict=True):
                decisions[i][t] += self.options.weight * advantage
            count += len(node.visits)
        return count
