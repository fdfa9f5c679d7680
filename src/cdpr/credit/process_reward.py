"""The counterfactual process reward of one group of trajectories (paper, sections "Action
Uncertainty-guided State Selection" and "Counterfactual Process Reward")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..agents.policy import PolicyAgent
from ..environment import DiagnosticEnvironment, Effort, State, Step, Trajectory, continue_episode
from ..seeding import derive_seed
from ..settings.schema import Credit, Utility
from .cache import Continuation, RolloutCache
from .report import CandidateValue, CreditReport, StateCredit
from .uncertainty import ActionKey, cache_disagreed, entropy, frequencies, top_candidates
from .utility import utility


@dataclass
class Node:
    """A unique state of the group's tree: the decisions taken at it, then the probed ones."""

    state: State
    visits: list[tuple[int, int]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def build_tree(group: Sequence[Trajectory]) -> dict[tuple, Node]:
    """Merge the trajectories of one case on identical evidence. Forced decisions are no choice and get
    no node."""
    nodes: dict[tuple, Node] = {}
    for i, trajectory in enumerate(group):
        for t, state in enumerate(trajectory.states):
            if trajectory.forced and t == len(trajectory.steps) - 1:
                continue
            node = nodes.setdefault(state.key, Node(state))
            node.visits.append((i, t))
            node.steps.append(trajectory.steps[t])
    return nodes


class ProcessReward:
    """Computes R_proc for the selected states of a group.

    ``policy`` proposes counterfactual actions (the current actor); ``continuation_policy`` acts after
    them (frozen or current, ``credit.continuation.policy``).
    """

    def __init__(
        self,
        environment: DiagnosticEnvironment,
        policy: PolicyAgent,
        continuation_policy: PolicyAgent,
        credit: Credit,
        weights: Utility,
        seed: int,
    ):
        self.environment = environment
        self.policy = policy
        self.continuation_policy = continuation_policy
        self.credit = credit
        self.weights = weights
        self.seed = seed
        self.cache = RolloutCache(credit.cache.capacity)

    @property
    def persistent(self) -> bool:
        """Whether cached values outlive a batch: only those of a frozen policy do not age."""
        return self.credit.cache.scope == "run" and self.credit.continuation.policy == "frozen_init"

    async def score_group(self, group: Sequence[Trajectory], iteration: int) -> CreditReport:
        """R_proc of every selected decision of the trajectories of one case."""
        report = CreditReport([[None] * len(trajectory.steps) for trajectory in group])
        nodes = build_tree(group)
        await asyncio.gather(*(self._probe(node, iteration, report) for node in nodes.values()))
        probability = {key: frequencies(node.steps) for key, node in nodes.items()}
        uncertainty = {key: entropy(p, self.credit.entropy_base) for key, p in probability.items()}
        disagreed = {
            key: self._uses_cache and cache_disagreed([(group[i], t) for i, t in node.visits], self.credit.disagreement)
            for key, node in nodes.items()
        }
        selected = self._select(nodes, uncertainty, disagreed, len(group))
        chosen = {key for states in selected for key in states}
        suffixes = self._suffixes(group) if self._uses_cache and self.credit.cache.reuse_group else {}
        values = await asyncio.gather(
            *(
                self._evaluate(node, probability[key], suffixes, iteration, report)
                for key, node in nodes.items()
                if key in chosen
            )
        )
        evaluated = dict(zip((key for key in nodes if key in chosen), values, strict=True))
        for key, node in nodes.items():
            report.states.append(
                StateCredit(
                    key, tuple(node.visits), uncertainty[key], disagreed[key], probability[key], evaluated.get(key, ())
                )
            )
        self._reward(group, report, [set(states) for states in selected])
        if not self.persistent:
            for key in [key for key in self.cache.entries if key[0] == group[0].case.note_id]:
                del self.cache.entries[key]
        return report

    @property
    def _uses_cache(self) -> bool:
        return self.credit.cache.scope != "off"

    async def _probe(self, node: Node, iteration: int, report: CreditReport) -> None:
        """Draw next actions until there are n_s, the group's own included (section "Next-action Sampling")."""
        missing = self.credit.samples - len(node.steps)
        if missing <= 0:
            return
        seed = derive_seed(self.seed, "probe", iteration, node.state.key)
        turns = await self.policy.sample(node.state, missing, False, seed)
        node.steps += [self.environment.step(node.state, turn) for turn in turns]
        report.probes += len(turns)

    def _select(self, nodes, uncertainty, disagreed, size: int) -> list[list[tuple]]:
        """S*(tau) = S_cache + S_ent per trajectory, cache-disagreed states first within the budget
        (equation "unified selection")."""
        per_trajectory: list[list[tuple]] = [[] for _ in range(size)]
        for key, node in nodes.items():
            if self.credit.select_all or disagreed[key] or uncertainty[key] >= self.credit.threshold:
                for i, _ in node.visits:
                    per_trajectory[i].append(key)
        limit = self.credit.max_states
        if limit is None:
            return per_trajectory
        return [sorted(keys, key=lambda k: (not disagreed[k], -uncertainty[k]))[:limit] for keys in per_trajectory]

    def _suffixes(self, group: Sequence[Trajectory]) -> dict[tuple, list[Continuation]]:
        """The group's own suffixes, pooled by the state that they continue; only those short enough to
        be continuations of horizon H."""
        pool: dict[tuple, list[Continuation]] = {}
        for trajectory in group:
            for t, state in enumerate(trajectory.states):
                if len(trajectory.steps) - t - trajectory.forced <= self._horizon:
                    pool.setdefault(state.key, []).append(Continuation.of(trajectory, t))
        return pool

    @property
    def _horizon(self) -> int:
        return self.credit.horizon - (self.credit.continuation.horizon_counts == "with_candidate")

    async def _evaluate(self, node, p_hat, suffixes, iteration, report) -> tuple[CandidateValue, ...]:
        """U_hat of the candidates and of the actions that the group took here."""
        top = top_candidates(p_hat, self.credit.candidates)
        taken = {node.steps[j].evidence for j in range(len(node.visits))}
        actions = top + [a for a in p_hat if a in taken and a not in top]
        return tuple(
            await asyncio.gather(
                *(self._value(node, a, p_hat[a], a in top, suffixes, iteration, report) for a in actions)
            )
        )

    async def _value(self, node, action: ActionKey, p, in_top_m, suffixes, iteration, report) -> CandidateValue:
        """U_hat(s, a), equation "U hat": mean utility over continuations; a diagnosis needs none."""
        steps = [step for step in node.steps if step.evidence == action]
        immediate = Effort.of(steps[:1])
        if action[0] == "end":
            case = node.state.case
            right = [self.environment.judge.judge(step.action.text, case.diagnosis_results) for step in steps]
            outcomes, cached, fresh = [Continuation(c, Effort()) for c in right], 0, 0
        else:
            child = State(node.state.case, (*node.state.history, steps[0]))
            outcomes, cached, fresh = await self._continuations(child, suffixes, iteration)
        report.cached += cached
        report.fresh += fresh
        n = len(outcomes)
        mean = Effort(*(sum(getattr(o.effort, f) for o in outcomes) / n for f in Effort.__dataclass_fields__))
        effort, correct = immediate + mean, sum(o.correct for o in outcomes) / n
        value = utility(correct, effort, self.weights, self.environment.settings.tests)
        return CandidateValue(
            action, p, value, correct, effort.available, effort.cost_usd, effort.infeasible, cached, fresh, in_top_m
        )

    async def _continuations(self, child: State, suffixes, iteration) -> tuple[list[Continuation], int, int]:
        """K continuations from a child state: cached ones first, topped up with fresh ones (section
        "Short-horizon Continuation")."""
        k = self.credit.continuations
        known = (self.cache.get(child.key) if self._uses_cache else []) + suffixes.get(child.key, [])
        if self.credit.cache.fill == "strict" and len(known) < k:
            known = []
        drawn = len(self.cache.get(child.key)) if self.persistent else (iteration, 0)
        missing = max(0, k - len(known))
        seeds = [derive_seed(self.seed, "continuation", child.key, drawn, j) for j in range(missing)]
        finished = await asyncio.gather(
            *(continue_episode(self.environment, self.continuation_policy, child, s, self._horizon) for s in seeds)
        )
        fresh = [Continuation.of(trajectory, len(child.history)) for trajectory in finished]
        if self._uses_cache:
            self.cache.add(child.key, fresh)
        return known + fresh, len(known), len(fresh)

    def _reward(self, group: Sequence[Trajectory], report: CreditReport, selected: list[set]) -> None:
        """R_proc(s, a) = U_hat(s, a) - mean over A_c(s), clipped to +-c (equation "process reward")."""
        for credit in report.states:
            if not credit.candidates:
                continue
            value = {c.action: c for c in credit.candidates}
            for i, t in credit.visits:
                if credit.key not in selected[i]:
                    continue
                step = group[i].steps[t]
                raw = self._taken_value(step, value[step.evidence], group[i]) - credit.baseline
                bounded = max(-self.credit.clip, min(self.credit.clip, raw))
                report.clipped += bounded != raw
                report.process[i][t] = bounded

    @staticmethod
    def _taken_value(step: Step, candidate: CandidateValue, trajectory: Trajectory) -> float:
        """Value of the action taken: a diagnosis is judged by its own words, not by the bucket's mean."""
        return float(trajectory.correct) if step.evidence[0] == "end" else candidate.value
