"""Tree-GRPO: episodes branch at random decisions, and are compared within their tree and among all trees of the case
(Ji et al., ICLR 2026, arXiv 2509.21240).

Each of the group's n trajectories is the first episode of a tree. At ``nodes`` of its decisions, drawn at random with
replacement, another episode branches off and runs to its end. A decision before a branch belongs to several episodes,
and enters the loss once for each of them, with the advantage of that episode.
"""

import asyncio
import functools
import operator
import random
from statistics import fmean

from pydantic import PositiveInt

from ...environment import Trajectory, run_episode
from ...seeding import derive_seed
from ...settings import Section, key
from ..algorithm import Algorithm, Alternative, Group, GroupAdvantages, PerToken


class TreeGrpo(Algorithm):
    """Tree-GRPO: the advantage of an episode is its utility U relative to the episodes of its tree, plus U relative to
    the episodes of all trees of the case."""

    class Options(Section):
        nodes: PositiveInt = key(2, "Decisions of each first episode at which another one branches off (N).")

    reads = ("training.normalise", "utility", "comparators")
    extra_samples = True

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Grow a tree from each trajectory, and compute one advantage for each decision of the trajectories and of the
        branches. A decision that several episodes share gets the mean of their advantages, and their number as its
        weight."""
        trees = await asyncio.gather(*(self._grow_tree(first, iteration, i) for i, first in enumerate(group)))
        # The utility of every episode, by tree; and its advantage among all episodes, in one list, tree after tree.
        scores = [[self.return_of(episode.correct, episode.effort()) for _, episode in tree] for tree in trees]
        among_trees = self.normalise_scores([score for tree_scores in scores for score in tree_scores])
        size = self.options.nodes + 1  # episodes of a tree
        decisions: list[list[PerToken]] = []
        weights: list[list[PerToken]] = []
        alternatives: list[Alternative] = []
        for i, tree in enumerate(trees):
            within_tree = self.normalise_scores(scores[i])
            own, *others = map(operator.add, within_tree, among_trees[i * size : (i + 1) * size])
            # ``own`` is the advantage of the first episode. ``sharing[t]`` has those of all episodes that share its
            # decision t: ``own``, and those of branches that begin after t. What follows in a branch is an alternative.
            sharing = [[own] for _ in group[i].steps]
            for (start, branch), advantage in zip(tree[1:], others, strict=True):
                for of_decision in sharing[:start]:
                    of_decision.append(advantage)
                turns = [step.turn for step in branch.steps[start:]]
                alternatives.append(Alternative(i, turns, [advantage] * len(turns), [1.0] * len(turns)))
            decisions.append([fmean(of_decision) for of_decision in sharing])
            weights.append([float(len(of_decision)) for of_decision in sharing])
        counts = {"credit/continuation_tokens": sum(len(turn.token_ids) for a in alternatives for turn in a.turns)}
        return GroupAdvantages(decisions=decisions, weights=weights, alternatives=alternatives, counts=counts)

    async def _grow_tree(self, first: Trajectory, iteration: int, i: int) -> list[tuple[int, Trajectory]]:
        """Run ``options.nodes`` episodes that branch off at random decisions from ``first``, trajectory number ``i`` of
        its group. Returns the episodes of the tree, each with the number of the decision at which it starts: it shares
        the decisions before this number with ``first``. The first pair is (0, ``first``); the others are sorted by
        their start."""
        seed = derive_seed(self.context.seed, "tree", iteration, first.case.note_id, i)
        starts = sorted(random.Random(seed).choices(range(len(first.steps)), k=self.options.nodes))
        run = functools.partial(run_episode, self.context.environment, self.context.policy, first.case)
        episodes = await asyncio.gather(*(run(derive_seed(seed, k), first.states[t]) for k, t in enumerate(starts)))
        return [(0, first), *zip(starts, episodes, strict=True)]
