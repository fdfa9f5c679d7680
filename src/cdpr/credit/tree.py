"""The state tree of a group: trajectories of one case merged where they know the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..environment.state import State, Step, Trajectory


@dataclass
class Node:
    """A unique state: who visited it (trajectory, decision), and the steps sampled at it, the visitors' first."""

    state: State
    visits: list[tuple[int, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def identity(state: State, merge: str, trajectory: int) -> tuple:
    """What makes two states one (``credit.merge``): their evidence in order, as a set, or nothing."""
    if merge == "ordered":
        return state.key
    case, evidence = state.key
    return (case, tuple(sorted(evidence))) if merge == "set" else (case, evidence, trajectory)


def build_tree(group: Sequence[Trajectory], merge: str = "ordered") -> dict[tuple, Node]:
    """Unique states of the trajectories of one case, in order of first visit. Forced decisions are no choice and
    get no node."""
    nodes: dict[tuple, Node] = {}
    for i, trajectory in enumerate(group):
        for t, state in enumerate(trajectory.states):
            if trajectory.forced and t == len(trajectory.steps) - 1:
                continue
            node = nodes.setdefault(identity(state, merge, i), Node(state))
            node.visits.append((i, t))
            node.steps.append(trajectory.steps[t])
    return nodes


def paths(nodes: dict[tuple, Node], size: int) -> list[list[tuple]]:
    """The node keys that each of ``size`` trajectories passes, in order."""
    passed: list[list[tuple]] = [[] for _ in range(size)]
    for key, node in nodes.items():
        for i, _ in node.visits:
            passed[i].append(key)
    return passed
