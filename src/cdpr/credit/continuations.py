"""Continuations of states: how they are drawn, shared by all actions that lead to the same state, and averaged to
values (paper, sections "Rollout Cache" and "Short-horizon Continuation").

Replies at a state are numbered: reply k depends on (seed, stream, state, k) alone, where the stream is a name that
keeps the random numbers of different purposes apart. Continuation k takes reply k at every state. So the continuations
of one action are independent of each other. Where different actions lead to the same state, their continuations k are
the same from there on. No reply is drawn twice, and no result depends on the order of the requests.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean

from ..environment import DiagnosticEnvironment, Effort, FinalDiagnosis, Policy, State, Step, Trajectory
from ..environment.utility import ReturnOf
from ..llm import ModelFailure
from ..seeding import derive_seed
from ..settings.credit import Credit
from .belief import read_beliefs
from .states import ActionKey, Node, action_of, display_key, state_identity

MOST_PER_STATE = 32  # to this number the cached continuations of a state can grow
# Where the end of a trajectory is longer than the horizon, it is cut, and a forced diagnosis is drawn for it. The
# numbers of these replies begin here, far above those of continuations, so that the two never share random numbers.
_FIRST_CUT_NUMBER = 1 << 20


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
        missing = [k for k in numbers if k not in known]
        if missing:
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
        for each number, or None for each where the request failed."""
        seed = derive_seed(self.seed, self.stream, state.key, forced)
        try:
            turns = await self.policy.sample(state, numbers, forced, seed)
            steps = [await self.environment.respond(state, turn) for turn in turns]
        except (ModelFailure, TimeoutError):
            self.failed += len(numbers)
            return [None] * len(numbers)
        self.tokens += sum(len(turn.token_ids) for turn in turns)
        self.journal += [(state, step) for step in steps]
        return steps

    def belief(self, state: State) -> "asyncio.Future[float | None]":
        """Request the policy's belief in the true disease at a state, without waiting for it. Returns a future, the
        same one for every call with this state. Its result is a probability, or None where the request failed."""
        if state.prompt_key not in self.beliefs:
            self.beliefs[state.prompt_key] = asyncio.ensure_future(self._read_belief(state))
        return self.beliefs[state.prompt_key]

    async def _read_belief(self, state: State) -> float | None:
        """Read the policy's belief in the true disease at a state, a probability. Returns None, and counts the failure,
        where the request failed."""
        try:
            return (await read_beliefs(self.policy, [state], "probability"))[state.key]
        except (ModelFailure, TimeoutError):
            self.failed += 1
            return None

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


# The rollout cache and the pools of a group


@dataclass
class Entry:
    """The continuations of one state in the rollout cache. ``drawn`` counts all that were requested so far, with those
    that failed. This count is the number of the next continuation, so that no number is used twice."""

    drawn: int = 0
    continuations: list[Continuation] = field(default_factory=list)


@dataclass
class Pool:
    """The continuations of one state, ``child``, from which the value of every action that leads there is estimated.

    They come from three sources: ``own`` are made from the group's own trajectories, ``known`` are taken from the
    cache, and ``fresh`` are newly drawn. ``own`` and ``fresh`` are planned first, and empty until :meth:`Pools.fill`.
    ``suffixes`` is the plan for ``own``: pairs of indices (trajectory, decision), each for the end of that trajectory
    from that decision on. ``numbers`` is the plan for ``fresh``: the numbers of the continuations to draw.
    """

    child: State
    suffixes: list[tuple[int, int]]
    known: list[Continuation]
    numbers: range
    own: list[Continuation] = field(default_factory=list)
    fresh: list[Continuation] = field(default_factory=list)

    @property
    def continuations(self) -> list[Continuation]:
        """All continuations of the child state: from the group, from the cache, and fresh."""
        return self.own + self.known + self.fresh

    @property
    def failed(self) -> int:
        """The number of continuations that are missing because their request failed."""
        return len(self.suffixes) + len(self.numbers) - len(self.own) - len(self.fresh)


@dataclass
class Pools:
    """All pools of continuations of one group.

    ``nodes`` are the states that the group visits (:func:`~.states.build_tree`). ``credit`` is the section ``credit``
    of the settings. ``cache`` has the continuations of earlier groups by the key of the state. ``draws_of(key)``
    returns the object that draws continuations for the pool ``key``. ``pools`` has each pool by the key of its state;
    without a cache, by the node and the action before it.
    """

    group: Sequence[Trajectory]
    nodes: dict[tuple, Node]
    credit: Credit
    cache: MutableMapping[tuple, Entry]
    draws_of: Callable[[tuple], Draws]
    pools: dict[tuple, Pool] = field(default_factory=dict)

    def pool_of(self, node: tuple, action: tuple, child: State) -> Pool:
        """Get the pool of the state ``child``, to which ``action`` leads from the node with the key ``node``. The first
        call for a state opens its pool. Without a cache every action has a pool of its own."""
        if self.credit.cache.scope == "off":
            key = (node, action)
        else:
            # Only under ``merge: none`` the key depends on the trajectory, and then a single one visits the node.
            trajectory, _ = self.nodes[node].visits[0]
            key = state_identity(child, self.credit.merge, trajectory)
        if key not in self.pools:
            self.pools[key] = self._open(key, child)
        return self.pools[key]

    def _open(self, key: tuple, child: State) -> Pool:
        """Open the pool ``key`` of the state ``child``, and plan which continuations are to be drawn for it
        (``numbers``). Nothing is drawn yet.

        A pool needs K continuations (``credit.continuations``). Suffixes of the group and cached continuations count
        towards K, and only the missing ones are drawn. There are three exceptions. Without a cache all K are drawn.
        Where some are missing, ``fill: strict`` ignores those at hand and draws K new ones. Where none is missing, a
        cached state gets ``grow`` more.
        """
        rule, wanted = self.credit.cache, self.credit.continuations
        if rule.scope == "off":
            return Pool(child, suffixes=[], known=[], numbers=range(wanted))
        entry = self.cache.get(key, Entry())
        # The suffixes of the group's own trajectories that are used as continuations.
        reuses_group = rule.reuse_group == "every" or (rule.reuse_group == "branching" and key in self.behind_branching)
        suffixes = self.nodes[key].visits if reuses_group and key in self.nodes else []
        if rule.long_suffixes == "drop":
            suffixes = [visit for visit in suffixes if self.ends_within(*visit)]
        # How many continuations are still to be drawn.
        cached, first_number = len(entry.continuations), entry.drawn
        missing = wanted - cached - len(suffixes)
        if rule.fill == "strict" and missing > 0:
            return Pool(child, suffixes=[], known=[], numbers=range(first_number, first_number + wanted))
        if missing <= 0:  # enough are at hand: only a cached state grows, up to the size of an entry
            missing = max(0, min(rule.grow, MOST_PER_STATE - cached)) if cached else 0
        return Pool(child, suffixes, list(entry.continuations), range(first_number, first_number + missing))

    @cached_property
    def behind_branching(self) -> set[tuple]:
        """The keys of the states directly after a branching state, one at which trajectories of the group took
        different actions (section "Rollout Cache")."""
        children: set[tuple] = set()
        for node in self.nodes.values():
            steps = [self.group[i].steps[t] for i, t in node.visits]
            if len({action_of(step, self.credit.diagnoses) for step in steps}) > 1:
                for index, decision in node.visits:
                    next_state = self.group[index].states[decision + 1 : decision + 2]  # one, or none after a diagnosis
                    children.update(state_identity(child, self.credit.merge, index) for child in next_state)
        return children

    def ends_within(self, index: int, start: int) -> bool:
        """Whether the suffix of the trajectory ``index``, from its decision ``start`` on, has at most H decisions
        (``credit.horizon``), which is also the limit of drawn continuations. A forced diagnosis does not count."""
        trajectory = self.group[index]
        return len(trajectory.steps) - start - trajectory.forced <= self.credit.horizon

    async def fill(self) -> None:
        """Draw all missing continuations of all pools at the same time."""
        await asyncio.gather(*(self._fill(key, pool) for key, pool in self.pools.items()))

    async def _fill(self, key: tuple, pool: Pool) -> None:
        """Fill the lists ``own`` and ``fresh`` of the pool ``key``: make continuations from the suffixes of the group,
        then draw the fresh ones. Those whose request failed are missing in the lists."""
        draws = self.draws_of(key)
        for index, decision in pool.suffixes:
            if (suffix := await self._make_from_suffix(draws, index, decision)) is not None:
                pool.own.append(suffix)
        if pool.numbers:
            by_number = await draws.rollout(pool.child, pool.numbers, self.credit.horizon)
            pool.fresh = [by_number[k] for k in pool.numbers if k in by_number]

    async def _make_from_suffix(self, draws: Draws, index: int, start: int) -> Continuation | None:
        """Make a continuation from the suffix of the trajectory ``index`` of the group, from its decision ``start`` on.
        A suffix with more than H decisions (``credit.horizon``) is cut after H, and ``draws`` draws a forced diagnosis
        for it; under ``credit.cache.long_suffixes: keep`` it stays whole. Returns None where the request of this
        diagnosis failed."""
        trajectory, horizon = self.group[index], self.credit.horizon
        path = tuple(map(display_key, trajectory.steps[start:]))
        if self.credit.cache.long_suffixes == "keep" or self.ends_within(index, start):
            return Continuation(trajectory.correct, trajectory.effort(start), path)
        cut_state, number = trajectory.states[start + horizon], _FIRST_CUT_NUMBER + index
        end = (await draws.rollout(cut_state, (number,), horizon=0)).get(number)
        if end is None:
            return None
        return Continuation(end.correct, trajectory.effort(start, start + horizon) + end.effort, path[:horizon])

    def store(self) -> None:
        """Put the continuations of all pools into the cache, without those made from the group's own suffixes. Pools
        are stored in the order in which they were opened."""
        for key, pool in self.pools.items():
            if self.credit.cache.scope != "off" and (pool.known or pool.numbers):
                # The stop of the range is the number of the next continuation, and so the count of all drawn ones.
                self.cache[key] = Entry(pool.numbers.stop, pool.known + pool.fresh)


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
