"""VinePPO-style credit: Monte-Carlo values at every state of every trajectory (Kazemnejad et al., 2024)."""

from collections.abc import Sequence
from statistics import pstdev

from pydantic import PositiveInt

from ...credit.continuations import Draws, group_advantages, state_values
from ...settings import Section, key
from ..algorithm import Algorithm, Group, GroupAdvantages


class VinePpo(Algorithm):
    """VinePPO: A_t = r_t + V(s_{t+1}) - V(s_t). V(s) is the mean return of whole continuations, sampled from the
    current policy at s; trajectories that share a state share its continuations. Advantages are divided by their
    standard deviation over the batch."""

    class Options(Section):
        continuations: PositiveInt = key(4, "Whole continuations drawn at every state.")

    reads = ("utility", "comparators")

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each decision; :meth:`finish_batch` divides it by the standard deviation over the
        batch."""
        context = self.context
        # The tuple chooses the random numbers: the same as those of CDPR's draws from the current policy.
        draws = Draws(context.environment, context.policy, context.seed, ("actor", iteration))
        values = await state_values(draws, group, range(self.options.continuations), self.return_of)
        counts = {"credit/states": len(values)} | draws.counts
        return GroupAdvantages(decisions=group_advantages(group, values, self.return_of), counts=counts)

    def finish_batch(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Divide the advantages by their standard deviation over all decisions of the batch, in place; where it is 0
        they stay as they are. Returns the metrics of the batch."""
        scale = pstdev([a for group in batch for trajectory in group.decisions for a in trajectory]) or 1.0
        for group in batch:
            group.decisions = [[a / scale for a in trajectory] for trajectory in group.decisions]
        return super().finish_batch(batch)
