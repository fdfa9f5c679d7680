"""Samples states of one policy's episodes for the study, stratified by turn."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from ..agents.build import agent_entry, build_agent, model_spec
from ..cases import iterate_records
from ..environment import Agent, DiagnosticEnvironment, run_episodes
from ..environment.opening import check_judges, open_environment
from ..environment.state import RequestTest, State, Trajectory, render_action
from ..evaluation.row import public_text
from ..job import Job
from ..llm.guard import disclosure_tags
from ..llm.types import SYSTEM
from ..seeding import derive_seed
from ..settings import Settings
from ..settings.datasets import BENCHMARKS
from .records import StudyError, StudyState, state_digest, write_lines

# Cases on which the policy is run, for each state that is sampled: enough to fill every turn from different cases.
_CASES_PER_STATE = 2


def sample_states(settings: Settings, job: Job) -> None:
    """Stage ``sample_states``: run greedy episodes of ``study.source`` on test cases, as its evaluation does, and write
    a sample of their states. Raises StudyError for a benchmark on which the run takes no decision of its own."""
    run, plan, records = job.options["run"], settings.study, []
    for dataset in BENCHMARKS:
        cases = list(iterate_records(job.inputs[dataset], "test"))
        random_order = np.random.default_rng(derive_seed(plan.seed, "cases")).permutation(len(cases))
        cases = [cases[index] for index in random_order[: plan.states * _CASES_PER_STATE]]
        environment, agent = open_agent(settings, job, dataset, any(case.credentialed for case in cases))
        episodes = asyncio.run(run_episodes(environment, agent, cases, settings.evaluation.seed))
        states = sample_decisions(episodes, plan.states, derive_seed(plan.seed, dataset))
        if not states:
            raise StudyError(f"{job.inputs[dataset]}: {run} decides nothing on these cases; name another study.source")
        records += [make_record(settings, state, run) for state in states]
        print(f"{dataset}: {len(states)} states of {len({state.case.note_id for state in states})} cases")
    job.metrics["states"] = len(records)
    write_lines(job.out["states"], records)


def open_agent(settings: Settings, job: Job, dataset: str, credentialed: bool) -> tuple[DiagnosticEnvironment, Agent]:
    """Open the agent of the job's run, decoding greedily; returns its environment and the agent. ``credentialed`` says
    that the cases are under a data use agreement.

    The job's tags get the machines to which text of credentialed cases goes, for the agent's model and for models that
    judge. From then on errors, recordings and bills of model calls name the run. Raises GovernanceError where the
    agreement forbids the agent's model or a judge.
    """
    run, policy = job.options["run"], job.inputs.get("policy")
    SYSTEM.set(run)
    spec = model_spec(settings, agent_entry(settings, run), policy, credentialed=credentialed)
    disclosures = [spec.check(dataset) if spec else None, *check_judges(settings, dataset, credentialed=credentialed)]
    job.tags.update(disclosure_tags(disclosures))
    environment = open_environment(settings, credentialed=credentialed)
    return environment, build_agent(settings, run, policy, 0.0, dataset, credentialed=credentialed)  # 0.0: greedy


def sample_decisions(episodes: Sequence[Trajectory], count: int, seed: int) -> list[State]:
    """Sample ``count`` states at which the policy had a choice, or all where there are fewer; returns them in the order
    of episodes and turns. A turn gets a share of the sample as large as its share of all states (:func:`allot`), from
    as many cases as possible."""
    rng = np.random.default_rng(seed)
    by_turn: dict[int, list[State]] = defaultdict(list)
    for episode in episodes:
        choices = len(episode.steps) - episode.forced  # a forced diagnosis, the last step, was no choice
        for turn, state in enumerate(episode.states[:choices]):
            by_turn[turn].append(state)
    count_by_turn = allot({turn: len(states) for turn, states in by_turn.items()}, count)
    sampled: list[State] = []
    times_sampled: Counter[str] = Counter()  # by case
    # Turns with few states, the late ones, choose their cases first.
    for turn in sorted(by_turn, key=lambda turn: (len(by_turn[turn]), turn)):
        states = [by_turn[turn][index] for index in rng.permutation(len(by_turn[turn]))]
        # The sort is stable: states of cases that were sampled equally often stay in random order.
        states.sort(key=lambda state: times_sampled[state.case.note_id])
        of_turn = states[: count_by_turn[turn]]
        sampled += of_turn
        times_sampled.update(state.case.note_id for state in of_turn)
    position = {episode.case.note_id: index for index, episode in enumerate(episodes)}
    return sorted(sampled, key=lambda state: (position[state.case.note_id], len(state.history)))


def allot(sizes: Mapping[int, int], total: int) -> dict[int, int]:
    """Divide ``total`` draws over strata in proportion to their ``sizes``, by largest remainders. Returns the draws of
    each stratum. Each gets at least one where ``total`` allows it, and none more than its size: ``{0: 6, 1: 3, 2: 1}``
    and 5 give ``{0: 3, 1: 1, 2: 1}``."""
    total = min(total, sum(sizes.values()))
    exact = {name: total * size / max(1, sum(sizes.values())) for name, size in sizes.items()}
    minimum = 1 if total >= len(sizes) else 0
    draws = {name: min(sizes[name], max(minimum, int(share))) for name, share in exact.items()}
    # Too many draws: take one from the stratum that is most above its exact share; among equals from the one with more
    # draws, then from the later one.
    while sum(draws.values()) > total:
        reducible = [name for name in draws if draws[name] > minimum]
        draws[max(reducible, key=lambda name: (draws[name] - exact[name], draws[name], name))] -= 1
    # Too few draws: give one to the stratum that is most below its exact share; among equals to the earlier one.
    while sum(draws.values()) < total:
        extensible = [name for name in draws if draws[name] < sizes[name]]
        draws[max(extensible, key=lambda name: (exact[name] - draws[name], -name))] += 1
    return draws


def make_record(settings: Settings, state: State, source: str) -> StudyState:
    """Make the study's record of a sampled state, with the requests before it and their answers. ``source`` is the run
    whose episode it is from."""
    case, findings = state.case, []
    for step in state.history:
        answer = step.observation
        # The name of the examination in the record, or the agent's own words where the record does not have it.
        examination = answer.exam_key or (step.action.name if isinstance(step.action, RequestTest) else "")
        findings.append({"kind": answer.kind, "examination": examination, "text": answer.text,
                         "usd": answer.charge_usd})  # fmt: skip
    return StudyState.model_validate({
        "digest": state_digest(settings, case, state), "dataset": case.dataset,
        "note_id": public_text(settings, case, case.note_id), "turn": len(state.history), "source": source,
        "credentialed": case.credentialed, "presentation": case.case_summary, "found": findings,
        "replies": [render_action(step.action, "full") for step in state.history],
    })  # fmt: skip
