"""Advantages from Monte-Carlo values of states (Kazemnejad et al., 2024, "VinePPO")."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from statistics import fmean

from ..environment import State, Trajectory
from ..environment.utility import Worth
from ..llm.types import ModelFailure
from .rollouts import Draws


async def whole_returns(draws: Draws, state: State, numbers: Sequence[int], worth: Worth) -> dict[int, float]:
    """What whole continuations of a state are worth, by number. Raises ModelFailure when not one came back."""
    ends = await draws.follow(state, numbers)
    if not ends:
        raise ModelFailure(f"{state.case.called}: no continuation of a state came back; is the model alive?")
    return {k: worth(end.correct, end.effort) for k, end in ends.items()}


async def state_values(
    draws: Draws, group: Sequence[Trajectory], numbers: Sequence[int], worth: Worth
) -> dict[tuple, float]:
    """V(s), the mean over whole continuations, of the states of a group by their keys: the same value wherever
    trajectories share a state."""
    states = {state.key: state for trajectory in group for state in trajectory.states}
    found = await asyncio.gather(*(whole_returns(draws, state, numbers, worth) for state in states.values()))
    return {key: fmean(returns.values()) for key, returns in zip(states, found, strict=True)}


def group_advantages(group: Sequence[Trajectory], values: Mapping[tuple, float], worth: Worth) -> list[list[float]]:
    """:func:`step_advantages` of each trajectory of a group."""
    return [step_advantages(trajectory, [values[s.key] for s in trajectory.states], worth) for trajectory in group]


def step_advantages(trajectory: Trajectory, values: Sequence[float], worth: Worth) -> list[float]:
    """A_t = r_t + V(s_{t+1}) - V(s_t) from the values of s_0 ... s_T; nothing follows the last decision."""
    last = len(trajectory.steps) - 1
    following = [*values[1:], 0.0]
    return [
        worth(t == last and trajectory.correct, step.effort) + following[t] - values[t]
        for t, step in enumerate(trajectory.steps)
    ]
