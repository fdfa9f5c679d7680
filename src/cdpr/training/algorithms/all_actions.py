"""All-actions tree credit: values are backed up over the tree of visited states, and the loss has every action sampled.

At every visited state s, whole continuations (episodes from s to their end) are sampled from the current policy. Their
first actions and the group's own actions at s are samples a_1 .. a_m of the policy there. Q(s, a) is the return of the
action itself plus V of the next state; V(s) is the mean of Q over the samples at s. Values are computed from the leaves
up.

All m samples enter the loss, each with the weight visits / m, where visits is the number of times that the group was at
s. The advantage of a sample is its Q minus the mean Q of the other samples: a Monte-Carlo estimate of the policy
gradient summed over actions. (A mean over all m would include the sample itself and shrink the gradient by 1 - 1/m.)
The mean advantage at a state is zero, so the choice of sampled actions favours neither stopping nor continuing.

With the option ``leaves: belief`` only single actions are sampled, and V(s) = w Phi(s) is the value of diagnosing now:
Phi(s) is the probability with which the policy would name the true disease, w the weight of a right diagnosis in the
return. The decision to diagnose then has the value w Phi(s), an examination -cost + w Phi(s'), and the name of a
diagnosis has the advantage w (1[correct] - Phi(s)).
"""

import asyncio
from collections import defaultdict
from statistics import fmean
from typing import Literal

from pydantic import PositiveInt

from ...credit.belief import read_beliefs, values_by_token
from ...credit.continuations import Draws
from ...credit.states import Node, build_tree
from ...environment import FinalDiagnosis, ReturnOf, State, Step
from ...settings import Section, Settings, algorithm_options, key
from ..algorithm import Algorithm, Alternative, Context, Group, GroupAdvantages, PerToken


class ValueTree:
    """Computes the values Q(s, a) and V(s) of the actions and states that were sampled for one case. ``sampled`` lists
    the samples as pairs (state, step).

    Q is the action's own return plus V of the next state; V is the mean of Q over the samples at a state.

    If the caller fills the attribute ``beliefs``, Q looks only one step ahead: the action's return plus w Phi of the
    next state. ``beliefs`` has Phi, the policy's probability of the true disease, by the key of a state; w is the
    weight of a right diagnosis in the return.
    """

    def __init__(self, context: Context, return_of: ReturnOf, sampled: list[tuple[State, Step]]):
        """Group the samples by :meth:`key_of` their state. ``return_of`` computes a return from correctness and
        effort."""
        self.environment, self.policy, self.return_of = context.environment, context.policy, return_of
        self.samples: dict[tuple, list[tuple[State, Step]]] = defaultdict(list)
        for state, step in sampled:
            self.samples[self.key_of(state)].append((state, step))
        self.beliefs: dict[tuple, float] = {}
        self._q_values: dict[tuple, list[float]] = {}  # the results of q_values

    def key_of(self, state: State) -> tuple:
        """The key of the samples at a state: its own, and whether a diagnosis is forced there. After longer words for
        the same requests it may be, and the values of choices are not those of a diagnosis."""
        return state.key, self.environment.must_diagnose(state, self.policy)

    def q_value(self, state: State, step: Step) -> float | None:
        """Compute Q(s, a) of the action of ``step`` at ``state``: its own return plus V of the next state; None where
        that V is unknown. A step that ends the episode has its own return alone. With ``beliefs``, V of the next state
        is replaced by the value of diagnosing there, and is always known."""
        if self.beliefs:  # the return of a diagnosis that is right with probability Phi
            return self.return_of(self.beliefs[self.next_state(state, step).key], step.effort)
        if self.is_last(state, step):
            last, correct = self.environment.conclude(state, step)  # the last step, and whether its diagnosis is right
            return self.return_of(correct, last.effort)
        next_value = self.state_value(state.after(step))
        return None if next_value is None else self.return_of(False, step.effort) + next_value

    def has_value(self, state: State, step: Step) -> bool:
        """Whether :meth:`q_value` of the step is known (not None). To find that out, ``q_value`` would have a diagnosis
        in ``step`` judged, which is counted as a call of the judge; this method does not."""
        return bool(self.beliefs) or self.is_last(state, step) or self.state_value(state.after(step)) is not None

    def is_last(self, state: State, step: Step) -> bool:
        """Whether ``step``, taken at ``state``, ends its episode: it diagnoses, or the state forces a diagnosis."""
        return self.environment.must_diagnose(state, self.policy) or isinstance(step.action, FinalDiagnosis)

    def next_state(self, state: State, step: Step) -> State:
        """Return the state after ``step``. Where the step ends the episode, there is none, and ``state`` itself is
        returned."""
        return state if self.is_last(state, step) else state.after(step)

    def q_values(self, state: State) -> list[float]:
        """Compute Q(s, a) of each sample at a state, leaving out samples whose Q is unknown. Later calls return the
        same list."""
        if (key := self.key_of(state)) not in self._q_values:
            values = [self.q_value(sample_state, step) for sample_state, step in self.samples[key]]
            self._q_values[key] = [value for value in values if value is not None]
        return self._q_values[key]

    def state_value(self, state: State) -> float | None:
        """Compute V(s), the mean of Q over the samples at a state; None where the Q of no sample is known."""
        values = self.q_values(state)
        return fmean(values) if values else None

    def advantage(self, state: State, step: Step) -> float:
        """Compute the advantage of the action of ``step``: Q(s, a) minus the mean of Q over the other m - 1 samples at
        s, which is (Q - V) m / (m - 1); 0 where there is no other sample or Q is unknown."""
        values, own = self.q_values(state), self.q_value(state, step)
        m = len(values)
        return 0.0 if own is None or m < 2 else (own - fmean(values)) * m / (m - 1)


class AllActions(Algorithm):
    """All-actions tree credit: trains on the group's own actions and on further actions sampled at the same states,
    each with an advantage of its own."""

    class Options(Section):
        continuations: PositiveInt = key(4, "Whole continuations drawn at every state, or actions alone.")
        #: Value of a leaf: the ``returns`` of whole continuations, or the policy's ``belief``, for which only actions
        #: are drawn.
        leaves: Literal["returns", "belief"] = key("returns")

    reads = ("utility", "comparators")
    extra_samples = True

    @classmethod
    def scoring_policies(cls, settings: Settings) -> set[str]:
        """Return ``{"current"}`` where the values of leaves are beliefs of the policy in training; else the empty
        set."""
        return {"current"} if algorithm_options(settings).leaves == "belief" else set()

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage and one weight for each decision of the group, and for each alternative: another reply
        that was sampled at one of its states."""
        context, nodes = self.context, build_tree(group)
        # Sample at every state: whole continuations, or single actions. ``draws.journal`` lists all sampled steps. The
        # tuple chooses the random numbers: the same as those of CDPR's draws from the current policy.
        draws = Draws(context.environment, context.policy, context.seed, ("actor", iteration))
        draw = draws.rollout if self.options.leaves == "returns" else draws.draw_steps
        await asyncio.gather(*(draw(node.state, range(self.options.continuations)) for node in nodes.values()))
        # Compute values from these samples and the group's own decisions, which come first.
        taken = [pair for trajectory in group for pair in zip(trajectory.states, trajectory.steps, strict=True)]
        sampled = taken + draws.journal
        tree = ValueTree(context, self.return_of, sampled)
        if self.options.leaves == "belief":
            next_states = [tree.next_state(state, step) for state, step in sampled]
            tree.beliefs = await read_beliefs(context.policy, next_states, "probability")
        # Score the decisions and alternatives at every state. A forced diagnosis is no decision and keeps the zero.
        scored = GroupAdvantages(decisions=[[0.0] * len(trajectory.steps) for trajectory in group])
        for node in nodes.values():
            scored.alternatives += self._score_node(node, tree, scored)
        scored.counts = {"credit/alternatives": len(scored.alternatives)} | draws.counts
        return scored

    def _compute_advantage(self, tree: ValueTree, state: State, step: Step) -> PerToken:
        """Compute the advantage of a sample, one number for all its tokens. Only a diagnosis under ``leaves: belief``
        gets one number per token: the tokens before the name of the disease have the sample's advantage, those of the
        name w (1[correct] - Phi(s)), where Phi(s) is the policy's probability of the true disease."""
        advantage = tree.advantage(state, step)
        if not (tree.beliefs and isinstance(step.action, FinalDiagnosis)):
            return advantage
        _, correct = self.context.environment.conclude(state, step)
        # A return multiplies its first argument by w; the effort of a diagnosis is zero.
        name_advantage = self.return_of(correct - tree.beliefs[state.key], step.effort)
        return values_by_token(self.context.policy, step.turn, advantage, name_advantage)

    def _score_node(self, node: Node, tree: ValueTree, scored: GroupAdvantages) -> list[Alternative]:
        """Set in ``scored`` the advantages and weights of the group's decisions at the state ``node``. Returns an
        alternative for each other reply that was sampled there.

        The group's own decisions at the state (one for each visit) and the other replies are m samples, each with the
        weight visits / m. A reply with the tokens of a decision adds its weight to the first such decision; equal other
        replies become one alternative, with the sum of their weights."""
        visits, prompt = len(node.visits), node.steps[0].turn.prompt_ids
        drawn = [step for _, step in tree.samples[tree.key_of(node.state)][visits:]]  # the group's own come first
        # A state may have several prompts (the same evidence in other words). Samples of another prompt count in the
        # values, but cannot be trained at this one.
        drawn = [step for step in drawn if step.turn.prompt_ids == prompt and tree.has_value(node.state, step)]
        weight = visits / (visits + len(drawn))
        # The group's own decisions.
        decision_by_reply: dict[tuple[int, ...], tuple[int, int]] = {}
        for (i, t), step in zip(node.visits, node.steps, strict=True):
            scored.decisions[i][t] = self._compute_advantage(tree, node.state, step)
            scored.weights[i][t] = weight
            decision_by_reply.setdefault(step.turn.token_ids, (i, t))
        # The other replies: one that equals a decision adds to its weight, the rest become alternatives.
        new_replies: dict[tuple[int, ...], list[Step]] = defaultdict(list)
        for step in drawn:
            if step.turn.token_ids in decision_by_reply:
                i, t = decision_by_reply[step.turn.token_ids]
                scored.weights[i][t] += weight
            else:
                new_replies[step.turn.token_ids].append(step)
        first_trajectory, _ = node.visits[0]  # from which the alternatives branch off
        alternatives = []
        for equal_steps in new_replies.values():
            step, total_weight = equal_steps[0], weight * len(equal_steps)
            advantage = self._compute_advantage(tree, node.state, step)
            alternatives.append(Alternative(first_trajectory, (step.turn,), (advantage,), (total_weight,)))
        return alternatives
