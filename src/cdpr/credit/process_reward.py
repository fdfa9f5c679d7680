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
    """U_hat(s, a) = 1/K sum_k U(tau_k), equation "U hat": the mean utility of the action's own effort together with
    each of its continuations."""
    return fmean(utility(end.correct, immediate + end.effort, weights, tests) for end in ends)


def baseline(
    values: Mapping[ActionKey, float], p_hat: Mapping[ActionKey, float], taken: ActionKey, rule: str = "uniform"
) -> float | None:
    """What R_proc subtracts, from the values of A_c(s): their mean, their mean weighted by p_hat, or the mean of
    those other than ``taken`` (``credit.baseline``). None when nothing is left to compare with."""
    actions = [a for a in values if rule != "leave_one_out" or a != taken]
    if not actions:
        return None
    if rule != "policy_weighted":
        return fmean(values[a] for a in actions)
    return math.fsum(p_hat[a] * values[a] for a in actions) / math.fsum(p_hat[a] for a in actions)


class ProcessReward:
    """The counterfactual process reward R_proc of the decisions at the selected states of groups, in units of utility.

    ``policy``, the policy in training, proposes counterfactual actions; ``continuation_policy`` acts after them, and is
    the same object where the current policy continues. ``credit`` and ``weights`` are the sections ``credit`` and
    ``utility``; ``seed`` fixes all draws. Source: paper, section "Counterfactual Process Reward".
    """

    def __init__(
        self,
        environment: DiagnosticEnvironment,
        policy: Policy,
        continuation_policy: Policy,
        credit: Credit,
        weights: Utility,
        seed: int,
    ):
        self.environment, self.policy, self.continuation_policy = environment, policy, continuation_policy
        self.credit, self.weights, self.seed = credit, weights, seed
        # The state that was stored longest ago goes first; reading changes nothing and may happen in any order.
        self.cache: FIFOCache[tuple, Entry] = FIFOCache(credit.cache.capacity)
        self.version: int | None = None  # of the continuation policy behind the cache

    def of(self, group: Sequence[Trajectory], iteration: int) -> "GroupCredit":
        """The credit of one group, to be scored and then, in the order of the batch, stored. A cache that must not
        outlive its iteration is cleared first."""
        frozen = self.continuation_policy is not self.policy and self.credit.cache.scope == "run"
        version = 0 if frozen else iteration
        if version != self.version:
            self.cache.clear()
            self.version = version
        return GroupCredit(self, group, iteration)

    async def score(self, groups: Sequence[Sequence[Trajectory]], iteration: int) -> list[CreditReport]:
        """Reports of the groups of one batch: ``report.process[i][t]`` is R_proc of decision t of trajectory i, None
        where its state was not selected. Raises FloatingPointError for a reward that is not finite."""
        credits = [self.of(group, iteration) for group in groups]
        await asyncio.gather(*(credit.score() for credit in credits))
        for credit in credits:  # only now, so that no group depends on which other was ready first
            credit.pools.store()
        return [credit.report for credit in credits]

    def state_dict(self) -> dict[str, Any]:
        """The cache, oldest entry first, and its version, as lists and numbers."""
        entries = [[key, entry.drawn, [[end.correct, *astuple(end.effort)] for end in entry.continuations]]
                   for key, entry in self.cache.items()]  # fmt: skip
        return {"version": self.version, "cache": entries}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of :meth:`state_dict`, also after JSON made lists of its tuples."""
        self.version = state["version"]
        self.cache.clear()
        for key, drawn, ends in state["cache"]:
            continuations = [Continuation(correct, Effort(*effort)) for correct, *effort in ends]
            self.cache[_as_tuple(key)] = Entry(drawn, continuations)


def _as_tuple(key: Any) -> Any:
    return tuple(map(_as_tuple, key)) if isinstance(key, list | tuple) else key


@dataclass
class _Evaluated:
    """An action under evaluation: the steps sampled with it, and the pool of its child, or for a diagnosis its mean
    ``verdict`` (None: the request failed)."""

    action: ActionKey
    in_top_m: bool
    steps: list[Step]
    pool: Pool | None
    verdict: float | None = None


class GroupCredit:
    """The credit of the trajectories of one case."""

    def __init__(self, process: ProcessReward, group: Sequence[Trajectory], iteration: int):
        self.process, self.group, self.credit, self.iteration = process, group, process.credit, iteration
        self.environment = process.environment
        self.report = CreditReport([[None] * len(trajectory.steps) for trajectory in group])
        self.nodes = states.build_tree(group, self.credit.merge)
        self.draws: dict[tuple, Draws] = {}
        self.pools = Pools(group, self.nodes, self.credit, process.cache, self._rollouts)

    async def score(self) -> None:
        """Probe, select, evaluate, reward."""
        credit, nodes = self.credit, self.nodes
        disagreed = self.disagreed(credit)
        keys_to_probe = states.to_probe(states.paths(nodes, len(self.group)), disagreed, credit.max_states)
        await asyncio.gather(*(self._probe(key, nodes[key]) for key in nodes if key in keys_to_probe))
        self.report.probe_tokens = sum(draws.tokens for draws in self.draws.values())
        p_hat = {key: states.frequencies(map(self._action, self._samples(node))) for key, node in nodes.items()}
        uncertainty = {key: states.entropy(p_hat[key]) for key in nodes if key in keys_to_probe}
        selected = self.selected(disagreed, uncertainty, credit)
        chosen = {key for keys in selected for key in keys}
        evaluated = {key: self._evaluated(key, p_hat[key]) for key in nodes if key in chosen}
        diagnoses = [(key, one) for key, ones in evaluated.items() for one in ones if one.pool is None]
        await asyncio.gather(self.pools.fill(), *(self._judge(key, one) for key, one in diagnoses))
        for key, node in nodes.items():
            values = tuple(map(self._value, evaluated.get(key, ())))
            tokens = {self._action(step): step.turn.token_ids for step in reversed(node.steps)}
            actions = [SampledAction(action, p, tokens[action]) for action, p in p_hat[key].items()]
            reason = states.selection_reason(key, disagreed, credit) if key in chosen else ""
            evidence, visits = node.state.key[1], tuple(node.visits)
            self.report.states.append(StateCredit(evidence, visits, uncertainty.get(key), reason, actions, values))
            self._reward([(i, t) for i, t in node.visits if key in selected[i]], values, p_hat[key])
        self._count()

    def disagreed(self, rule: Credit) -> set[tuple]:
        """S_cache: the cache-disagreed states under a rule."""
        visits = states.disagreed_decisions(self.group, rule)
        return {key for key, node in self.nodes.items() if not visits.isdisjoint(node.visits)}

    def selected(self, disagreed: set[tuple], uncertainty: Mapping[tuple, float], rule: Credit) -> list[list[tuple]]:
        """S*(tau) of each trajectory under a rule."""
        uncertain, limit = states.entropy_selected(uncertainty, rule), rule.max_states
        node_paths = states.paths(self.nodes, len(self.group))
        return [states.select_states(keys, disagreed, uncertain, uncertainty, limit) for keys in node_paths]

    def _action(self, step: Step) -> ActionKey:
        return action_of(step, self.credit.diagnoses)

    def _samples(self, node: Node) -> list[Step]:
        """The steps that p_hat is estimated from."""
        return node.steps if self.credit.own_actions == "counted" else node.steps[len(node.visits) :]

    async def _probe(self, key: tuple, node: Node) -> None:
        """Draw next actions until there are n_s, the group's own included (section "Next-action Sampling")."""
        own = len(node.steps) if self.credit.own_actions == "counted" else 0
        if self.credit.samples > own:
            steps = await self._actor(key).steps(node.state, range(self.credit.samples - own))
            node.steps += steps.values()
            self.report.probes += len(steps)

    def _evaluated(self, key: tuple, p_hat: dict[ActionKey, float]) -> list[_Evaluated]:
        """A_c(s), then the actions outside it that the group took."""
        node = self.nodes[key]
        top = states.top_candidates(p_hat, self.credit.candidates)
        own = dict.fromkeys(map(self._action, node.steps[: len(node.visits)]))
        evaluated = []
        for action in [*top, *(a for a in own if a not in top)]:
            source = self._samples(node) if action in p_hat else node.steps
            steps = [step for step in source if self._action(step) == action]
            ends = isinstance(steps[0].action, FinalDiagnosis)
            pool = None if ends else self.pools.of(key, action, node.state.after(steps[0]))
            evaluated.append(_Evaluated(action, action in top, steps, pool))
        return evaluated

    async def _judge(self, key: tuple, one: _Evaluated) -> None:
        """U_hat of a diagnosis, which needs no continuation: the mean verdict of those drawn, or its probability."""
        if self.credit.verdicts == "scored" and self.credit.diagnoses == "one_action":
            one.verdict = await self._actor(key).belief(self.nodes[key].state)
            return
        truth = self.group[0].case.diagnosis_results
        diagnoses = [step.action.text for step in one.steps if isinstance(step.action, FinalDiagnosis)]
        one.verdict = fmean(self.environment.is_correct(text, truth) for text in diagnoses)

    def _value(self, one: _Evaluated) -> CandidateValue:
        """U_hat of one action, with its terms."""
        pool, immediate = one.pool, one.steps[0].effort
        if pool is None:
            return CandidateValue(one.action, one.in_top_m, one.verdict, one.verdict or 0.0)
        ends = pool.continuations
        if not ends:
            return CandidateValue(one.action, one.in_top_m, None, failed=pool.failed)
        efforts = [immediate + end.effort for end in ends]
        value = action_value(immediate, ends, self.process.weights, self.environment.settings.tests)
        correct, tests = fmean(end.correct for end in ends), fmean(effort.available for effort in efforts)
        usd, infeasible = fmean(effort.cost_usd for effort in efforts), fmean(effort.infeasible for effort in efforts)
        sources = len(pool.own), len(pool.known), len(pool.fresh), pool.failed
        return CandidateValue(one.action, one.in_top_m, value, correct, tests, usd, infeasible, *sources)

    def _reward(self, visits, values: Sequence[CandidateValue], p_hat: dict[ActionKey, float]) -> None:
        """R_proc(s, a) = U_hat(s, a) - baseline over A_c(s), clipped to [-c, c], equation "process reward", for the
        decisions ``visits``. A diagnosis of the group is judged by its own words, not by the mean over all diagnoses.
        Raises FloatingPointError naming the case when a reward is not finite: clipping would hide it."""
        value = {v.action: v.value for v in values if v.value is not None}
        candidates = {v.action: v.value for v in values if v.in_top_m and v.value is not None}
        for i, t in visits:
            trajectory = self.group[i]
            action = self._action(trajectory.steps[t])
            if action not in value:
                self.report.unvalued += 1
                continue
            own = float(trajectory.correct) if action[0] == "end" else value[action]
            reference = baseline(candidates, p_hat, action, self.credit.baseline)
            raw = 0.0 if reference is None else own - reference
            if not math.isfinite(raw):
                raise FloatingPointError(
                    f"{trajectory.case.called}: R_proc of decision {t} is {raw} (U_hat {own}, baseline "
                    f"{reference}); the step was stopped. Are lambdas and prices of a sensible size?"
                )
            reward = max(-self.credit.clip, min(self.credit.clip, raw))
            self.report.clipped += reward != raw
            self.report.process[i][t] = reward

    def _actor(self, key: tuple) -> Draws:
        """The probes: the same with and without cache, so that both select the same states; states that are not
        merged either have probes of their own."""
        own = (key,) if self.credit.cache.scope == "off" and self.credit.merge == "none" else ()
        return self._stream(("actor", self.iteration, *own), self.process.policy)

    def _rollouts(self, key: tuple) -> Draws:
        if self.process.continuation_policy is self.process.policy and self.credit.cache.scope != "off":
            return self._actor(key)
        own = (key,) if self.credit.cache.scope == "off" else ()
        return self._stream(("continuation", self.process.version, *own), self.process.continuation_policy)

    def _stream(self, stream: tuple, policy: Policy) -> Draws:
        """The draws of a policy under a name: one set for the whole group, or one for each use."""
        if stream not in self.draws:
            self.draws[stream] = Draws(self.environment, policy, self.process.seed, stream, self.credit.verdicts)
        return self.draws[stream]

    def _count(self) -> None:
        """Sum up the continuations and tokens of the group for its report."""
        pools = self.pools.pools.values()
        self.report.fresh = sum(len(pool.fresh) for pool in pools)
        self.report.cached = sum(len(pool.known) for pool in pools)
        self.report.suffixes = sum(len(pool.own) for pool in pools)
        self.report.failed = sum(draws.failed for draws in self.draws.values())
        # Where the current policy continues, probes and continuations come from the same draws.
        self.report.continuation_tokens = sum(d.tokens for d in self.draws.values()) - self.report.probe_tokens
