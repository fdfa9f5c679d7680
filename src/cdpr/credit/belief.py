"""The policy's belief in the true disease: the probability that it would name this disease if it had to diagnose now.

The belief is read from the policy's own log-probabilities, so no reply is drawn for it.
"""

import asyncio
import math
from collections.abc import Iterable
from statistics import fmean
from typing import Literal

from ..cases import CaseRecord, diagnoses
from ..environment import Policy, State, Turn

#: How a belief is computed from the log-probabilities of the tokens of a name. ``probability``: the probability of the
#: whole name, which is exact where the policy writes each disease in one way. ``per_token``: the geometric mean of the
#: tokens' probabilities, which does not shrink with the length of the name; for names in free text.
Measure = Literal["probability", "per_token"]


def true_names(case: CaseRecord) -> list[str]:
    """List the names of the true disease that a policy may write: the canonical name, then the name on record if it is
    another one. Without a canonical name, only the name on record."""
    truth = case.diagnosis_results
    term = diagnoses().find(truth)
    return list(dict.fromkeys([term.name, truth] if term else [truth]))


async def read_beliefs(policy: Policy, states: Iterable[State], measure: Measure) -> dict[tuple, float]:
    """Compute the policy's belief in the true disease at each state, Phi(s) from 0 to 1. Returns it by
    :attr:`State.key`. Of states with the same key only the last one is read, whose prompt may have other words.
    ``measure`` says how a belief is computed from log-probabilities (:data:`Measure`). All requests run at the same
    time. Raises ModelFailure where the model gives no answer."""

    async def read_belief(state: State) -> float:
        """Compute the belief at one state: under ``probability`` the sum of the probabilities of all true names, under
        ``per_token`` the largest of their geometric means over tokens."""
        # Forced: the belief is a probability on condition that the policy diagnoses now.
        turns = await policy.score_diagnoses(state, true_names(state.case), forced=True)
        if measure == "per_token":  # geometric means are no probabilities, so they cannot be summed
            return max(math.exp(fmean(turn.logprobs)) for turn in turns)
        # The names exclude each other, so their probabilities are summed; rounding may bring the sum above 1.
        return min(1.0, math.fsum(math.exp(math.fsum(turn.logprobs)) for turn in turns))

    distinct = {state.key: state for state in states}
    return dict(zip(distinct, await asyncio.gather(*map(read_belief, distinct.values())), strict=True))


def values_by_token(policy: Policy, turn: Turn, before_name: float, from_name: float) -> tuple[float, ...]:
    """Return one value for each token of the reply ``turn``, which gives a diagnosis: ``before_name`` for the tokens
    before the name of the disease ("FINAL_DIAGNOSIS:"), ``from_name`` for those of the name and after it.

    The tokens before the name decide *that* the policy diagnoses, the others decide *what* it diagnoses. So the two get
    different advantages or weights."""
    start = policy.name_start(turn)
    return (before_name,) * start + (from_name,) * (len(turn.token_ids) - start)
