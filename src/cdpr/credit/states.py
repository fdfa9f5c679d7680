"""The state tree of a group, the policy's uncertainty at each state, and the selection of states for credit (paper,
section "Action Uncertainty-guided State Selection")."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ..cases import normalise
from ..environment.state import FinalDiagnosis, State, Step, Trajectory
from ..settings.credit import Credit

ActionKey = tuple[str, str]
"""Identity of an action at a state: the evidence that it adds. Requests are the same action if they match the same
examination. All unparsable replies are one action, and so are all diagnoses unless ``credit.diagnoses`` is
``by_text``."""


# The state tree


@dataclass
class Node:
    """A unique state of a group. ``visits`` lists where trajectories pass it, as (trajectory, decision). ``steps`` are
    the steps sampled there: first those of the visits, in their order, then further samples."""

    state: State
    visits: list[tuple[int, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def state_identity(state: State, merge: str, trajectory: int) -> tuple:
    """The key of the node to which a state belongs; states with the same key are one node. ``trajectory`` is the index
    of the state's trajectory in its group.

    ``merge`` is ``credit.merge``. States are one node if they have the same evidence in the same order (``ordered``),
    or in any order (``set``). Under ``none`` states of different trajectories are always different nodes.
    """
    if merge == "ordered":
        return state.key
    case, evidence = state.key
    return (case, tuple(sorted(evidence))) if merge == "set" else (case, evidence, trajectory)


def build_tree(group: Sequence[Trajectory], merge: str = "ordered") -> dict[tuple, Node]:
    """Build the state tree of a group: its nodes by their key (:func:`state_identity`), in order of first visit.
    ``merge`` is ``credit.merge``. A forced diagnosis is no choice, so its state gets no node by it."""
    nodes: dict[tuple, Node] = {}
    for index, trajectory in enumerate(group):
        for decision, state in enumerate(trajectory.states):
            if trajectory.forced and decision == len(trajectory.steps) - 1:
                continue
            node = nodes.setdefault(state_identity(state, merge, index), Node(state))
            node.visits.append((index, decision))
            node.steps.append(trajectory.steps[decision])
    return nodes


def list_paths(nodes: dict[tuple, Node], size: int) -> list[list[tuple]]:
    """List for each trajectory of a group the keys of the nodes that it visits, in the order of ``nodes``. ``size`` is
    the number of trajectories."""
    node_paths: list[list[tuple]] = [[] for _ in range(size)]
    for key, node in nodes.items():
        for index, _ in node.visits:
            node_paths[index].append(key)
    return node_paths


# Uncertainty


def action_of(step: Step, diagnoses: str = "one_action") -> ActionKey:
    """The identity of the action of a step, such as ``("result", "Lactate")``. ``diagnoses`` is ``credit.diagnoses``:
    under ``by_text`` each diagnosis is an action of its own."""
    if diagnoses == "by_text" and isinstance(step.action, FinalDiagnosis):
        return "end", normalise(step.action.text)
    return step.evidence


def display_key(step: Step) -> ActionKey:
    """The action of a step for display: ``("end", DIAGNOSIS)`` with the words of a diagnosis, else the kind of the
    observation and the examination, such as ``("result", "Lactate")``."""
    return ("end", step.action.text) if isinstance(step.action, FinalDiagnosis) else step.evidence


def frequencies(actions: Iterable[ActionKey]) -> dict[ActionKey, float]:
    """Estimate p_hat(a | s): the share of each action among the sampled ``actions``, by action, in order of first
    appearance."""
    counts = Counter(actions)
    total = counts.total()
    return {action: count / total for action, count in counts.items()}


def entropy(p_hat: Mapping[ActionKey, float]) -> float:
    """Compute the uncertainty of a state, U(s) = -sum p_hat log p_hat in nats, equation "uncertainty"."""
    return -math.fsum(p * math.log(p) for p in p_hat.values() if p > 0)


def top_candidates(p_hat: Mapping[ActionKey, float], m: int) -> list[ActionKey]:
    """Select the ``m`` most probable actions, most probable first: A_c(s) = Top-M(p_hat), equation "candidate set".
    Equally probable ones keep their order in ``p_hat``."""
    return sorted(p_hat, key=lambda action: -p_hat[action])[:m]


# Selection


@dataclass(frozen=True)
class Disagreement:
    """The smallest differences of two suffixes of episodes that count as disagreement: in issued examinations, in US
    dollars, and in infeasible requests. The paper gives no numbers (docs/deviations.md, D9)."""

    tests: float = 1
    cost_usd: float = 10.0
    unavailable: float = 1


def materially_differ(
    suffix: tuple[Trajectory, int], other: tuple[Trajectory, int], bounds: Disagreement = Disagreement()
) -> bool:
    """Whether two suffixes of episodes differ in their outcome, or by at least ``bounds`` in their effort (section
    "Rollout Cache"). A suffix is given as (trajectory, decision): the trajectory from this decision on."""
    effort, other_effort = (trajectory.effort(decision) for trajectory, decision in (suffix, other))
    return (
        suffix[0].correct != other[0].correct
        or abs(effort.issued - other_effort.issued) >= bounds.tests
        or abs(effort.cost_usd - other_effort.cost_usd) >= bounds.cost_usd
        or abs(effort.infeasible - other_effort.infeasible) >= bounds.unavailable
    )


def disagreed_decisions(group: Sequence[Trajectory], credit: Credit) -> set[tuple[int, int]]:
    """Find the decisions (trajectory, decision) of a group at *cache-disagreed* states, as the paper calls those where
    trajectories take different actions and the rest of their episodes differs materially (:func:`materially_differ`;
    equation "cache set"). Empty where ``credit.select_disagreed`` is off.

    Under ``credit.merge: none`` states are compared as under ``ordered``: the two select the same decisions.
    """
    disagreed: set[tuple[int, int]] = set()
    for node in build_tree(group, "ordered" if credit.merge == "none" else credit.merge).values():
        suffixes = [(action_of(group[i].steps[t], credit.diagnoses), (group[i], t)) for i, t in node.visits]
        if credit.select_disagreed and any(
            action != other and materially_differ(suffix, other_suffix)
            for (action, suffix), (other, other_suffix) in combinations(suffixes, 2)
        ):
            disagreed.update(node.visits)
    return disagreed


def entropy_selected(uncertainty: Mapping[tuple, float], credit: Credit) -> set[tuple]:
    """Select S_ent, the keys of the states with U(s) >= eta (equation "entropy set"). With ``credit.select_all`` these
    are all keys of ``uncertainty``, which holds U(s) by key."""
    return {key for key, u in uncertainty.items() if credit.select_all or u >= credit.threshold}


def states_to_probe(trajectories: Iterable[Sequence[tuple]], disagreed: set[tuple], limit: int | None) -> set:
    """Find the keys of the states whose uncertainty has to be measured. ``trajectories`` has for each trajectory the
    keys of its states, ``limit`` is the most states that are selected of each (None: no limit).

    Usually these are all states. Where the cache-disagreed states of a trajectory alone reach its limit, its other
    states cannot be selected, and are not measured for it.
    """
    keys_to_probe: set[tuple] = set()
    for keys in trajectories:
        is_full = limit is not None and sum(key in disagreed for key in keys) >= limit
        keys_to_probe.update(key for key in keys if not is_full or key in disagreed)
    return keys_to_probe


def select_states(
    keys: Sequence[tuple], disagreed: set[tuple], uncertain: set[tuple], uncertainty: Mapping, limit: int | None
) -> list[tuple]:
    """Select the states of one trajectory for credit: S*(tau), the union of S_cache (``disagreed``) and S_ent
    (``uncertain``). ``keys`` are those of the trajectory's states. At most ``limit`` are selected, cache-disagreed ones
    first, then the most uncertain (equation "unified selection"). ``uncertainty`` is U(s) by key."""
    selected = [key for key in keys if key in disagreed or key in uncertain]
    if limit is None:
        return selected
    return sorted(selected, key=lambda key: (key not in disagreed, -uncertainty[key]))[:limit]


def selection_reason(key: tuple, disagreed: set[tuple], credit: Credit) -> str:
    """Say why a selected state was selected: ``disagreed`` (it is in S_cache), ``all`` (every state is selected) or
    ``entropy`` (it is uncertain enough)."""
    return "disagreed" if key in disagreed else "all" if credit.select_all else "entropy"
