"""The credit of single decisions on test cases: what CDPR's rule would have found in the workups that were evaluated.

Training credits its own rollouts on training cases. Here the workups that tables count are the group of their case, and
every decision is valued, whether the rule would have selected it or not, so that policies trained in any way are seen
through the same lens (the settings of ``credit``, not those of a variant).
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord, iterate_records
from ..credit.process_reward import GroupCredit, ProcessReward
from ..credit.report import CandidateValue, SampledAction, StateCredit
from ..credit.rollouts import Draws
from ..credit.selection import disagreed_decisions, entropy_selected, select_states
from ..credit.tree import Node, paths
from ..credit.uncertainty import ActionKey, action_of
from ..environment import (
    DiagnosticEnvironment,
    Effort,
    FinalDiagnosis,
    Policy,
    State,
    Step,
    Trajectory,
    case_seed,
    run_episode,
)
from ..environment.opening import check_judges, open_environment
from ..environment.utility import count_tests, utility
from ..evaluation.retelling import deviations, retell
from ..evaluation.row import EvaluationRow, read_rows, shown
from ..evaluation.strata import stratified
from ..files import write_bytes
from ..job import Job
from ..llm import ModelSpec
from ..llm.guard import disclosed
from ..seeding import derive_seed
from ..settings import Settings
from ..settings.credit import Credit
from .estimators import every_state

_AT_ONCE = 16  # cases: enough to fill batches


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Ending(_Line):
    """One continuation behind a U_hat, the action's own effort included: where it came from (a ``suffix`` of the group,
    the cache, ``fresh``), verdict, what the utility counts, and the actions after the candidate (None: not kept), cut
    where a diagnosis was forced."""

    source: Literal["suffix", "cached", "fresh"]
    correct: bool
    tests: int
    cost_usd: float
    infeasible: int
    utility: float
    path: tuple[ActionKey, ...] | None


class CreditedCase(_Line):
    """A line of the artifact: the evaluated workups of one case, one per decoding, and their credit.

    ``process[i][t]`` is R_proc of decision t of workup i (None where forced, or without a value), ``selected[i][t]``
    why training's rule would have selected its state (empty: it would not). ``states`` are those of
    :class:`~cdpr.credit.report.StateCredit` without token ids; ``endings[s][c]`` are the continuations behind candidate
    c of state s. It names examinations and holds replies: it stays where the cases are.
    """

    case: str
    decodings: tuple[str, ...]
    replies: tuple[tuple[str, ...], ...]
    forced: tuple[bool, ...]
    outcomes: tuple[bool, ...]
    process: tuple[tuple[float | None, ...], ...]
    selected: tuple[tuple[str, ...], ...]
    states: tuple[StateCredit, ...]
    endings: tuple[tuple[tuple[Ending, ...], ...], ...]


def read_credit(path: Path) -> Iterator[CreditedCase]:
    """The lines of an artifact. Raises pydantic's ValidationError for a line that is none."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(CreditedCase.model_validate_json, lines)


def credit_workups(settings: Settings, job: Job) -> None:
    """Stage ``credit_workups``: credit a run's workups of a few test cases of a data set.

    Raises ValueError when the file holds no test case, GovernanceError before credentialed text is sent anywhere.
    """
    cases = chosen_cases(settings, job.inputs["cases"])
    credentialed = any(case.credentialed for case in cases)
    job.tags.update(disclosed(check_judges(settings, cases[0].dataset, credentialed=credentialed)))
    own, start = (ModelSpec.of_folder(job.inputs[name], settings.policy) for name in ("policy", "init_policy"))
    opened = partial(PolicyAgent.build, settings, own)
    frozen = settings.credit.continuation.policy == "frozen_init" and own != start
    continues = PolicyAgent.build(settings, start, settings.training.temperature) if frozen else None
    environment = open_environment(settings, credentialed=credentialed)
    found = asyncio.run(Crediting(settings, environment, opened, continues).all(cases, job.inputs["evaluation"]))
    text = "".join(case.model_dump_json() + "\n" for case in found)
    write_bytes(job.out["credit"], gzip.compress(text.encode(), compresslevel=6, mtime=0))
    decisions = sum(len(steps) for case in found for steps in case.process)
    job.metrics.update(cases=len(found), decisions=decisions, left_out=len(cases) - len(found))
    print(f"{job.options['run']} on {job.options['dataset']}: {decisions} decisions of {len(found)} cases credited"
          + (f"; {len(cases) - len(found)} cases left out: worked up anew, they came out otherwise"
             if len(found) < len(cases) else ""))  # fmt: skip


def chosen_cases(settings: Settings, path: Path) -> list[CaseRecord]:
    """The test cases whose decisions are credited, spread over the diseases, in the order of the file."""
    cases = list(iterate_records(path, "test"))
    if not cases:
        raise ValueError(f"{path}: no case of split 'test'")
    plan = settings.inspector
    chosen = stratified(cases, plan.cases, lambda case: case.diagnosis_results, lambda case: case.note_id, plan.seed)
    names = {case.note_id for case in chosen}
    return [case for case in cases if case.note_id in names]


class Crediting:
    """CDPR's rule at every decision. ``opened`` gives the policy at a temperature (0: greedy); ``continues`` acts after
    candidates (None: the policy itself)."""

    def __init__(
        self, settings: Settings, environment: DiagnosticEnvironment, opened: Callable[[float], Policy],
        continues: Policy | None = None,
    ):  # fmt: skip
        self.settings, self.environment, self.opened = settings, environment, opened
        policy = opened(settings.training.temperature)
        # The workups of a table are no draws at the temperature of training: p_hat comes from n_s others alone.
        credit = every_state(settings.credit).model_copy(update={"own_actions": "apart"})
        seed = derive_seed(settings.inspector.seed, "credit")
        self.process = ProcessReward(environment, policy, continues or policy, credit, settings.utility, seed)

    async def all(self, cases: Sequence[CaseRecord], evaluation: Path) -> list[CreditedCase]:
        """The credit of those cases whose workups can be told again."""
        rows = {(row.note_id, row.decoding): row for row in read_rows(evaluation)}
        found: list[CreditedCase] = []
        waiting = iter(cases)
        with tqdm(total=len(cases), desc="credit", unit="case", mininterval=5) as bar:
            while wave := list(islice(waiting, _AT_ONCE)):
                credited = await asyncio.gather(*(self.one(case, rows) for case in wave))
                found += [case for case in credited if case is not None]
                bar.update(len(wave))
        return found

    async def one(self, case: CaseRecord, rows: Mapping[tuple[str, str], EvaluationRow]) -> CreditedCase | None:
        """The credit of a case; None where its workups cannot be told again."""
        workups = {}
        for decoding in self.settings.evaluation.decodings:
            row = rows[shown(self.settings, case, case.note_id), decoding]
            workups[decoding] = workup = await self._workup(case, row)
            if deviations(row, workup.effort()):
                return None
        group = list(workups.values())
        found = self.process.of(group, 0)
        await found.score()
        report = found.report
        return CreditedCase(
            case=case.note_id,
            decodings=tuple(workups),
            replies=tuple(tuple(step.turn.text for step in workup.steps) for workup in group),
            forced=tuple(workup.forced for workup in group),
            outcomes=tuple(workup.correct for workup in group),
            process=tuple(map(tuple, report.process)),
            selected=tuple(map(tuple, selected_by_rule(group, found, self.settings.credit))),
            states=tuple(_without_tokens(state) for state in report.states),
            endings=tuple(
                tuple(tuple(self._endings(found, key, node, value)) for value in state.candidates)
                for (key, node), state in zip(found.nodes.items(), report.states, strict=True)
            ),
        )

    async def _workup(self, case: CaseRecord, row: EvaluationRow) -> Trajectory:
        """What was evaluated. Rows of credentialed cases hold no replies: those are worked up anew, as evaluation did
        with the same seed."""
        if row.replies is not None:
            return await retell(self.environment, case, row.replies, row.forced)
        agent = self.opened(0.0 if row.decoding == "greedy" else self.settings.training.temperature)
        return await run_episode(self.environment, agent, case, case_seed(self.settings.evaluation.seed, case))

    def _endings(self, found: GroupCredit, key: tuple, node: Node, value: CandidateValue) -> Iterator[Ending]:
        """The continuations of a candidate; a diagnosis has none."""
        step = next(s for s in node.steps if action_of(s, found.credit.diagnoses) == value.action)
        if isinstance(step.action, FinalDiagnosis):
            return
        pool = found.pools.of(key, value.action, node.state.after(step))
        draws, horizon = found.pools.rollouts(key), self.process.horizon
        drawn = [k for k in pool.numbers if _followed(draws, pool.child, k, horizon) is not None]
        told: list = [("suffix", end, _suffix(found.group[i], t, horizon, found.credit))
                      for (i, t), end in zip(pool.suffixes, pool.own, strict=False)]  # fmt: skip
        told += [("cached", end, None) for end in pool.known]
        told += [("fresh", end, _followed(draws, pool.child, k, horizon))
                 for k, end in zip(drawn, pool.fresh, strict=False)]  # fmt: skip
        tests, weights = self.environment.settings.tests, self.settings.utility
        for source, end, path in told:
            effort: Effort = step.effort + end.effort
            yield Ending(source=source, correct=end.correct, tests=count_tests(effort, tests), path=path,
                         cost_usd=effort.cost_usd, infeasible=effort.infeasible,
                         utility=utility(end.correct, effort, weights, tests))  # fmt: skip


def selected_by_rule(group: Sequence[Trajectory], found: GroupCredit, credit: Credit) -> list[list[str]]:
    """Why each decision would have been selected under ``credit`` (``disagreed``, ``entropy``, ``all``, or nothing),
    though every state of ``found`` was valued."""
    entropy = {key: state.entropy or 0.0 for key, state in zip(found.nodes, found.report.states, strict=True)}
    parted = disagreed_decisions(group, credit)
    disagreed = {key for key, node in found.nodes.items() if not parted.isdisjoint(node.visits)}
    uncertain = entropy_selected(entropy, credit)
    why = [[""] * len(trajectory.steps) for trajectory in group]
    for i, keys in enumerate(paths(found.nodes, len(group))):
        for key in select_states(keys, disagreed, uncertain, entropy, credit.max_states):
            for j, t in found.nodes[key].visits:
                if i == j:
                    why[i][t] = "disagreed" if key in disagreed else "all" if credit.select_all else "entropy"
    return why


def _suffix(trajectory: Trajectory, start: int, horizon: int, credit: Credit) -> tuple[ActionKey, ...]:
    """What a workup did from a decision on, as far as a continuation goes."""
    whole = credit.cache.long_suffixes == "keep" or len(trajectory.steps) - start - trajectory.forced <= horizon
    return tuple(map(_named, trajectory.steps[start : None if whole else start + horizon]))


def _followed(draws: Draws, state: State, number: int, horizon: float) -> tuple[ActionKey, ...] | None:
    """The actions of continuation ``number`` of a state, found again among what was drawn; None where a reply
    failed."""
    environment: DiagnosticEnvironment = draws.environment
    forced = horizon <= 0 or environment.must_diagnose(state, draws.policy)
    step = draws.known.get((state.words, forced), {}).get(number)
    if not isinstance(step, Step):
        return None
    if forced or isinstance(step.action, FinalDiagnosis):
        return (_named(environment.conclude(state, step)[0]),)
    rest = _followed(draws, state.after(step), number, horizon - 1)
    return None if rest is None else (_named(step), *rest)


def _named(step: Step) -> ActionKey:
    """An action as it is shown: a diagnosis by its own words."""
    return ("end", step.action.text) if isinstance(step.action, FinalDiagnosis) else step.evidence


def _without_tokens(state: StateCredit) -> StateCredit:
    actions = [SampledAction(one.action, one.p, ()) for one in state.actions]
    return StateCredit(state.evidence, state.visits, state.entropy, state.reason, actions, state.candidates)
