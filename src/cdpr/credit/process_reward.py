"""The counterfactual process reward of groups of trajectories (paper, sections "Action Uncertainty-guided State
Selection" and "Counterfactual Process Reward")."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import Any

from cachetools import FIFOCache

from ..environment import DiagnosticEnvironment, Effort, FinalDiagnosis, Policy, Step, Trajectory
from ..environment.utility import utility
from ..settings.schema import Credit, Tests, Utility
from . import states
from .continuations import Continuation, Draws, Entry, Pool, Pools
from .scores import CandidateValue, CreditReport, SampledAction, StateCredit
from .states import ActionKey, Node, action_of


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
        awaits its :meth:`GroupCredit.score`, and afterwards calls ``pools.store()`` of all groups in the order of the
        batch.

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
            credit.pools.store()
        return [credit.report for credit in credits]

    def state_dict(self) -> dict[str, Any]:
        """Return the rollout cache, oldest state first, and its ``version``, as JSON values. A cached state becomes
        [key, number of continuations requested, continuations], a continuation [correct, effort...]; its steps are not
        kept."""
        entries: list[Any] = []
        for key, entry in self.cache.items():
            continuations = [[end.correct, *astuple(end.effort)] for end in entry.continuations]
            entries.append([key, entry.drawn, continuations])
        return {"version": self.version, "cache": entries}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the cache from what :meth:`state_dict` returned, also where JSON has turned its tuples into lists."""
        self.version = state["version"]
        self.cache.clear()
        for key, drawn, ends in state["cache"]:
            continuations = [Continuation(correct, Effort(*effort)) for correct, *effort in ends]
            self.cache[_nested_tuple(key)] = Entry(drawn, continuations)


def _nested_tuple(key: Any) -> Any:
    """Return the key with every list in it, at any depth, turned into a tuple."""
    return tuple(map(_nested_tuple, key)) if isinstance(key, list | tuple) else key


@dataclass
class Candidate:
    """An action at a state whose value is estimated. ``in_top_m`` says that it is in the candidate set A_c(s); other
    actions are here because the group took them. ``steps`` are the sampled steps that take the action.

    ``pool`` has the continuations of the next state. A diagnosis has no next state: its pool is None, and ``correct``
    is the probability that it is right (None where the request of this probability failed).
    """

    action: ActionKey
    in_top_m: bool
    steps: list[Step]
    pool: Pool | None
    correct: float | None = None


class GroupCredit:
    """The process rewards of one group: the trajectories of one case. :meth:`score` computes ``report``."""

    def __init__(self, process: ProcessReward, group: Sequence[Trajectory], iteration: int):
        """Prepare an empty report, the state tree of the group and its pools of continuations. ``draws`` will hold the
        objects that draw replies, by their stream of random numbers, ``candidates`` the actions whose values are
        estimated, by the key of their state in ``nodes``."""
        self.process, self.group, self.credit, self.iteration = process, group, process.credit, iteration
        self.environment = process.environment
        self.report = CreditReport([[None] * len(trajectory.steps) for trajectory in group])
        self.nodes = states.build_tree(group, self.credit.merge)
        self.draws: dict[tuple, Draws] = {}
        self.candidates: dict[tuple, list[Candidate]] = {}
        self.pools = Pools(group, self.nodes, self.credit, process.cache, self._continuation_draws)

    async def score(self) -> None:
        """Compute ``report`` in five stages: sample next actions at the states; select states by their uncertainty and
        by disagreement; draw continuations of the candidate actions; record each state with the values of its actions;
        and reward the decisions at the selected states."""
        credit, nodes = self.credit, self.nodes
        # Sample next actions ("probes") at every state that could be selected.
        disagreed = self.disagreed_states(credit)
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
        self.candidates = {key: self._list_candidates(key, p_hat[key]) for key in nodes if key in all_selected}
        judgements = [self._judge(key, c) for key, row in self.candidates.items() for c in row if c.pool is None]
        await asyncio.gather(self.pools.fill(), *judgements)
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

    def disagreed_states(self, rule: Credit) -> set[tuple]:
        """Return the keys of the states at which trajectories of the group disagree: they take different actions there,
        and then differ in outcome or effort (:func:`~.states.disagreed_decisions`). The paper calls this set S_cache.
        ``rule`` is the section ``credit`` of the settings."""
        visits = states.disagreed_decisions(self.group, rule)
        return {key for key, node in self.nodes.items() if not visits.isdisjoint(node.visits)}

    def select_states(
        self, disagreed: set[tuple], uncertainty: Mapping[tuple, float], rule: Credit
    ) -> list[list[tuple]]:
        """Select the states whose decisions are rewarded: returns for each trajectory of the group the keys of its
        selected states (S*(tau) in the paper), at most ``credit.max_states``.

        Two kinds of states are selected: those at which trajectories disagree, and those at which the policy is
        uncertain what to do next. ``disagreed`` has the keys of the first kind (:meth:`disagreed_states`).
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

    def _list_candidates(self, key: tuple, p_hat: dict[ActionKey, float]) -> list[Candidate]:
        """List the actions at the node ``key`` whose values are estimated: the candidate set A_c(s), then the other
        actions that the group took there. ``p_hat`` is the estimated probability of each action. Opens the pools of
        their next states."""
        node = self.nodes[key]
        top = states.top_candidates(p_hat, self.credit.candidates)
        taken = map(self._action_of, node.steps[: len(node.visits)])  # by the group's own trajectories
        candidates = []
        for action in dict.fromkeys([*top, *taken]):  # each once
            # Under ``own_actions: apart`` an action that the group took may be missing among the samples of p_hat.
            source = self._samples_of(node) if action in p_hat else node.steps
            steps = [step for step in source if self._action_of(step) == action]
            is_diagnosis = isinstance(steps[0].action, FinalDiagnosis)
            pool = None if is_diagnosis else self.pools.pool_of(key, action, node.state.after(steps[0]))
            candidates.append(Candidate(action, action in top, steps, pool))
        return candidates

    async def _judge(self, key: tuple, diagnosis: Candidate) -> None:
        """Set ``correct`` of the candidate ``diagnosis`` at the node ``key``: the probability that it is right. It is
        the share of its samples that are right. Where ``credit.verdicts`` is ``scored`` and all diagnoses are one
        action, it is the policy's belief in the true disease; None where that could not be read."""
        if self.credit.verdicts == "scored" and self.credit.diagnoses == "one_action":
            diagnosis.correct = await self._probe_draws(key).belief(self.nodes[key].state)
            return
        truth = self.group[0].case.diagnosis_results
        texts = [step.action.text for step in diagnosis.steps if isinstance(step.action, FinalDiagnosis)]
        diagnosis.correct = fmean(self.environment.is_correct(text, truth) for text in texts)

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
        pools, draws, counts = self.pools.pools.values(), self.draws.values(), self.report.counts
        counts["fresh"] = sum(len(pool.fresh) for pool in pools)
        counts["cached"] = sum(len(pool.known) for pool in pools)
        counts["suffixes"] = sum(len(pool.own) for pool in pools)
        counts["failed"] = sum(of_stream.failed for of_stream in draws)
        # One object may have drawn probes and continuations, so the tokens of continuations are the rest of all tokens.
        counts["continuation_tokens"] = sum(of_stream.tokens for of_stream in draws) - counts["probe_tokens"]
