"""The counterfactual process reward of groups of trajectories (paper, sections "Action Uncertainty-guided State
Selection" and "Counterfactual Process Reward")."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from cachetools import FIFOCache

from ..environment import DiagnosticEnvironment, Effort, FinalDiagnosis, Policy, State, Step, Trajectory
from ..environment.utility import utility
from ..settings import Credit, Tests, Utility
from . import states
from .continuations import Continuation, Draws
from .scores import CandidateValue, CreditReport, SampledAction, StateCredit
from .states import ActionKey, Node, action_of, display_key, state_identity

MOST_PER_STATE = 32  # to this number the cached continuations of a state can grow
# Where the end of a trajectory is longer than the horizon, it is cut, and a forced diagnosis is drawn for it. The
# numbers of these replies begin here, far above those of continuations, so that the two never share random numbers.
_FIRST_CUT_NUMBER = 1 << 20


def action_value(immediate: Effort, ends: Sequence[Continuation], weights: Utility, tests: Tests) -> float:
    """Estimate the value of an action, U_hat(s, a) = 1/K sum_k U(tau_k), equation "U hat": the mean utility over its
    continuations ``ends``. The action's own effort, ``immediate``, is added to that of each continuation. ``weights``
    and ``tests`` are the settings of the utility."""
    return fmean(utility(end.correct, immediate + end.effort, weights, tests) for end in ends)


def baseline(
    values: Mapping[ActionKey, float], p_hat: Mapping[ActionKey, float], taken: ActionKey, rule: str = "uniform"
) -> float | None:
    """Compute the baseline of a state, which R_proc subtracts from the value U_hat of an action. ``values`` are U_hat
    of the candidates A_c(s), ``p_hat`` their estimated probabilities, both by action.

    ``rule`` is ``credit.baseline``. Under ``uniform`` the baseline is the mean of the values; under ``policy_weighted``
    their mean weighted by p_hat; under ``leave_one_out`` the mean of all values but that of the action ``taken``.
    Returns None where no value is left to average.
    """
    actions = [a for a in values if rule != "leave_one_out" or a != taken]
    if not actions:
        return None
    if rule != "policy_weighted":
        return fmean(values[a] for a in actions)
    return math.fsum(p_hat[a] * values[a] for a in actions) / math.fsum(p_hat[a] for a in actions)


@dataclass
class Entry:
    """The continuations of one state in the rollout cache. ``drawn`` counts all that were requested so far, with those
    that failed. This count is the number of the next continuation, so that no number is used twice."""

    drawn: int = 0
    continuations: list[Continuation] = field(default_factory=list)


@dataclass(eq=False)
class ProcessReward:
    """The counterfactual process reward R_proc of the decisions at selected states, in units of utility.

    ``policy``, the policy in training, proposes counterfactual actions. ``continuation_policy`` acts after them; it is
    the same object where the current policy continues. ``credit`` and ``weights`` are the sections ``credit`` and
    ``utility`` of the settings. ``seed`` fixes all draws. Source: paper, section "Counterfactual Process Reward".
    """

    environment: DiagnosticEnvironment
    policy: Policy
    continuation_policy: Policy
    credit: Credit
    weights: Utility
    seed: int

    def __post_init__(self) -> None:
        """Start with an empty rollout cache of at most ``credit.cache.capacity`` states. When it is full, the state
        whose continuations were stored longest ago is removed."""
        self.cache: FIFOCache[tuple, Entry] = FIFOCache(self.credit.cache.capacity)
        # The iteration in which the cached continuations were drawn; 0 where they are kept in all iterations, None
        # before the first group.
        self.version: int | None = None

    def open_group(self, group: Sequence[Trajectory], iteration: int) -> "GroupCredit":
        """Prepare the credit of one group in ``iteration``; returns an object that has not computed it yet. The caller
        awaits its :meth:`GroupCredit.score`, and afterwards calls :meth:`GroupCredit.store` of all groups in the order
        of the batch.

        In a new iteration the cache is cleared here, unless its continuations are those of a frozen policy, which never
        changes, and the cache scope is ``run``.
        """
        stays_valid = self.continuation_policy is not self.policy and self.credit.cache.scope == "run"
        version = 0 if stays_valid else iteration
        if version != self.version:
            self.cache.clear()
            self.version = version
        return GroupCredit(self, group, iteration)

    async def score(self, groups: Sequence[Sequence[Trajectory]], iteration: int) -> list[CreditReport]:
        """Compute the process rewards of a batch of groups; returns one report per group. ``report.process[i][t]`` is
        R_proc of decision t of trajectory i, None where its state was not selected or its action has no value. Raises
        FloatingPointError for a reward that is not finite."""
        credits = [self.open_group(group, iteration) for group in groups]
        await asyncio.gather(*(credit.score() for credit in credits))
        for credit in credits:  # after all are scored: no group depends on which one finished first
            credit.store()
        return [credit.report for credit in credits]

    def state_dict(self) -> dict[str, Any]:
        """Return the rollout cache, oldest state first, and its ``version``, as tuples and numbers, which torch loads
        without running code. A cached state becomes (key, number of continuations requested, continuations), a
        continuation (correct, effort...); its steps are not kept."""
        entries: list[Any] = []
        for key, entry in self.cache.items():
            continuations = [(end.correct, *astuple(end.effort)) for end in entry.continuations]
            entries.append((key, entry.drawn, continuations))
        return {"version": self.version, "cache": entries}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the cache from what :meth:`state_dict` returned."""
        self.version = state["version"]
        self.cache.clear()
        for key, drawn, ends in state["cache"]:
            continuations = [Continuation(correct, Effort(*effort)) for correct, *effort in ends]
            self.cache[key] = Entry(drawn, continuations)


@dataclass(frozen=True)
class Pool:
    """The continuations of one state, from which the value of every action that leads there is estimated. They come
    from three sources: ``own`` are made from the group's own trajectories, ``known`` are taken from the cache, and
    ``fresh`` are newly drawn. ``numbers`` are the numbers of those that were to be drawn. ``failed`` counts the
    continuations that are missing because their request failed."""

    own: list[Continuation]
    known: list[Continuation]
    fresh: list[Continuation]
    numbers: range
    failed: int

    @property
    def continuations(self) -> list[Continuation]:
        """All continuations of the state: from the group, from the cache, and fresh."""
        return self.own + self.known + self.fresh


@dataclass
class Candidate:
    """An action at a state whose value is estimated. ``in_top_m`` says that it is in the candidate set A_c(s); other
    actions are here because the group took them. ``steps`` are the sampled steps that take the action.

    :meth:`GroupCredit.score` adds what the value follows from. ``pool`` has the continuations of the next state. A
    diagnosis has no next state: its pool is None, and ``correct`` is the probability that it is right (None where the
    request of this probability failed).
    """

    action: ActionKey
    in_top_m: bool
    steps: list[Step]
    pool: Pool | None = None
    correct: float | None = None


class GroupCredit:
    """The process rewards of one group: the trajectories of one case. :meth:`score` computes ``report``."""

    def __init__(self, process: ProcessReward, group: Sequence[Trajectory], iteration: int):
        """Prepare an empty report and the state tree of the group. ``draws`` will hold the objects that draw replies,
        by their stream of random numbers; ``candidates`` the actions whose values are estimated, by the key of their
        state in ``nodes``; ``pools`` the continuations, by the key of the state from which they start, or without a
        cache by the node and the action before it. A pool is a future while it is being drawn."""
        self.process, self.group, self.credit, self.iteration = process, group, process.credit, iteration
        self.environment = process.environment
        self.report = CreditReport([[None] * len(trajectory.steps) for trajectory in group])
        self.nodes = states.build_tree(group, self.credit.merge)
        self.draws: dict[tuple, Draws] = {}
        self.candidates: dict[tuple, list[Candidate]] = {}
        self.pools: dict[tuple, asyncio.Future[Pool]] = {}

    async def score(self) -> None:
        """Compute ``report`` in five stages: sample next actions at the states; select states by their uncertainty and
        by disagreement; draw continuations of the candidate actions; record each state with the values of its actions;
        and reward the decisions at the selected states."""
        credit, nodes = self.credit, self.nodes
        # Sample next actions ("probes") at every state that could be selected.
        disagreed = states.disagreed_states(self.group, nodes, credit)
        probed = states.states_to_probe(states.list_paths(nodes, len(self.group)), disagreed, credit.max_states)
        await asyncio.gather(*(self._probe(key, nodes[key]) for key in nodes if key in probed))
        self.report.counts["probe_tokens"] = sum(draws.tokens for draws in self.draws.values())
        # Select states: ``selected[i]`` are the keys of the selected states of trajectory i. ``p_hat`` has for each
        # state the share of each action among the samples.
        p_hat = {key: states.frequencies(map(self._action_of, self._samples_of(node))) for key, node in nodes.items()}
        uncertainty = {key: states.entropy(p_hat[key]) for key in nodes if key in probed}
        selected = self.select_states(disagreed, uncertainty, credit)
        all_selected = set().union(*selected)
        # Draw the continuations of all candidate actions. A diagnosis needs no continuation: it is judged.
        self.candidates = {key: self._list_candidates(nodes[key], p_hat[key]) for key in nodes if key in all_selected}
        await asyncio.gather(*(self._follow(key, c) for key, row in self.candidates.items() for c in row))
        # Record every state, and reward the decisions of the trajectories for which it was selected.
        for key, node in nodes.items():
            values = tuple(map(self._estimate_value, self.candidates.get(key, ())))
            # The tokens of the first reply that takes each action. Of equal keys a dictionary keeps the last value, so
            # the steps are read from the last to the first.
            tokens = {self._action_of(step): step.turn.token_ids for step in reversed(node.steps)}
            actions = [SampledAction(action, p, tokens[action]) for action, p in p_hat[key].items()]
            reason = states.selection_reason(key, disagreed, credit) if key in all_selected else ""
            (_, evidence), visits = node.state.key, tuple(node.visits)
            self.report.states.append(StateCredit(evidence, visits, uncertainty.get(key), reason, actions, values))
            self._reward([(i, t) for i, t in node.visits if key in selected[i]], values, p_hat[key])
        self._sum_counts()

    def select_states(
        self, disagreed: set[tuple], uncertainty: Mapping[tuple, float], rule: Credit
    ) -> list[list[tuple]]:
        """Select the states whose decisions are rewarded: returns for each trajectory of the group the keys of its
        selected states (S*(tau) in the paper), at most ``credit.max_states``.

        Two kinds of states are selected: those at which trajectories disagree, and those at which the policy is
        uncertain what to do next. ``disagreed`` has the keys of the first kind (:func:`~.states.disagreed_states`).
        ``uncertainty`` has by key the entropy of the sampled next actions at a state, in nats; the second kind are the
        states where it is at least ``credit.threshold``, or with ``credit.select_all`` all states in ``uncertainty``.
        ``rule`` is the section ``credit`` of the settings."""
        uncertain, limit = states.entropy_selected(uncertainty, rule), rule.max_states
        node_paths = states.list_paths(self.nodes, len(self.group))
        return [states.select_states(keys, disagreed, uncertain, uncertainty, limit) for keys in node_paths]

    def _action_of(self, step: Step) -> ActionKey:
        """Return the identity of the action of a step, by which equal actions are recognised."""
        return action_of(step, self.credit.diagnoses)

    def _samples_of(self, node: Node) -> list[Step]:
        """Return the steps at a node from which p_hat is estimated. Under ``credit.own_actions: counted`` these are all
        of them, under ``apart`` all but those of the group's own trajectories."""
        # The group's own steps, one for each visit, come first.
        return node.steps if self.credit.own_actions == "counted" else node.steps[len(node.visits) :]

    async def _probe(self, key: tuple, node: Node) -> None:
        """Sample next actions at the node ``key``, and add them to its steps, until p_hat has n_s samples
        (``credit.samples``; section "Next-action Sampling"). The group's own actions count towards n_s unless
        ``credit.own_actions`` is ``apart``. Where requests fail there are fewer samples."""
        at_hand = len(node.steps) if self.credit.own_actions == "counted" else 0
        if self.credit.samples > at_hand:
            steps = await self._probe_draws(key).draw_steps(node.state, range(self.credit.samples - at_hand))
            node.steps += steps.values()
            self.report.counts["probes"] += len(steps)

    def _list_candidates(self, node: Node, p_hat: dict[ActionKey, float]) -> list[Candidate]:
        """List the actions at a node whose values are estimated: the candidate set A_c(s), then the other actions that
        the group took there. ``p_hat`` is the estimated probability of each action."""
        top = states.top_candidates(p_hat, self.credit.candidates)
        taken = map(self._action_of, node.steps[: len(node.visits)])  # by the group's own trajectories
        candidates = []
        for action in dict.fromkeys([*top, *taken]):  # each once
            # Under ``own_actions: apart`` an action that the group took may be missing among the samples of p_hat.
            source = self._samples_of(node) if action in p_hat else node.steps
            steps = [step for step in source if self._action_of(step) == action]
            candidates.append(Candidate(action, action in top, steps))
        return candidates

    async def _follow(self, key: tuple, candidate: Candidate) -> None:
        """Set ``pool`` of a candidate at the node ``key``, which has the continuations after it. Of a diagnosis set
        ``correct``, the probability that it is right. This is the share of its samples that are right. Where
        ``credit.verdicts`` is ``scored`` and all diagnoses are one action, it is the policy's belief in the true
        disease; None where that could not be read."""
        state, first = self.nodes[key].state, candidate.steps[0]
        if not isinstance(first.action, FinalDiagnosis):
            candidate.pool = await self._pool_of(key, candidate.action, state.after(first))
        elif self.credit.verdicts == "scored" and self.credit.diagnoses == "one_action":
            candidate.correct = await self._probe_draws(key).belief(state)
        else:
            truth = self.group[0].case.diagnosis_results
            texts = [step.action.text for step in candidate.steps if isinstance(step.action, FinalDiagnosis)]
            candidate.correct = fmean(self.environment.is_correct(text, truth) for text in texts)

    def _pool_of(self, node: tuple, action: ActionKey, child: State) -> asyncio.Future[Pool]:
        """Request the pool of the state ``child``, to which ``action`` leads from the node with the key ``node``,
        without waiting for it. Returns a future, the same one for all actions that lead to this state. Without a cache
        every action has a pool of its own."""
        if self.credit.cache.scope == "off":
            key: tuple = (node, action)
        else:
            # Only under ``merge: none`` the key depends on the trajectory, and then a single one visits the node.
            trajectory, _ = self.nodes[node].visits[0]
            key = state_identity(child, self.credit.merge, trajectory)
        if key not in self.pools:
            self.pools[key] = asyncio.ensure_future(self._draw_pool(key, child))
        return self.pools[key]

    async def _draw_pool(self, key: tuple, child: State) -> Pool:
        """Collect the continuations of the state ``child``, whose pool has this ``key``, and draw those that are
        missing. Those whose request failed are left out."""
        draws, (suffixes, known, numbers) = self._continuation_draws(key), self._plan_pool(key)
        made = [await self._make_from_suffix(draws, *suffix) for suffix in suffixes]
        own = [continuation for continuation in made if continuation is not None]
        by_number = await draws.rollout(child, numbers, self.credit.horizon)
        fresh = [by_number[k] for k in numbers if k in by_number]
        failed = len(suffixes) + len(numbers) - len(own) - len(fresh)
        return Pool(own, known, fresh, numbers, failed)

    def _plan_pool(self, key: tuple) -> tuple[list[tuple[int, int]], list[Continuation], range]:
        """Plan which continuations the pool ``key`` gets. Returns the suffixes of the group's own trajectories that are
        used, as pairs of indices (trajectory, decision), each for the end of that trajectory from that decision on; the
        continuations in the cache; and the numbers of those to be drawn.

        A pool needs K continuations (``credit.continuations``). Suffixes of the group and cached continuations count
        towards K, and only the missing ones are drawn. There are three exceptions. Without a cache all K are drawn.
        Where some are missing, ``fill: strict`` ignores those at hand and draws K new ones. Where none is missing, a
        cached state gets ``grow`` more.
        """
        rule, wanted = self.credit.cache, self.credit.continuations
        if rule.scope == "off":
            return [], [], range(wanted)
        entry = self.process.cache.get(key, Entry())
        # The suffixes of the group's own trajectories that are used as continuations.
        reuses_group = rule.reuse_group == "every" or (rule.reuse_group == "branching" and key in self._after_branching)
        suffixes = self.nodes[key].visits if reuses_group and key in self.nodes else []
        if rule.long_suffixes == "drop":
            suffixes = [visit for visit in suffixes if self._ends_within(*visit)]
        # How many continuations are still to be drawn.
        cached, first_number = len(entry.continuations), entry.drawn
        missing = wanted - cached - len(suffixes)
        if rule.fill == "strict" and missing > 0:
            return [], [], range(first_number, first_number + wanted)
        if missing <= 0:  # enough are at hand: only a cached state grows, up to the size of an entry
            missing = max(0, min(rule.grow, MOST_PER_STATE - cached)) if cached else 0
        return suffixes, list(entry.continuations), range(first_number, first_number + missing)

    @cached_property
    def _after_branching(self) -> set[tuple]:
        """The keys of the states directly after a branching state, one at which trajectories of the group took
        different actions (section "Rollout Cache")."""
        children: set[tuple] = set()
        for node in self.nodes.values():
            if len({self._action_of(self.group[i].steps[t]) for i, t in node.visits}) > 1:
                for index, decision in node.visits:
                    next_state = self.group[index].states[decision + 1 : decision + 2]  # one, or none after a diagnosis
                    children.update(state_identity(child, self.credit.merge, index) for child in next_state)
        return children

    def _ends_within(self, index: int, start: int) -> bool:
        """Whether the suffix of the trajectory ``index``, from its decision ``start`` on, has at most H decisions
        (``credit.horizon``), which is also the limit of drawn continuations. A forced diagnosis does not count."""
        trajectory = self.group[index]
        return len(trajectory.steps) - start - trajectory.forced <= self.credit.horizon

    async def _make_from_suffix(self, draws: Draws, index: int, start: int) -> Continuation | None:
        """Make a continuation from the suffix of the trajectory ``index`` of the group, from its decision ``start`` on.
        A suffix with more than H decisions (``credit.horizon``) is cut after H, and ``draws`` draws a forced diagnosis
        for it; under ``credit.cache.long_suffixes: keep`` it stays whole. Returns None where the request of this
        diagnosis failed."""
        trajectory, horizon = self.group[index], self.credit.horizon
        path = tuple(map(display_key, trajectory.steps[start:]))
        if self.credit.cache.long_suffixes == "keep" or self._ends_within(index, start):
            return Continuation(trajectory.correct, trajectory.effort(start), path)
        cut_state, number = trajectory.states[start + horizon], _FIRST_CUT_NUMBER + index
        end = (await draws.rollout(cut_state, (number,), horizon=0)).get(number)
        if end is None:
            return None
        return Continuation(end.correct, trajectory.effort(start, start + horizon) + end.effort, path[:horizon])

    def store(self) -> None:
        """Put the continuations of all pools into the cache, without those made from the group's own suffixes. Pools
        are stored in the order in which they were requested."""
        for key, drawn in self.pools.items():
            pool = drawn.result()
            if self.credit.cache.scope != "off" and (pool.known or pool.numbers):
                # The stop of the range is the number of the next continuation, and so the count of all drawn ones.
                self.process.cache[key] = Entry(pool.numbers.stop, pool.known + pool.fresh)

    def _estimate_value(self, candidate: Candidate) -> CandidateValue:
        """Estimate the value U_hat of a candidate, and the means from which it follows, for the report. The value is
        None where all requests for it failed."""
        pool, action, in_top_m = candidate.pool, candidate.action, candidate.in_top_m
        if pool is None:
            # A diagnosis costs nothing more, so its utility is the probability that it is right: None where unknown.
            return CandidateValue(action, in_top_m, value=candidate.correct, correct=candidate.correct or 0.0)
        ends, own_effort = pool.continuations, candidate.steps[0].effort
        if not ends:
            return CandidateValue(action, in_top_m, value=None, failed=pool.failed)
        efforts = [own_effort + end.effort for end in ends]
        value = action_value(own_effort, ends, self.process.weights, self.environment.settings.tests)
        figures: dict[str, Any] = {"value": value, "correct": fmean(end.correct for end in ends)}
        figures |= {name: fmean(getattr(effort, name) for effort in efforts) for name in ("cost_usd", "infeasible")}
        figures |= {"tests": fmean(effort.available for effort in efforts), "failed": pool.failed}
        figures |= {"suffixes": len(pool.own), "cached": len(pool.known), "fresh": len(pool.fresh)}
        return CandidateValue(action, in_top_m, **figures)

    def _reward(self, visits: Sequence[tuple[int, int]], values: Sequence[CandidateValue], p_hat: Mapping) -> None:
        """Set the process reward R_proc of the decisions ``visits``, pairs of indices (trajectory, decision) at one
        state, in ``report.process``. ``values`` are the estimated values of the actions at this state, ``p_hat`` their
        probabilities. A decision whose action has no value gets no reward, and is counted.

        R_proc(s, a) is U_hat(s, a) minus the baseline over the candidate set A_c(s), clipped to [-c, c] with c =
        ``credit.clip`` (equation "process reward"); 0 where there is no baseline. U_hat of a diagnosis that the group
        gave is its own verdict, not the mean over all diagnoses. Raises FloatingPointError, naming the case, when a
        reward is not finite: clipping would hide it.
        """
        u_hats = {v.action: v.value for v in values if v.value is not None}
        candidate_u_hats = {v.action: v.value for v in values if v.in_top_m and v.value is not None}
        for index, decision in visits:
            trajectory = self.group[index]
            action = self._action_of(trajectory.steps[decision])
            if action not in u_hats:
                self.report.counts["unvalued"] += 1
                continue
            kind, _ = action
            u_hat = float(trajectory.correct) if kind == "end" else u_hats[action]  # "end": it is a diagnosis
            reference = baseline(candidate_u_hats, p_hat, action, self.credit.baseline)
            raw = 0.0 if reference is None else u_hat - reference
            if not math.isfinite(raw):
                raise FloatingPointError(
                    f"{trajectory.case.name_in_errors}: R_proc of decision {decision} is {raw} (U_hat {u_hat}, "
                    f"baseline {reference}); the step was stopped. Are lambdas and prices of a sensible size?"
                )
            reward = max(-self.credit.clip, min(self.credit.clip, raw))
            self.report.counts["clipped"] += reward != raw
            self.report.process[index][decision] = reward

    def _probe_draws(self, key: tuple) -> Draws:
        """Get the object that draws next actions at the node ``key``. Its random numbers do not depend on the cache, so
        that runs with and without the cache select the same states. All nodes share one object, unless the cache and
        the merging of states are both off: then each node has random numbers of its own."""
        apart = (key,) if self.credit.cache.scope == "off" and self.credit.merge == "none" else ()
        return self._draws_of(self.process.policy, ("actor", self.iteration, *apart))

    def _continuation_draws(self, key: tuple) -> Draws:
        """Get the object that draws continuations for the pool ``key``. With a cache all pools share one object, so
        that continuations which reach the same state share their replies. Without a cache each pool has its own."""
        if self.process.continuation_policy is self.process.policy and self.credit.cache.scope != "off":
            return self._probe_draws(key)  # the same policy: probes are the first replies of continuations
        apart = (key,) if self.credit.cache.scope == "off" else ()
        return self._draws_of(self.process.continuation_policy, ("continuation", self.process.version, *apart))

    def _draws_of(self, policy: Policy, stream: tuple) -> Draws:
        """Get the object that draws replies of a policy with the random numbers of ``stream``: a tuple that is part of
        the seed of every reply. The first call for a stream creates the object."""
        if stream not in self.draws:
            self.draws[stream] = Draws(self.environment, policy, self.process.seed, stream, self.credit.verdicts)
        return self.draws[stream]

    def _sum_counts(self) -> None:
        """Fill in the report's counts of continuations, failed requests and tokens."""
        pools, draws = [drawn.result() for drawn in self.pools.values()], self.draws.values()
        counts = self.report.counts
        counts["fresh"] = sum(len(pool.fresh) for pool in pools)
        counts["cached"] = sum(len(pool.known) for pool in pools)
        counts["suffixes"] = sum(len(pool.own) for pool in pools)
        counts["failed"] = sum(of_stream.failed for of_stream in draws)
        # One object may have drawn probes and continuations, so the tokens of continuations are the rest of all tokens.
        counts["continuation_tokens"] = sum(of_stream.tokens for of_stream in draws) - counts["probe_tokens"]
