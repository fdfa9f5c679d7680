"""The credit of single decisions on test cases: CDPR's process reward, applied to the evaluated episodes.

Training credits its own rollouts on training cases. Here the evaluated episodes of a case are its group, and their
decisions are credited at every state, also where CDPR would not select it; only a forced diagnosis, and an action whose
continuations all failed, gets no credit. The settings ``credit`` are the same for all policies, whatever their variants
say.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict
from tqdm import tqdm

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord
from ..credit.continuations import Continuation
from ..credit.process_reward import Candidate, GroupCredit, ProcessReward
from ..credit.scores import StateCredit
from ..credit.states import ActionKey, selection_reason
from ..environment import DiagnosticEnvironment, Policy, Trajectory, case_seed, run_episode
from ..environment.opening import check_judges, open_environment
from ..environment.utility import count_tests, utility
from ..files import read_json_lines, write_gz
from ..job import Job
from ..llm import ModelSpec
from ..llm.guard import disclosure_tags
from ..seeding import derive_seed, stratified_sample
from ..settings import Settings
from ..settings.credit import Credit
from .credit_quality import credit_every_state
from .evaluate_agent import read_cases
from .row import EvaluationRow, deviations, public_text, read_rows, replay

SEED = 0  # of the choice of cases, of probes and continuations
_CASES_AT_ONCE = 16  # enough to fill the sampler's batches

Source = Literal["suffix", "fresh"]


@dataclass(frozen=True)
class Ending:
    """One of the continuations from which the value U_hat of a candidate action was estimated.

    ``source`` says whether it is a ``suffix`` of an evaluated episode or ``fresh``, newly drawn. ``correct`` says
    whether its diagnosis is right; under ``credit.verdicts: scored`` it is the probability of that. ``tests``,
    ``cost_usd`` and ``infeasible`` (N_na) are the amounts that its ``utility`` charges, the candidate included.
    ``path`` lists the actions after the candidate. At its end the diagnosis is missing where an evaluated episode was
    cut at the horizon, and where its probability was computed instead.
    """

    source: Source
    correct: bool | float
    tests: int
    cost_usd: float
    infeasible: int
    utility: float
    path: tuple[ActionKey, ...]


class CreditedCase(BaseModel):
    """The evaluated episodes of one case, one per decoding, and the credit of their decisions: a line of the file that
    :func:`credit_workups` writes.

    There is one entry per episode in ``decodings`` (greedy or sampled) and in ``replies`` (their texts).

    ``process[i][t]`` is R_proc of decision t of episode i (None where forced, or without a value). ``selected[i][t]``
    is the reason why training would select its state for credit (empty: it would not). ``states`` are the states of the
    episodes, without token ids. ``endings[s][c]`` are the continuations of candidate c of state s. A line names
    examinations and holds replies, so it stays where the cases are.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    case: str
    decodings: tuple[str, ...]
    replies: tuple[tuple[str, ...], ...]
    process: tuple[tuple[float | None, ...], ...]
    selected: tuple[tuple[str, ...], ...]
    states: tuple[StateCredit, ...]
    endings: tuple[tuple[tuple[Ending, ...], ...], ...]


def read_credit(path: Path) -> Iterator[CreditedCase]:
    """Yield the credited cases in a gzip file, one per line. Raises TableError for a line that is no credited case."""
    return read_json_lines(path, CreditedCase)


def credit_workups(settings: Settings, job: Job) -> None:
    """Stage ``credit_workups``: credit the decisions of a run's evaluated episodes, on a few test cases of a data set.

    Raises ValueError when the file of cases holds no test case, and GovernanceError, before any text is sent, where a
    data use agreement forbids sending it.
    """
    cases = chosen_cases(settings, job.inputs["cases"])
    credentialed = any(case.credentialed for case in cases)
    job.tags.update(disclosure_tags(check_judges(settings, cases[0].dataset, credentialed=credentialed)))
    evaluated, initial = (ModelSpec.of_folder(job.inputs[name], settings.policy) for name in ("policy", "init_policy"))
    # The initial policy continues where the settings say so and it is not the evaluated policy itself.
    initial_continues = settings.credit.continuation.policy == "frozen_init" and evaluated != initial
    continues = PolicyAgent.build(settings, initial, settings.training.temperature) if initial_continues else None
    environment = open_environment(settings, credentialed=credentialed)
    crediting = Crediting(settings, environment, partial(PolicyAgent.build, settings, evaluated), continues)
    credited = asyncio.run(crediting.credit_cases(cases, job.inputs["evaluation"]))
    text = "".join(case.model_dump_json() + "\n" for case in credited)
    write_gz(job.out["credit"], [text.encode()])
    decisions, left_out = sum(len(steps) for case in credited for steps in case.process), len(cases) - len(credited)
    job.metrics.update(cases=len(credited), decisions=decisions, left_out=left_out)
    print(f"{job.options['run']} on {job.options['dataset']}: {decisions} decisions of {len(credited)} cases credited")
    if left_out:
        print(f"{left_out} cases left out: their episodes, run again, ended otherwise")


def chosen_cases(settings: Settings, path: Path) -> list[CaseRecord]:
    """Choose the test cases whose decisions are credited: ``inspector.cases`` cases of the file ``path``, spread over
    the diseases. Returns them in the order of the file."""
    cases = read_cases(path)
    disease_of, name_of = attrgetter("diagnosis_results"), attrgetter("note_id")
    chosen = stratified_sample(cases, settings.inspector.cases, disease_of, name_of, SEED)
    names = {case.note_id for case in chosen}
    return [case for case in cases if case.note_id in names]


@dataclass
class Crediting:
    """Credits every decision of evaluated episodes. ``open_policy(temperature)`` opens the evaluated policy; it decodes
    greedily at temperature 0. ``continues`` is the policy that acts after candidate actions (None: the evaluated
    policy)."""

    settings: Settings
    environment: DiagnosticEnvironment
    open_policy: Callable[[float], Policy]
    continues: Policy | None = None

    @cached_property
    def process(self) -> ProcessReward:
        """CDPR's process reward, with settings under which every state gets a value."""
        settings, policy = self.settings, self.open_policy(self.settings.training.temperature)
        # The evaluated episodes were not drawn at the temperature of training, so the probabilities of actions, p_hat,
        # are estimated from sampled next actions alone, without those of the episodes ("apart").
        credit = credit_every_state(settings.credit).model_copy(update={"own_actions": "apart"})
        continues, seed = self.continues or policy, derive_seed(SEED, "credit")
        return ProcessReward(self.environment, policy, continues, credit, settings.utility, seed)

    async def credit_cases(self, cases: Sequence[CaseRecord], evaluation: Path) -> list[CreditedCase]:
        """Credit the episodes of cases, whose rows are in the file ``evaluation``. Returns the credited cases. Cases
        whose episodes cannot be rebuilt are left out."""
        rows = {(row.note_id, str(row.decoding)): row for row in read_rows(evaluation)}
        credited: list[CreditedCase | None] = []
        for start in tqdm(range(0, len(cases), _CASES_AT_ONCE), desc="credit", unit="batch", mininterval=5):
            batch = cases[start : start + _CASES_AT_ONCE]
            credited += await asyncio.gather(*(self.credit_case(case, rows) for case in batch))
        return [case for case in credited if case is not None]

    async def credit_case(self, case: CaseRecord, rows: Mapping[tuple[str, str], EvaluationRow]) -> CreditedCase | None:
        """Credit the evaluated episodes of a case. ``rows`` has the rows of the evaluation by case identifier and
        decoding. Returns None where the effort of a rebuilt episode differs from that of the evaluated one."""
        # Rebuild the episodes, one for each decoding: they are the group.
        episodes = {}
        for decoding in self.settings.evaluation.decodings:
            row = rows[public_text(self.settings, case, case.note_id), decoding]
            episodes[decoding] = episode = await self._rebuild_episode(case, row)
            if deviations(row, episode.effort()):
                return None
        # Credit the group, and list the continuations of each state's candidates.
        group = list(episodes.values())
        credit = self.process.open_group(group, iteration=0)
        await credit.score()
        states, candidates = credit.report.states, [credit.candidates.get(key, ()) for key in credit.nodes]
        return CreditedCase(
            case=case.note_id,
            decodings=tuple(episodes),
            replies=tuple(tuple(step.turn.text for step in episode.steps) for episode in group),
            process=tuple(map(tuple, credit.report.process)),
            selected=tuple(map(tuple, reasons_of_selection(credit, self.settings.credit))),
            states=tuple(replace(s, actions=[replace(a, tokens=()) for a in s.actions]) for s in states),
            endings=tuple(tuple(tuple(self.endings(c)) for c in of_state) for of_state in candidates),
        )

    async def _rebuild_episode(self, case: CaseRecord, row: EvaluationRow) -> Trajectory:
        """Rebuild the evaluated episode of a row from its replies. Rows of credentialed cases have no replies: the
        episode is then run again, with the seed of the evaluation."""
        if row.replies is not None:
            return await replay(self.environment, case, row.replies, row.forced)
        agent = self.open_policy(0.0 if row.decoding == "greedy" else self.settings.training.temperature)
        return await run_episode(self.environment, agent, case, case_seed(self.settings.evaluation.seed, case))

    def endings(self, candidate: Candidate) -> Iterator[Ending]:
        """Yield the continuations from which the value of a candidate action was estimated. A diagnosis has none."""
        if (pool := candidate.pool) is None:
            return
        tests, weights = self.environment.settings.tests, self.settings.utility
        # Nothing is cached between batches here, so the pool's third source, ``known``, is empty.
        sources: dict[Source, list[Continuation]] = {"suffix": pool.own, "fresh": pool.fresh}
        for source, continuations in sources.items():
            for end in continuations:
                effort = candidate.steps[0].effort + end.effort
                amounts = count_tests(effort, tests), effort.cost_usd, effort.infeasible
                yield Ending(source, end.correct, *amounts, utility(end.correct, effort, weights, tests), end.path)


def reasons_of_selection(credit: GroupCredit, rule: Credit) -> list[list[str]]:
    """Say for each decision why training would select its state for credit: ``disagreed``, ``entropy`` or ``all``; the
    text is empty where it would not. Returns lists [trajectory][decision]. ``rule`` is the section ``credit`` of the
    settings of training; ``credit`` has the states of the group, which it has scored under other settings."""
    entropy = {key: state.entropy or 0.0 for key, state in zip(credit.nodes, credit.report.states, strict=True)}
    disagreed = credit.disagreed_states(rule)
    selected = credit.select_states(disagreed, entropy, rule)  # the keys of the selected states of each trajectory
    reasons = [[""] * len(trajectory.steps) for trajectory in credit.group]
    for key, node in credit.nodes.items():
        for trajectory, decision in node.visits:
            if key in selected[trajectory]:
                reasons[trajectory][decision] = selection_reason(key, disagreed, rule)
    return reasons
