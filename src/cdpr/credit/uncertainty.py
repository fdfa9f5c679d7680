"""Where the policy hesitates: entropy of the sampled next actions, candidates, disagreement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..environment.state import Step, Trajectory
from ..settings.schema import Disagreement

ActionKey = tuple[str, str]
"""Identity of an action at a state: the evidence that it leads to. All diagnoses are one action, all
unparsable replies are one action, requests are told apart by the examination that they match."""


def frequencies(steps: Sequence[Step]) -> dict[ActionKey, float]:
    """p_hat(a | s): share of each distinct action among the steps sampled at s, in order of first appearance."""
    counts: dict[ActionKey, int] = {}
    for step in steps:
        counts[step.evidence] = counts.get(step.evidence, 0) + 1
    return {action: count / len(steps) for action, count in counts.items()}


def entropy(p_hat: Mapping[ActionKey, float], base: str = "e") -> float:
    """U(s) = -sum p_hat log p_hat, equation "uncertainty"; in nats, or bits for base "2"."""
    nats = -sum(p * math.log(p) for p in p_hat.values() if p > 0)
    return nats / math.log(2) if base == "2" else nats


def top_candidates(p_hat: Mapping[ActionKey, float], m: int) -> list[ActionKey]:
    """A_c(s) = Top-M(p_hat), equation "candidate set"; ties keep the order of first appearance."""
    return sorted(p_hat, key=lambda action: -p_hat[action])[:m]


def materially_differ(a: tuple[Trajectory, int], b: tuple[Trajectory, int], rule: Disagreement) -> bool:
    """Whether two suffixes (trajectory, first decision) differ in outcome, examinations, cost or
    unavailable requests (section "Rollout Cache")."""
    first, second = a[0].effort(a[1]), b[0].effort(b[1])
    return (
        a[0].correct != b[0].correct
        or abs(first.issued - second.issued) >= rule.tests
        or abs(first.cost_usd - second.cost_usd) >= rule.cost_usd
        or abs(first.infeasible - second.infeasible) >= rule.unavailable
    )


def cache_disagreed(visits: Sequence[tuple[Trajectory, int]], rule: Disagreement) -> bool:
    """Whether aligned trajectories take different actions at a state and their suffixes differ materially
    (equation "cache set")."""
    return any(
        x[0].steps[x[1]].evidence != y[0].steps[y[1]].evidence and materially_differ(x, y, rule)
        for i, x in enumerate(visits)
        for y in visits[:i]
    )
