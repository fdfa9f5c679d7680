"""Continuations of states: how they are drawn, shared by all actions that lead to the same state, and averaged to
values (paper, sections "Rollout Cache" and "Short-horizon Continuation").

Replies at a state are numbered: reply k depends on (seed, stream, state, k) alone, where the stream is a name that
keeps the random numbers of different purposes apart. Continuation k takes reply k at every state. So the continuations
of one action are independent of each other. Where different actions lead to the same state, their continuations k are
the same from there on. No reply is drawn twice, and no result depends on the order of the requests.
"""

import asyncio
import math
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TypeVar

from ..environment import DiagnosticEnvironment, Effort, FinalDiagnosis, Policy, ReturnOf, State, Step, Trajectory
from ..llm import ModelFailure
from ..seeding import derive_seed
from .belief import read_beliefs
from .states import ActionKey, display_key

T = TypeVar("T")


@dataclass(frozen=True)
class Continuation:
    """The rest of an episode from a state on. ``correct`` is 1 if its diagnosis is right and 0 if not, or the
    probability that it is right. ``effort`` counts the requests and US dollars of its steps.

    ``path`` lists its actions for display only. It is empty where a checkpoint restored the continuation. It has no
    diagnosis where none was drawn, because the probability of the true one was computed instead.

    The utility is not stored, but computed from ``correct`` and ``effort`` when it is needed. So a stored continuation
    is valid for all weights of the utility (lambdas).
    """

    correct: float
    effort: Effort
    path: tuple[ActionKey, ...] = field(default=(), compare=False)


@dataclass
class Draws:
    """Draws replies from one policy and stores them, so that each is drawn once.

    ``stream`` is part of the seed of every reply and keeps draws for different purposes apart. ``verdicts`` is the
    setting ``credit.verdicts``. Under ``drawn`` the diagnosis of a continuation is sampled and judged. Under ``scored``
    the continuation ends with a probability instead: the policy's belief in the true disease.

    ``known[state.prompt_key, forced][k]`` is reply k at a state: its step; a future while it is being drawn; None where
    the request failed. ``beliefs`` has the results of :meth:`belief` by ``state.prompt_key``. ``failed`` counts the
    replies and beliefs whose request failed, ``tokens`` the tokens of all drawn replies. ``journal`` lists all drawn
    steps, each with the state at which it was taken.
    """

    environment: DiagnosticEnvironment
    policy: Policy
    seed: int
    stream: tuple
    verdicts: str = "drawn"
    beliefs: dict[tuple, asyncio.Future] = field(default_factory=dict)
    known: dict[tuple, dict[int, Step | asyncio.Future | None]] = field(default_factory=dict)
    failed: int = 0
    tokens: int = 0
    journal: list[tuple[State, Step]] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """The counts of these draws for the log, by the names of their metrics: drawn tokens, and requests (of replies
        or beliefs) that failed."""
        return {"credit/continuation_tokens": self.tokens, "credit/failed": self.failed}

    async def draw_steps(self, state: State, numbers: Sequence[int], forced: bool = False) -> dict[int, Step]:
        """Return the steps of the replies with these ``numbers`` at a state, by number. Replies that are not stored yet
        are drawn. Those whose request failed are left out. With ``forced`` each reply has to be a diagnosis."""
        known = self.known.setdefault((state.prompt_key, forced), {})
        if missing := [k for k in numbers if k not in known]:
            # While all of these are drawn, they share one future, so that no other coroutine draws them.
            all_drawn = asyncio.get_running_loop().create_future()
            known.update(dict.fromkeys(missing, all_drawn))
            try:
                known.update(zip(missing, await self._draw(state, missing, forced), strict=True))
            finally:
                all_drawn.set_result(None)
        for number in numbers:
            if isinstance(pending := known[number], asyncio.Future):  # another coroutine is drawing this reply
                await pending
        return {k: step for k in numbers if isinstance(step := known[k], Step)}  # failed ones are None

    async def _draw(self, state: State, numbers: Sequence[int], forced: bool) -> Sequence[Step | None]:
        """Sample the replies with these ``numbers`` at a state and let the environment answer them. Returns one step
        for each number, None where the policy gave no reply, or a model that judges or matches did not answer it."""
        seed = derive_seed(self.seed, self.stream, state.key, forced)
        turns = await self._attempt(self.policy.sample(state, numbers, forced, seed), len(numbers)) or []
        self.tokens += sum(len(turn.token_ids) for turn in turns)
        steps = [await self._attempt(self.environment.respond(state, turn)) for turn in turns]
        self.journal += [(state, step) for step in steps if step]
        return steps or [None] * len(numbers)

    async def _attempt(self, request: Awaitable[T], count: int = 1) -> T | None:
        """Wait for a request. Where it fails, return None, and count ``count`` failures."""
        try:
            return await request
        except (ModelFailure, TimeoutError):
            self.failed += count
            return None

    def belief(self, state: State) -> "asyncio.Future[float | None]":
        """Request the policy's belief in the true disease at a state, without waiting for it. Returns a future, the
        same one for every call with this state. Its result is a probability, or None where the request failed."""
        if state.prompt_key not in self.beliefs:
            self.beliefs[state.prompt_key] = asyncio.ensure_future(self._read_belief(state))
        return self.beliefs[state.prompt_key]

    async def _read_belief(self, state: State) -> float | None:
        """Read the policy's belief in the true disease at a state, a probability; None where the request failed."""
        beliefs = await self._attempt(read_beliefs(self.policy, [state], "probability"))
        return beliefs[state.key] if beliefs else None

    async def rollout(self, state: State, numbers: Sequence[int], horizon: float = math.inf) -> dict[int, Continuation]:
        """Draw the continuations ``numbers`` of a state; returns them by number. Each has at most ``horizon``
        decisions, then a forced diagnosis (equation "rollout"). Its ``correct`` is the verdict on its diagnosis, or
        under ``verdicts: scored`` the policy's belief in the true disease. Continuations with a failed reply are left
        out.

        Works recursively: all continuations take one step. Some end there; the others are grouped by their reply, since
        equal replies lead to the same next state, and each group continues from there with one decision less.
        """
        forced = horizon <= 0 or self.environment.must_diagnose(state, self.policy)
        scored = self.verdicts == "scored"
        # All take one step. Those that diagnose end; the others are grouped by the text of their reply.
        steps: dict[int, Step] = {}
        continuations: dict[int, Continuation] = {}
        if forced and scored:  # no reply is drawn: the belief replaces the diagnosis, which costs nothing
            continuations = dict.fromkeys(numbers, Continuation(0.0, Effort()))
        else:
            steps = await self.draw_steps(state, numbers, forced)
        numbers_by_reply: dict[str, list[int]] = {}
        for number, step in steps.items():
            if forced or isinstance(step.action, FinalDiagnosis):
                last, correct = self.environment.conclude(state, step)
                continuations[number] = Continuation(correct, last.effort, (display_key(last),))
            else:
                numbers_by_reply.setdefault(step.turn.text, []).append(number)
        if continuations and scored:
            self.belief(state)  # requested now, so that it is computed in one batch with the branches
        # Each group of equal replies is a branch: a step that they share, and their numbers. It continues from the next
        # state of this step.
        branches = [(steps[same_reply[0]], same_reply) for same_reply in numbers_by_reply.values()]
        calls = [self.rollout(state.after(step), same_reply, horizon - 1) for step, same_reply in branches]
        rests = [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)  # one alone needs no task
        if continuations and scored:  # the belief replaces the verdict; they have failed where it could not be read
            belief = await self.belief(state)
            ends = continuations.items()
            continuations = {} if belief is None else {k: replace(end, correct=belief) for k, end in ends}
        # Put this step in front of what came back from the branches.
        for (step, _), rest in zip(branches, rests, strict=True):
            for number, end in rest.items():
                path = (display_key(step), *end.path)
                continuations[number] = Continuation(end.correct, step.effort + end.effort, path)
        return continuations


# Monte-Carlo values of states (Kazemnejad et al., 2024, "VinePPO")


async def whole_returns(draws: Draws, state: State, numbers: Sequence[int], return_of: ReturnOf) -> dict[int, float]:
    """Draw the continuations ``numbers`` of a state to the end of their episodes. Returns the return of each by number;
    failed ones are left out. ``return_of`` computes a return from correctness and effort. Raises ModelFailure where all
    failed."""
    ends = await draws.rollout(state, numbers)
    if not ends:
        raise ModelFailure(f"{state.case.name_in_errors}: no continuation of a state came back; is the model alive?")
    return {k: return_of(end.correct, end.effort) for k, end in ends.items()}


async def state_values(
    draws: Draws, group: Sequence[Trajectory], numbers: Sequence[int], return_of: ReturnOf
) -> dict[tuple, float]:
    """Estimate V(s) of every state of a group as the mean return of its continuations ``numbers``, drawn to the end of
    the episode. Returns V(s) by the key of the state. Trajectories that share a state share its value. ``return_of``
    computes a return from correctness and effort. Raises ModelFailure where all continuations of a state failed."""
    states = {state.key: state for trajectory in group for state in trajectory.states}
    returns = await asyncio.gather(*(whole_returns(draws, state, numbers, return_of) for state in states.values()))
    return {key: fmean(by_number.values()) for key, by_number in zip(states, returns, strict=True)}


def group_advantages(
    group: Sequence[Trajectory], values: Mapping[tuple, float], return_of: ReturnOf, decay: float = 0.0
) -> list[list[float]]:
    """Compute the advantages of all decisions of a group by generalised advantage estimation (:func:`step_advantages`):
    returns a list [trajectory][decision]. ``values`` are V(s) by the key of the state, ``return_of`` computes a return
    from correctness and effort. ``decay`` is lambda: at 0 the advantage is r_t + V(s_{t+1}) - V(s_t)."""
    return [step_advantages(episode, [values[s.key] for s in episode.states], return_of, decay) for episode in group]


def step_advantages(
    trajectory: Trajectory, values: Sequence[float], return_of: ReturnOf, decay: float = 0.0
) -> list[float]:
    """Compute the advantage of each decision of a trajectory by generalised advantage estimation (Schulman et al.,
    2016): A_t = d_t + decay A_{t+1}, with d_t = r_t + V(s_{t+1}) - V(s_t).

    ``values`` are V(s_0) ... V(s_T), one per decision; V is 0 after the last decision. The reward r_t is the return of
    decision t alone by ``return_of``; only the last decision can be right. ``decay`` is called lambda in the source: 0
    credits a decision with d_t alone, 1 with the sum of d_t and all later ones.
    """
    pairs = zip(step_returns(trajectory, return_of), values, [*values[1:], 0.0], strict=True)
    return discounted_sums([reward + next_value - value for reward, value, next_value in pairs], decay)


def step_returns(trajectory: Trajectory, return_of: ReturnOf) -> list[float]:
    """Compute the return r_t of each decision of a trajectory alone; only the last decision can be right.
    ``return_of`` computes a return from correctness and effort."""
    last = len(trajectory.steps) - 1
    return [return_of(trajectory.correct and t == last, step.effort) for t, step in enumerate(trajectory.steps)]


def discounted_sums(values: Sequence[float], discount: float) -> list[float]:
    """Compute the sum of each value and all later ones, S_t = x_t + discount S_{t+1}; returns one for each value."""
    sums = list(values)
    for t in range(len(sums) - 2, -1, -1):  # backwards, because S_t needs S_{t+1}
        sums[t] += discount * sums[t + 1]
    return sums
