"""The state tree of a group, the policy's uncertainty at each state, and the selection of states for credit (paper,
section "Action Uncertainty-guided State Selection")."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from ..cases import normalise
from ..environment import FinalDiagnosis, State, Step, Trajectory
from ..settings import Credit

#: The end of an episode, a pair (trajectory, t): the trajectory from its decision t on.
Suffix = tuple[Trajectory, int]
#: Identity of an action, by which equal actions at a state are recognised, such as ``("result", "Lactate")``: the kind
#: of the observation that answered it, and the examination. Requests in other words for the same examination are one
#: action, and so are all replies that cannot be parsed. All diagnoses are the one action ``("end", "")``, unless
#: ``credit.diagnoses`` is ``by_text``.
ActionKey = tuple[str, str]


# The state tree


@dataclass
class Node:
    """A state that trajectories of a group visit, with everything that was sampled there.

    ``visits`` has a pair of indices for each visit: the trajectory in the group, and its decision at this state.
    ``steps`` begins with the steps taken in these visits, in the same order; further samples are appended to it."""

    state: State
    visits: list[tuple[int, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def state_identity(state: State, merge: str, trajectory: int) -> tuple:
    """Return the key of the node to which a state belongs; states with the same key are one node. ``trajectory`` is
    the index of the state's trajectory in its group.

    ``merge`` is ``credit.merge``. States are one node if they have the same evidence in the same order (``ordered``),
    or in any order (``set``). Under ``none`` states of different trajectories are always different nodes.
    """
    case, evidence = state.key
    if merge == "none":
        return case, evidence, trajectory
    return case, tuple(sorted(evidence)) if merge == "set" else evidence


def build_tree(group: Sequence[Trajectory], merge: str = "ordered") -> dict[tuple, Node]:
    """Collect the states that the trajectories of a group visit: returns the nodes by their key
    (:func:`state_identity`), in order of first visit. ``merge`` is ``credit.merge``. Forced diagnoses are left out,
    because the policy had no choice there."""
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
    """Return, for each of the ``size`` trajectories of a group, the keys of the nodes that it visits, in the order of
    ``nodes``."""
    node_paths: list[list[tuple]] = [[] for _ in range(size)]
    for key, node in nodes.items():
        for index, _ in node.visits:
            node_paths[index].append(key)
    return node_paths


# Uncertainty


def action_of(step: Step, diagnoses: str = "one_action") -> ActionKey:
    """Return the identity of the action of a step, such as ``("result", "Lactate")``. ``diagnoses`` is
    ``credit.diagnoses``: under ``by_text`` a diagnosis is identified by its text, such as ``("end", "sepsis")``; under
    ``one_action`` all diagnoses are ``("end", "")``."""
    if diagnoses == "by_text" and isinstance(step.action, FinalDiagnosis):
        return "end", normalise(step.action.text)
    return step.evidence


def display_key(step: Step) -> ActionKey:
    """Return the action of a step as records show it. Unlike :func:`action_of`, it always has the words of a
    diagnosis: ``("end", "Septic shock")``. Other actions are the same in both, such as ``("result", "Lactate")``."""
    return ("end", step.action.text) if isinstance(step.action, FinalDiagnosis) else step.evidence


def frequencies(actions: Iterable[ActionKey]) -> dict[ActionKey, float]:
    """Estimate p_hat(a | s): the share of each action among the sampled ``actions``, by action, in order of first
    appearance; empty without samples."""
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


#: How much two ends of episodes must differ at least to count as disagreeing, in one of three amounts: the number of
#: issued examinations, US dollars, the number of infeasible requests. The paper gives no numbers (docs/deviations.md,
#: D9).
LEAST_DIFFERENCE: Mapping[str, float] = {"issued": 1, "cost_usd": 10.0, "infeasible": 1}


def materially_differ(suffix: Suffix, other: Suffix, least: Mapping[str, float] = LEAST_DIFFERENCE) -> bool:
    """Whether the ends of two episodes differ in their outcome, or at least by ``least`` in one amount of their effort
    (section "Rollout Cache")."""
    (first, start), (second, second_start) = suffix, other
    effort, other_effort = first.effort(start), second.effort(second_start)
    differences = {name: abs(getattr(effort, name) - getattr(other_effort, name)) for name in least}
    return first.correct != second.correct or any(differences[name] >= least[name] for name in least)


def disagreed_states(group: Sequence[Trajectory], nodes: Mapping[tuple, Node], credit: Credit) -> set[tuple]:
    """Find the states of a group that the paper calls *cache-disagreed*, S_cache: two trajectories take different
    actions there, and the rest of their episodes differs (:func:`materially_differ`; equation "cache set"). Returns
    their keys in ``nodes``, the state tree of the group; none where ``credit.select_disagreed`` is off.

    Under ``credit.merge: none`` no two trajectories share a node, so visits are compared as under ``ordered``.
    """
    if not credit.select_disagreed:
        return set()
    disagreed: set[tuple[int, int]] = set()  # decisions, as pairs of indices (trajectory, decision)
    for node in build_tree(group, "ordered" if credit.merge == "none" else credit.merge).values():
        actions = [action_of(group[i].steps[t], credit.diagnoses) for i, t in node.visits]
        suffixes = [(group[i], t) for i, t in node.visits]
        pairs = combinations(range(len(actions)), 2)
        if any(actions[m] != actions[n] and materially_differ(suffixes[m], suffixes[n]) for m, n in pairs):
            disagreed.update(node.visits)
    return {key for key, node in nodes.items() if not disagreed.isdisjoint(node.visits)}


def entropy_selected(uncertainty: Mapping[tuple, float], credit: Credit) -> set[tuple]:
    """Select the keys of uncertain states, S_ent: those whose uncertainty U(s) is at least eta, ``credit.threshold``
    (equation "entropy set"); with ``credit.select_all`` all of them. ``uncertainty`` is U(s) by the key of the
    state."""
    return {key for key, u in uncertainty.items() if credit.select_all or u >= credit.threshold}


def states_to_probe(trajectories: Iterable[Sequence[tuple]], disagreed: set[tuple], limit: int | None) -> set:
    """Find the keys of the states whose uncertainty has to be measured, which costs samples: all states that could be
    selected, the cache-disagreed ones included.

    ``trajectories`` has for each trajectory the keys of its states, ``disagreed`` the keys of the cache-disagreed ones.
    At most ``limit`` states of a trajectory will be selected (None: any number), disagreed ones first. Where the
    disagreed states of a trajectory alone reach the limit, none of its other states can be selected for it; such a
    state is measured only if another trajectory that visits it needs it.
    """
    keys_to_probe: set[tuple] = set()
    for keys in trajectories:
        disagreed_here = [key for key in keys if key in disagreed]
        is_full = limit is not None and len(disagreed_here) >= limit
        keys_to_probe.update(disagreed_here if is_full else keys)
    return keys_to_probe


def select_states(
    keys: Sequence[tuple], disagreed: set[tuple], uncertain: set[tuple], uncertainty: Mapping, limit: int | None
) -> list[tuple]:
    """Select the states of one trajectory for credit, S*(tau): returns their keys (equation "unified selection").

    ``keys`` are those of the trajectory's states. Selected are the states in ``disagreed``, at which trajectories act
    and end differently (S_cache), and those in ``uncertain``, at which the policy is uncertain (S_ent), in the order of
    ``keys``. With a ``limit`` they are at most so many: the disagreed states first, then the others, of both the most
    uncertain first by ``uncertainty``, which is U(s) by key; None is no limit."""
    selected = [key for key in keys if key in disagreed or key in uncertain]
    if limit is None:
        return selected
    # False sorts before True: disagreed states come first.
    return sorted(selected, key=lambda key: (key not in disagreed, -uncertainty[key]))[:limit]


def selection_reason(key: tuple, disagreed: set[tuple], credit: Credit) -> str:
    """Say why the selected state ``key`` was selected: ``disagreed`` (trajectories disagree there), ``all`` (every
    state is selected) or ``entropy`` (it is uncertain enough)."""
    if key in disagreed:
        return "disagreed"
    return "all" if credit.select_all else "entropy"
