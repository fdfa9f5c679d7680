"""Where the policy hesitates: what the sampled next actions are, how often each came, their entropy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from ..cases import normalise
from ..environment.state import FinalDiagnosis, Step

ActionKey = tuple[str, str]
"""Identity of an action at a state: the evidence that it leads to. Requests are told apart by the examination
that they match, all unparsable replies are one action, and so are all diagnoses unless ``credit.diagnoses`` is
``by_text``."""


def action_of(step: Step, diagnoses: str = "one_action") -> ActionKey:
    """Identity of the action of a step."""
    if diagnoses == "by_text" and isinstance(step.action, FinalDiagnosis):
        return "end", normalise(step.action.text)
    return step.evidence


def frequencies(actions: Iterable[ActionKey]) -> dict[ActionKey, float]:
    """p_hat(a | s): share of each distinct action among those sampled at s, in order of first appearance."""
    counts = Counter(actions)
    total = counts.total()
    return {action: count / total for action, count in counts.items()}


def entropy(p_hat: Mapping[ActionKey, float], base: str = "e") -> float:
    """U(s) = -sum p_hat log p_hat, equation "uncertainty"; in nats, or bits for base "2"."""
    nats = -sum(p * math.log(p) for p in p_hat.values() if p > 0)
    return nats / math.log(2) if base == "2" else nats


def top_candidates(p_hat: Mapping[ActionKey, float], m: int) -> list[ActionKey]:
    """A_c(s) = Top-M(p_hat), equation "candidate set"; ties keep the order of first appearance."""
    return sorted(p_hat, key=lambda action: -p_hat[action])[:m]
