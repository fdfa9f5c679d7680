"""Sample decision states of one policy for the study, stratified by turn."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from ..agents.build import agent_entry, build_agent, model_spec
from ..cases import iterate_records
from ..environment import (
    Agent,
    DiagnosticEnvironment,
    FinalDiagnosis,
    RequestTest,
    State,
    Trajectory,
    parse_action,
    render_action,
    run_episodes,
)
from ..environment.opening import check_judges, open_environment
from ..evaluation.row import public_text
from ..job import Job
from ..llm.guard import Disclosure, disclosure_tags
from ..llm.types import SYSTEM
from ..seeding import derive_seed
from ..settings import Settings
from ..settings.datasets import BENCHMARKS
from .records import Finding, StudyError, StudyState, state_digest, write_lines

# Episodes for each state of the sample: enough that every turn can be filled from different cases.
_CASES_PER_STATE = 2


def sample_states(settings: Settings, job: Job) -> None:
    """Stage ``sample_states``: run greedy episodes of the source on test cases, as its evaluation does, and keep a
    sample of its decisions. Raises StudyError where a benchmark gives none."""
    plan, study_states, disclosures = settings.study, [], []
    for dataset in BENCHMARKS:
        cases = list(iterate_records(job.inputs[dataset], "test"))
        order = np.random.default_rng(derive_seed(plan.seed, "cases")).permutation(len(cases))
        cases = [cases[i] for i in order[: plan.states * _CASES_PER_STATE]]
        environment, agent, remote = open_actor(settings, job, dataset, any(case.credentialed for case in cases))
        disclosures += remote
        workups = asyncio.run(run_episodes(environment, agent, cases, settings.evaluation.seed))
        states = sampled(workups, plan.states, derive_seed(plan.seed, dataset))
        if not states:
            raise StudyError(f"{job.inputs[dataset]}: {job.options['run']} decides nothing on these cases; name "
                             "another study.source")  # fmt: skip
        study_states += [study_state(settings, state, job.options["run"]) for state in states]
        strata = Counter(len(state.history) for state in states)
        print(f"{dataset}: {len(states)} states of {len({s.case.note_id for s in states})} cases; by turn: "
              + ", ".join(f"{turn}: {strata[turn]}" for turn in sorted(strata)))  # fmt: skip
    job.metrics["states"] = len(study_states)
    job.tags.update(disclosure_tags(disclosures))
    write_lines(job.out["states"], study_states)


def open_actor(
    settings: Settings, job: Job, dataset: str, credentialed: bool
) -> tuple[DiagnosticEnvironment, Agent, list[Disclosure | None]]:
    """Open the environment and the greedy agent of the job's run; list where text of credentialed cases will be
    sent."""
    run, policy = job.options["run"], job.inputs.get("policy")
    SYSTEM.set(run)
    spec = model_spec(settings, agent_entry(settings, run), policy, credentialed=credentialed)
    disclosures = [spec.check(dataset) if spec else None, *check_judges(settings, dataset, credentialed=credentialed)]
    environment = open_environment(settings, credentialed=credentialed)
    return environment, build_agent(settings, run, policy, 0.0, dataset, credentialed=credentialed), disclosures


def sampled(workups: Sequence[Trajectory], count: int, seed: int) -> list[State]:
    """Sample states at which the policy had a choice, in the order of cases and turns: each turn as often as among all
    of them (largest remainders, at least once), from as many cases as possible."""
    rng = np.random.default_rng(seed)
    by_turn: dict[int, list[State]] = defaultdict(list)
    for workup in workups:
        for turn, state in enumerate(workup.states):
            if not (workup.forced and turn == len(workup.steps) - 1):
                by_turn[turn].append(state)
    order = {workup.case.note_id: n for n, workup in enumerate(workups)}
    used: Counter[str] = Counter()
    chosen: list[State] = []
    shares = allotted({turn: len(states) for turn, states in by_turn.items()}, count)
    for turn in sorted(by_turn, key=lambda turn: (len(by_turn[turn]), turn)):  # late turns are rare: they choose first
        states = [by_turn[turn][i] for i in rng.permutation(len(by_turn[turn]))]
        states.sort(key=lambda state: used[state.case.note_id])
        chosen += states[: shares[turn]]
        used.update(state.case.note_id for state in states[: shares[turn]])
    return sorted(chosen, key=lambda state: (order[state.case.note_id], len(state.history)))


def allotted(sizes: Mapping[int, int], total: int) -> dict[int, int]:
    """Allot a total to strata in proportion, by largest remainders; no stratum is empty where there is room."""
    total = min(total, sum(sizes.values()))
    exact = {name: total * size / max(1, sum(sizes.values())) for name, size in sizes.items()}
    minimum = 1 if total >= len(sizes) else 0
    shares = {name: min(sizes[name], max(minimum, int(share))) for name, share in exact.items()}
    while sum(shares.values()) > total:
        room = [name for name in shares if shares[name] > minimum]
        shares[max(room, key=lambda name: (shares[name] - exact[name], shares[name], name))] -= 1
    while sum(shares.values()) < total:
        room = [name for name in shares if shares[name] < sizes[name]]
        shares[max(room, key=lambda name: (exact[name] - shares[name], -name))] += 1
    return shares


def study_state(settings: Settings, state: State, source: str) -> StudyState:
    """Make the record of a state."""
    case, findings = state.case, []
    for step in state.history:
        at, request = step.observation, step.action.name if isinstance(step.action, RequestTest) else ""
        name = at.exam_key or request
        fields = {"kind": at.kind, "examination": name, "text": at.text, "usd": at.charge_usd}
        findings.append(Finding.model_validate(fields))
    return StudyState(
        digest=state_digest(settings, case, state), dataset=case.dataset,
        note_id=public_text(settings, case, case.note_id),
        turn=len(state.history), source=source, credentialed=case.credentialed, presentation=case.case_summary,
        found=tuple(findings), replies=tuple(in_style(step.turn.text, "full") for step in state.history),
    )  # fmt: skip


def in_style(reply: str, style: str) -> str:
    """Write the action of a reply in another grammar; a reply that cannot be read stays as it is."""
    action = parse_action(reply)
    return render_action(action, style) if isinstance(action, (RequestTest, FinalDiagnosis)) else reply
