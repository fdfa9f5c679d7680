"""Belief-gain credit: the value of an examination is what it adds to the policy's belief in the true disease, minus
its price.

Phi(s) is the probability that the policy would name the true disease if it had to diagnose at the state s; w is the
weight of a right diagnosis in the return. With V(s) = w Phi(s), the value of diagnosing now, each decision gets the
one-step advantage r_t + V(s_{t+1}) - V(s_t), divided by w. An examination gets Phi(s') - Phi(s) - cost / w, and the
name of the diagnosis 1[correct] - Phi(s). The decision to diagnose gets 0, because V is the value of that very
decision. No reply is sampled for credit. docs/beyond-the-paper.md proves what this estimates and compares it with
potential-based shaping (Ng et al., 1999) and IGPO.
"""

import asyncio
import math
from collections.abc import Sequence
from statistics import pstdev
from typing import Literal

from pydantic import NonNegativeFloat

from ...credit.belief import Measure, read_beliefs, true_names, values_by_token
from ...credit.continuations import group_advantages
from ...credit.states import Node, build_tree
from ...environment import FinalDiagnosis, Trajectory
from ...settings import Section, Settings, SettingsError, algorithm_options, key
from ..algorithm import Algorithm, Alternative, Context, Group, GroupAdvantages, PerToken


class BeliefGain(Algorithm):
    """Credits each decision with the change of the policy's belief in the true disease, Phi, minus the decision's cost:
    A_t = (r_t + w Phi(s_{t+1}) - w Phi(s_t)) / w, where w is the weight of a right diagnosis in the return.

    Under ``training.normalise: group_std`` the divisor is the standard deviation over the group's decisions, not w."""

    class Options(Section):
        #: Whose belief: that of the policy in training or of the initial one.
        policy: Literal["current", "frozen"] = key("current")
        measure: Measure = key("probability", "Probability of the whole name, or its geometric mean over the tokens.")
        #: lambda of generalised advantage estimation: 0 credits a decision with its own gain, 1 with all later ones.
        decay: float = key(0.0, ge=0, le=1)
        choice: bool = key(True, "Whether decisions are credited; off, only readings are trained.")
        #: Auxiliary loss that raises, at every visited state, the probability of the true name, or its logarithm.
        reading: Literal["none", "probability", "likelihood"] = key("none")
        reading_weight: NonNegativeFloat = key(0.5, "Weight of a token of that loss.")

    reads = ("training.normalise", "utility", "comparators")
    extra_samples = True

    def __init__(self, context: Context):
        """Choose the policy whose belief is read: the current one or a frozen one. Raises SettingsError where the
        option ``reading`` is combined with another training temperature than 1."""
        super().__init__(context)
        self.weight = self.settings.comparators.correctness_weight  # w
        self.belief_policy = context.load_frozen_policy() if self.options.policy == "frozen" else context.policy
        # ``reading`` trains on given replies, which are scored at temperature 1: at another temperature of training the
        # update would compare log-probabilities at two temperatures.
        if self.options.reading != "none" and self.settings.training.temperature != 1:
            raise SettingsError(
                "training.temperature: given replies are scored at temperature 1, and training.options.reading "
                "trains on them: set it to 1, or reading: none"
            )

    async def score_group(self, group: Group, iteration: int) -> GroupAdvantages:
        """Compute one advantage for each decision, and for a diagnosis one per token. With the option ``reading`` the
        group also gets alternatives to learn: at each visited state a reply that names the true disease."""
        states = [state for trajectory in group for state in trajectory.states]
        beliefs = await read_beliefs(self.belief_policy, states, self.options.measure)
        values = {state_key: self.weight * belief for state_key, belief in beliefs.items()}  # V(s) = w Phi(s)
        advantages = group_advantages(group, values, self.return_of, self.options.decay)
        scale = self.weight
        # Divided, but not centred: an advantage of 0 means "as good as diagnosing now", and has to stay 0.
        if self.settings.training.normalise == "group_std":
            scale = pstdev([advantage for row in advantages for advantage in row]) or 1.0
        decisions = [self._token_advantages(t, row, scale) for t, row in zip(group, advantages, strict=True)]
        alternatives: list[Alternative] = []
        if self.options.reading != "none":
            alternatives = await asyncio.gather(*map(self._true_diagnosis, build_tree(group).values()))
        counts = {"credit/states": len(beliefs), "credit/belief": math.fsum(beliefs.values())}
        return GroupAdvantages(decisions=decisions, alternatives=alternatives, counts=counts)

    def _token_advantages(self, trajectory: Trajectory, advantages: Sequence[float], scale: float) -> list[PerToken]:
        """Divide the ``advantages`` of a trajectory's decisions by ``scale``. Of a diagnosis, only the tokens of the
        name of the disease get its advantage; the tokens before the name get 0. Without the option ``choice`` all are
        0."""
        if not self.options.choice:
            return [0.0] * len(advantages)
        scaled: list[PerToken] = [advantage / scale for advantage in advantages]
        last = trajectory.steps[-1]
        if isinstance(last.action, FinalDiagnosis):
            scaled[-1] = values_by_token(self.context.policy, last.turn, 0.0, advantages[-1] / scale)
        return scaled

    async def _true_diagnosis(self, node: Node) -> Alternative:
        """Return the reply that names the true disease at the state of ``node``, as an :class:`Alternative` with the
        advantage 1. Only the tokens of the name have a weight: ``reading_weight`` times the number of visits of the
        state, and if the option ``reading`` is ``probability`` also times the probability of the name."""
        policy = self.context.policy
        # Of the true names the first alone, the canonical one.
        [turn] = await policy.score_diagnoses(node.state, true_names(node.state.case)[:1], forced=False)
        weight = self.options.reading_weight * len(node.visits)
        # The loss raises log p of the name. Times p it raises p itself, since grad p = p grad log p.
        if self.options.reading == "probability":
            weight *= math.exp(math.fsum(turn.logprobs[policy.name_start(turn) :]))
        weights = values_by_token(policy, turn, 0.0, weight)
        first_trajectory, _ = node.visits[0]  # from which the reply branches off
        return Alternative(first_trajectory, (turn,), (1.0,), (weights,))

    def finish_batch(self, batch: Sequence[GroupAdvantages]) -> dict[str, float]:
        """Return the metrics of a batch. ``credit/belief`` is the policy's belief in the true disease, a mean over the
        states of the batch."""
        metrics = super().finish_batch(batch)
        sum_of_beliefs = math.fsum(scored.counts["credit/belief"] for scored in batch)
        return metrics | {"credit/belief": sum_of_beliefs / metrics["credit/states"]}

    @classmethod
    def needs_frozen_policy(cls, settings: Settings) -> bool:
        """Whether the advantages come from the belief of the initial policy, not of the current one."""
        return settings.training.options.get("policy") == "frozen"

    @classmethod
    def scoring_policies(cls, settings: Settings) -> set[str]:
        """Return the set of policies that score given replies: the one whose belief is read (``current`` or ``frozen``)
        and, with the option ``reading``, the current one."""
        options = algorithm_options(settings)
        return {options.policy} | ({"current"} if options.reading != "none" else set())
