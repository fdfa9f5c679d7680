"""Samples states of one policy's episodes for the study, stratified by turn, and gets the decision of every compared
method there."""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np

from ..agents.build import agent_entry, build_agent, model_spec
from ..cases import CaseRecord, Patterns, iterate_records
from ..costs.price import price_of
from ..environment import EPISODES_AT_ONCE, Agent, DiagnosticEnvironment, Trajectory, run_episodes
from ..environment.opening import check_models, open_environment
from ..environment.state import Action, FinalDiagnosis, RequestTest, State, parse_action, render_action
from ..evaluation.row import public_text, state_after
from ..files import parse_yaml, shipped_text
from ..job import Job
from ..llm import CASE, SYSTEM, gather_all
from ..seeding import derive_seed
from ..settings import BENCHMARKS, AgentEntry, Settings, model_of
from .records import Proposal, StudyError, StudyState, read_lines, state_digest, write_lines

# Cases on which the policy is run, for each state that is sampled: enough to fill every turn from different cases.
_CASES_PER_STATE = 2
_PATTERN = Patterns(parse_yaml(shipped_text(__package__, "replies.yaml")))


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
    run = job.options["run"]
    SYSTEM.set(run)
    spec = model_spec(settings, agent_entry(settings, run), job.inputs.get("policy"), credentialed=credentialed)
    job.tags.update(check_models(settings, dataset, spec, credentialed=credentialed))
    environment = open_environment(settings, credentialed=credentialed)
    return environment, build_agent(settings, run, spec, 0.0, dataset)  # 0.0: greedy


def sample_decisions(episodes: Sequence[Trajectory], count: int, seed: int) -> list[State]:
    """Sample ``count`` states at which the policy had a choice, or all where there are fewer; returns them in the order
    of episodes and turns. A turn gets a share of the sample as large as its share of all states (:func:`allot`), from
    as many cases as possible."""
    rng = np.random.default_rng(seed)
    # A forced diagnosis, the last step, was no choice.
    states = [state for episode in episodes for state in episode.states[: len(episode.steps) - episode.forced]]
    turns, cases = np.array([len(state.history) for state in states]), [state.case.note_id for state in states]
    sizes = Counter(turns.tolist())  # the number of states by turn
    count_by_turn = allot(sizes, count)
    sampled: list[int] = []  # indices of states
    # Turns with few states, the late ones, choose their cases first.
    for turn in sorted(sizes, key=lambda turn: (sizes[turn], turn)):
        times_sampled = Counter(cases[index] for index in sampled)
        in_random_order = rng.permutation(np.flatnonzero(turns == turn)).tolist()
        # The sort is stable: states of cases that were sampled equally often stay in random order.
        least_sampled_first = sorted(in_random_order, key=lambda index: times_sampled[cases[index]])
        sampled += least_sampled_first[: count_by_turn[turn]]
    return [states[index] for index in sorted(sampled)]


def allot(sizes: Mapping[int, int], total: int) -> dict[int, int]:
    """Divide ``total`` draws over strata in proportion to their ``sizes``, by largest remainders. Returns the draws of
    each stratum. Each gets at least one where ``total`` allows it, and none more than its size: ``{0: 6, 1: 3, 2: 1}``
    and 5 give ``{0: 3, 1: 1, 2: 1}``."""
    total = min(total, sum(sizes.values()))
    exact = {name: total * size / sum(sizes.values()) for name, size in sizes.items()}
    draws = dict.fromkeys(sizes, 1 if total >= len(sizes) else 0)
    # Each further draw goes to the stratum that is most below its exact share; among equals to the earlier one.
    while sum(draws.values()) < total:
        extensible = [name for name in draws if draws[name] < sizes[name]]
        draws[max(extensible, key=lambda name: (exact[name] - draws[name], -name))] += 1
    return draws


def make_record(settings: Settings, state: State, source: str) -> StudyState:
    """Make the study's record of a sampled state, with the requests before it and their answers. ``source`` is the run
    whose episode it is from."""
    case, findings = state.case, []
    for step in state.history:
        action, answer = step.action, step.observation
        # The name of the examination in the record, or the agent's own words where the record does not have it.
        name = answer.exam_key or (action.name if isinstance(action, RequestTest) else "")
        findings.append({"kind": answer.kind, "examination": name, "text": answer.text, "usd": answer.charge_usd})
    return StudyState.model_validate({
        "digest": state_digest(settings, case, state), "dataset": case.dataset,
        "note_id": public_text(settings, case, case.note_id), "turn": len(state.history), "source": source,
        "credentialed": case.credentialed, "presentation": case.case_summary, "found": findings,
        "replies": [render_action(step.action, "full") for step in state.history],
    })  # fmt: skip


# Proposals


def propose_actions(settings: Settings, job: Job) -> None:
    """Stage ``propose_actions``: let one run decide greedily at every state of the study, and write its proposals.
    Raises StudyError where the states can no longer be rebuilt from the cases."""
    run, proposals = job.options["run"], list[Proposal]()
    for dataset, group in itertools.groupby(read_lines(job.inputs["states"], StudyState), attrgetter("dataset")):
        states = list(group)
        environment, agent = open_agent(settings, job, dataset, any(state.credentialed for state in states))
        # States name credentialed cases by their pseudonyms.
        cases = {public_text(settings, case, case.note_id): case
                 for case in iterate_records(job.inputs[dataset], "test")}  # fmt: skip
        if missing := {state.note_id for state in states} - cases.keys():
            raise StudyError(f"{job.inputs[dataset]}: {len(missing)} cases of the study are not in it: sample again")
        proposals += asyncio.run(propose_all(settings, environment, agent, run, states, cases))
    own_names = model_names(settings, agent_entry(settings, run))
    proposals = [p.model_copy(update={"reasoning": hide_models(p.reasoning, own_names)}) for p in proposals]
    job.metrics["proposals"] = len(proposals)
    write_lines(job.out["proposals"], proposals)
    counts = Counter(proposal.kind for proposal in proposals)
    print(f"{run}: {counts['request']} requests, {counts['diagnosis']} diagnoses, {counts['unreadable']} unreadable "
          f"replies at {len(proposals)} states")  # fmt: skip


async def propose_all(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, run: str,
    states: Sequence[StudyState], cases: dict[str, CaseRecord],
) -> list[Proposal]:  # fmt: skip
    """Let an agent decide at each of ``states``; returns its proposals in their order. ``cases`` has the cases of the
    states by ``note_id``."""
    # Our own policies read earlier actions in the grammar that they were trained with.
    style = settings.environment.prompt.style if agent_entry(settings, run).own_policy else "full"

    async def propose_at(record: StudyState) -> Proposal:
        """Rebuild one state and get the agent's decision there."""
        CASE.set(record.note_id)
        state = await rebuild_state(settings, environment, cases[record.note_id], record, style)
        return await propose(settings, environment, agent, run, state, record.digest)

    proposals: list[Proposal] = []
    for start in range(0, len(states), EPISODES_AT_ONCE):
        agent.refresh()  # so that no decision depends on earlier ones
        proposals += await gather_all(map(propose_at, states[start : start + EPISODES_AT_ONCE]))
    return proposals


async def rebuild_state(
    settings: Settings, environment: DiagnosticEnvironment, case: CaseRecord, record: StudyState, style: str
) -> State:
    """Rebuild the sampled state ``record`` in the environment. Its actions are written in the grammar ``style`` of the
    agent that will decide there, without the reasoning of the policy that ran the episode. Raises StudyError where the
    result is another state."""
    actions = [render_action(parse_action(reply), style) for reply in record.replies]
    state = await state_after(environment, case, actions)
    if state_digest(settings, case, state) != record.digest:
        raise StudyError(f"{record.dataset}: state {record.digest} comes out differently: cases or matcher have "
                         "changed; sample again")  # fmt: skip
    return state


async def propose(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, run: str, state: State, digest: str
) -> Proposal:
    """Get the decision of an agent at a state, as a proposal. An agent that requests an examination without reasoning
    must also give a diagnosis (``leaning``), because raters know nothing else of its reasoning. A reply without a
    readable action gives a proposal of kind ``unreadable``. ``digest`` is the identity of the state."""
    seed = derive_seed(settings.evaluation.seed, "study", digest)
    reply = (await agent.act(state, False, seed)).text  # False: no diagnosis is forced
    action, reasoning = parse_action(reply), remove_action(reply)
    proposal = Proposal(state=digest, run=run, reasoning=reasoning)
    if diagnosis := _named_diagnosis(action):
        return proposal.model_copy(update={"kind": "diagnosis", "action": diagnosis})
    if not isinstance(action, RequestTest) or _PATTERN.verb.search(action.name):  # neither a diagnosis nor a request
        return proposal
    # The same state once more; True: a diagnosis is forced.
    leaning = "" if reasoning else _named_diagnosis(parse_action((await agent.act(state, True, seed)).text))
    usd = await request_price(settings, environment, state, action.name)
    return proposal.model_copy(update={"kind": "request", "action": action.name, "leaning": leaning, "usd": usd})


def _named_diagnosis(action: Action) -> str:
    """Return the text of an action that is a diagnosis. Empty for any other action, and for a diagnosis that has a verb
    of the grammar where the disease belongs."""
    return action.text if isinstance(action, FinalDiagnosis) and not _PATTERN.verb.search(action.text) else ""


def remove_action(reply: str) -> str:
    """Return the reasoning of a reply: its text without the lines of the action and without labels such as
    ``THINKING:``. Empty where nothing else is left."""
    text = _PATTERN.label.sub("", _PATTERN.action_line.sub("", reply))
    return "\n".join(line.strip() for line in text.splitlines() if re.search(r"\w", line))


def model_names(settings: Settings, agent: AgentEntry) -> list[str]:
    """List the names of the model that an agent uses, which raters must not read in its replies: its label in tables,
    and the name that its makers gave it. A model that the agent itself names by an address has only the name
    ``served_as``. Empty for an agent that acts by a policy of the run or by no model, and where no name is known."""
    model = model_of(settings, agent)
    names = (model.label, (model.id or "").rpartition("/")[2]) if model else ()
    return [name for name in names if name]


def hide_models(text: str, own_names: Sequence[str]) -> str:
    """Replace the names of well-known models and ``own_names`` in a text by ``[model]``, so that raters do not learn
    the author."""
    longest_first = sorted(own_names, key=len, reverse=True)
    names = "|".join([*map(re.escape, longest_first), _PATTERN.models.pattern])
    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", "[model]", text, flags=re.IGNORECASE)


async def request_price(settings: Settings, environment: DiagnosticEnvironment, state: State, name: str) -> float:
    """Return the US dollars that the request of the examination ``name`` would be charged at a state; 0 for a result
    that is known, and for an item of the physical examination. Where the record has no result it is the list price, so
    that raters cannot tell from the price what is on record."""
    await environment.matcher.prepare(name, state.case.key_pertinent_results_dict)
    answer = environment.answer(state, name)
    if answer.kind in ("result", "repeat"):
        return answer.charge_usd
    return round(price_of(name, settings.costs).usd, 2)
