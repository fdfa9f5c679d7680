"""Tree-GRPO: episodes branch at random decisions, and are compared within their tree and among all trees of the case
(Ji et al., ICLR 2026, arXiv 2509.21240).

The group's n trajectories are the first chains of n trees; at ``nodes`` decisions of each another episode is drawn to
its end. Decisions before a branch belong to several episodes: each of these counts once, with its own advantage.
"""

import asyncio
import random
from statistics import fmean

from pydantic import PositiveInt

from ...environment import Trajectory, run_episode
from ...seeding import derive_seed
from ...settings.section import Section, key
from ..algorithm import Algorithm, Alternative, Group, GroupAdvantages, PerToken


class TreeGrpo(Algorithm):
    """A = group-relative U within the tree + group-relative U over all trees of the case."""

    class Options(Section):
        nodes: PositiveInt = key(2, "Decisions of each first episode at which another one branches off (N).")

    reads = ("training.normalise", "utility", "comparators")
    extra_samples = True

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Grow a tree from each trajectory, and compute one advantage for each decision of the group and of the
        branches. A decision that several episodes share gets the mean of their advantages, with their number as its
        weight."""
        trees = await asyncio.gather(*(self._grow(first, iteration, i) for i, first in enumerate(group)))
        scores = [[self.return_of(leaf.correct, leaf.effort()) for _, leaf in tree] for tree in trees]
        among_all, leaves = self.normalised([score for tree in scores for score in tree]), self.options.nodes + 1
        decisions: list[list[PerToken]] = []
        weights: list[list[PerToken]] = []
        alternatives: list[Alternative] = []
        for i, (tree, within_tree) in enumerate(zip(trees, map(self.normalised, scores), strict=True)):
            among_trees = among_all[i * leaves : (i + 1) * leaves]
            advantages = [a + b for a, b in zip(within_tree, among_trees, strict=True)]
            episodes = [(branching, leaf, a) for (branching, leaf), a in zip(tree, advantages, strict=True)]
            # Decision t of the first episode belongs to it and to all episodes that branch off after t.
            shared = []
            for t in range(len(group[i].steps)):
                shared.append([a for branching, _, a in episodes if branching is None or branching > t])
            decisions.append([fmean(row) for row in shared])
            weights.append([float(len(row)) for row in shared])
            for branching, leaf, a in episodes[1:]:
                turns = [step.turn for step in leaf.steps[branching:]]
                alternatives.append(Alternative(i, turns, [a] * len(turns), [1.0] * len(turns)))
        tokens = sum(len(turn.token_ids) for other in alternatives for turn in other.turns)
        counts = {"credit/continuation_tokens": tokens}
        return GroupAdvantages(decisions=decisions, weights=weights, alternatives=alternatives, counts=counts)

    async def _grow(self, first: Trajectory, iteration: int, i: int) -> list[tuple[int | None, Trajectory]]:
        """Draw the episodes that branch off from ``first``, trajectory ``i`` of its group; returns the episodes of the
        tree, each with the decision at which it branches off (None for the first)."""
        seed = derive_seed(self.context.seed, "tree", iteration, first.case.note_id, i)
        branchings = sorted(random.Random(seed).choices(range(len(first.steps)), k=self.options.nodes))
        environment, policy = self.context.environment, self.context.policy
        branches = await asyncio.gather(*(
            run_episode(environment, policy, first.case, derive_seed(seed, k), first.states[t])
            for k, t in enumerate(branchings)))  # fmt: skip
        return [(None, first), *zip(branchings, branches, strict=True)]
