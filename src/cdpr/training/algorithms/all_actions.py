"""All-actions tree credit: values backed up over the state tree, and every action sampled at a state in the loss.

At every visited state some whole continuations are drawn from the current policy. Their first actions and those of the
group are samples a_1 .. a_m of the policy there; Q(s, a) is the action's own return plus V of the state that it leads
to, V(s) the mean of Q over the samples, from the leaves up. All samples enter the loss, each with advantage Q - V and
the weight visits / m: a Monte-Carlo estimate of the policy gradient summed over actions, whose mean at a state is
zero, so that neither stopping nor going on is favoured by what happens to be evaluated.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from statistics import fmean

from ...credit.rollouts import Draws
from ...credit.tree import Node, build_tree
from ...environment import FinalDiagnosis, State, Step
from ...environment.utility import weighted_utility
from .base import Advantages, Alternative, Context, Groups, Stateless


class ValueTree:
    """Backed-up values of one case. ``samples[key]`` are the steps sampled at a state, with the state."""

    def __init__(self, context: Context, sampled: list[tuple[State, Step]]):
        self.environment, self.worth = context.environment, weighted_utility(context.settings)
        self.samples: dict[tuple, list[tuple[State, Step]]] = defaultdict(list)
        for state, step in sampled:
            self.samples[state.key].append((state, step))
        self._value: dict[tuple, float] = {}

    def action_value(self, state: State, step: Step) -> float:
        """Q(s, a): what the step earns, plus V of where it leads."""
        if self.environment.must_diagnose(state) or isinstance(step.action, FinalDiagnosis):
            last, correct = self.environment.conclude(state, step)
            return self.worth(correct, last.effort)
        return self.worth(False, step.effort) + self.value(state.after(step))

    def value(self, state: State) -> float:
        """V(s): the mean of Q over the samples at s."""
        if state.key not in self._value:
            self._value[state.key] = fmean(self.action_value(*sample) for sample in self.samples[state.key])
        return self._value[state.key]


class AllActions(Stateless):
    """Step-level advantages Q - V for the actions taken and for the alternatives sampled beside them."""

    def __init__(self, context: Context):
        self.context = context
        self.numbers = range(context.settings.comparators.continuations)

    async def advantages(self, groups: Groups, iteration: int) -> Advantages:
        """One advantage per decision and alternative, one weight each."""
        credited = await asyncio.gather(*(self._group(group, iteration) for group in groups))
        decisions, weights, alternatives, draws = map(list, zip(*credited, strict=True))
        metrics = {
            "credit/alternatives": sum(map(len, alternatives)),
            "credit/continuation_tokens": sum(d.tokens for d in draws),
            "credit/failed": sum(d.failed for d in draws),
        }
        return Advantages(decisions, weights, alternatives, metrics)

    async def _group(self, group, iteration: int):
        context, nodes = self.context, build_tree(group)
        draws = Draws(context.environment, context.policy, context.seed, ("actor", iteration))
        await asyncio.gather(*(draws.follow(node.state, self.numbers) for node in nodes.values()))
        taken = [pair for trajectory in group for pair in zip(trajectory.states, trajectory.steps, strict=True)]
        tree = ValueTree(context, taken + draws.journal)
        decisions = [[0.0] * len(trajectory.steps) for trajectory in group]
        weights = [[1.0] * len(trajectory.steps) for trajectory in group]
        alternatives: list[Alternative] = []
        for key, node in nodes.items():
            alternatives += self._node(node, tree, tree.samples[key][len(node.visits) :], decisions, weights)
        return decisions, weights, alternatives, draws

    def _node(self, node: Node, tree: ValueTree, drawn, decisions, weights) -> list[Alternative]:
        """Fills in the decisions taken at a node; returns the others. Replies of the same tokens are one."""
        prompt = node.steps[0].turn.prompt_ids
        # Other words may have led to the same evidence: such samples count in the values, not in this prompt's loss.
        drawn = [step for _, step in drawn if step.turn.prompt_ids == prompt]
        share = len(node.visits) / (len(node.visits) + len(drawn))
        baseline = tree.value(node.state)
        taken: dict[tuple[int, ...], tuple[int, int]] = {}
        for (i, t), step in zip(node.visits, node.steps, strict=True):
            decisions[i][t] = tree.action_value(node.state, step) - baseline
            weights[i][t] = share
            taken.setdefault(step.turn.token_ids, (i, t))
        others: dict[tuple[int, ...], Step] = {}
        count: Counter[tuple[int, ...]] = Counter()
        for step in drawn:
            if step.turn.token_ids in taken:
                i, t = taken[step.turn.token_ids]
                weights[i][t] += share
            else:
                others.setdefault(step.turn.token_ids, step)
                count[step.turn.token_ids] += 1
        i, t = node.visits[0]
        return [
            Alternative(i, t, step.turn, tree.action_value(node.state, step) - baseline, share * count[ids])
            for ids, step in others.items()
        ]


def build(context: Context) -> AllActions:
    """The algorithm."""
    return AllActions(context)
