"""Which states are evaluated (paper, sections "Entropy-based Pre-selection" to "Unified State Selection")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from ..environment.state import Trajectory
from ..settings.credit import Credit, Disagreement
from .tree import build_tree
from .uncertainty import action_of


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


def cache_disagreed(visits: Sequence[tuple[Trajectory, int]], credit: Credit) -> bool:
    """Whether aligned trajectories take different actions at a state and their suffixes differ materially
    (equation "cache set"). ``visits``: trajectory and decision at the state."""
    taken = [(action_of(trajectory.steps[t], credit.diagnoses), (trajectory, t)) for trajectory, t in visits]
    return any(
        one != other and materially_differ(here, there, credit.disagreement)
        for (one, here), (other, there) in combinations(taken, 2)
    )


def disagreed_decisions(group: Sequence[Trajectory], credit: Credit) -> set[tuple[int, int]]:
    """Decisions (trajectory, decision) of a group at cache-disagreed states; none without ``select_disagreed``.

    Trajectories are aligned by what they know, also where their states are evaluated each for itself and nothing is
    reused: what is selected does not depend on what is shared.
    """
    if not credit.select_disagreed:
        return set()
    nodes = build_tree(group, "ordered" if credit.merge == "none" else credit.merge).values()
    aligned = [node.visits for node in nodes if cache_disagreed([(group[i], t) for i, t in node.visits], credit)]
    return {visit for visits in aligned for visit in visits}


def entropy_selected(uncertainty: Mapping[tuple, float], credit: Credit) -> set[tuple]:
    """S_ent: states with U(s) >= eta (equation "entropy set"), or every state under ``select_all``."""
    return {key for key, u in uncertainty.items() if credit.select_all or u >= credit.threshold}


def worth_probing(trajectories: Iterable[Sequence[tuple]], disagreed: set[tuple], limit: int | None) -> set:
    """States whose uncertainty can matter: under a budget, a trajectory with enough cache-disagreed states
    selects no other."""
    wanted: set[tuple] = set()
    for keys in trajectories:
        full = limit is not None and sum(key in disagreed for key in keys) >= limit
        wanted.update(key for key in keys if not full or key in disagreed)
    return wanted


def select_states(
    keys: Sequence[tuple], disagreed: set[tuple], uncertain: set[tuple], uncertainty: Mapping, limit: int | None
) -> list[tuple]:
    """S*(tau) = S_cache + S_ent of one trajectory with the states ``keys``; within a budget of ``limit`` states
    cache-disagreed ones come first, then the more uncertain (equation "unified selection")."""
    chosen = [key for key in keys if key in disagreed or key in uncertain]
    if limit is None:
        return chosen
    return sorted(chosen, key=lambda key: (key not in disagreed, -uncertainty[key]))[:limit]
