"""Get the decision of every compared method at the same states."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..agents.build import agent_entry
from ..cases import CaseRecord, is_physical, iterate_records
from ..costs import price_of
from ..costs.price import charge
from ..environment import (
    EPISODES_AT_ONCE,
    Agent,
    DiagnosticEnvironment,
    FinalDiagnosis,
    RequestTest,
    State,
    parse_action,
)
from ..environment.once import gather_all
from ..evaluation.replay import state_after
from ..evaluation.row import public_text
from ..job import Job
from ..llm.guard import disclosure_tags
from ..llm.types import CASE
from ..seeding import derive_seed
from ..settings import AgentEntry, Settings, model_of
from .records import Proposal, StudyError, StudyState, read_lines, state_digest, write_lines
from .sampling import in_style, open_actor

# Lines of a reply that tell the action, and the labels before reasons.
_ACTION = re.compile(r"^\W*(?:ACTION|Test needed|Diagnosis|REQUEST_TEST|FINAL_DIAGNOSIS)\W*:.*$", re.MULTILINE | re.I)
_LABEL = re.compile(r"^\W*(?:THINKING|Reason)\W*:[ \t*]*", re.MULTILINE | re.IGNORECASE)
# Words of the grammar, which are in no name: a policy that repeats them has named nothing.
_VERB = re.compile("REQUEST_TEST|FINAL_DIAGNOSIS")
# Names by which a reply may give its author away, with sizes and versions behind them. GPT alone is an enzyme.
_NAMES = (
    r"(?:chat-?gpt|gpt-?\d|openai|claude|anthropic|gemini|google deepmind|deepseek|qwen|alibaba|(?:med-?)?gemma|mistral"
    r"|ministral|llama|baichuan|huatuo(?:gpt)?|med-?agents?|md-?agents?|diag-?agent|tree of reasoning|cdpr|grpo)[\w.-]*"
)


def propose_actions(settings: Settings, job: Job) -> None:
    """Stage ``propose_actions``: let a run decide at every state of the study, greedily. Raises StudyError where the
    cases are no longer those that the states are from."""
    run, proposals, disclosures = job.options["run"], [], []
    entry = agent_entry(settings, run)
    by_dataset: dict[str, list[StudyState]] = defaultdict(list)
    for state in read_lines(job.inputs["states"], StudyState):
        by_dataset[state.dataset].append(state)
    for dataset, states in by_dataset.items():
        environment, agent, remote = open_actor(settings, job, dataset, any(state.credentialed for state in states))
        disclosures += remote
        note_ids = {state.note_id for state in states}
        records = (case for case in iterate_records(job.inputs[dataset], "test"))
        cases = {name: case for case in records if (name := public_text(settings, case, case.note_id)) in note_ids}
        if missing := note_ids - set(cases):
            raise StudyError(f"{job.inputs[dataset]}: {len(missing)} cases of the study are not in it: sample again")
        proposals += asyncio.run(_decisions(settings, environment, agent, run, states, cases))
    own = names(settings, entry)
    proposals = [line.model_copy(update={"reasoning": blanked(line.reasoning, own)}) for line in proposals]
    job.tags.update(disclosure_tags(disclosures))
    job.metrics["proposals"] = len(proposals)
    write_lines(job.out["proposals"], proposals)
    kinds = [proposal.kind for proposal in proposals]
    print(f"{run}: {kinds.count('request')} requests, {kinds.count('diagnosis')} diagnoses, "
          f"{kinds.count('unreadable')} unreadable replies at {len(kinds)} states")  # fmt: skip


async def _decisions(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, run: str,
    states: Sequence[StudyState], cases: dict[str, CaseRecord],
) -> list[Proposal]:  # fmt: skip
    style = settings.environment.prompt.style if agent_entry(settings, run).own_policy else "full"

    async def one(study_state: StudyState) -> Proposal:
        CASE.set(study_state.note_id)
        state = await rebuilt(settings, environment, cases[study_state.note_id], study_state, style)
        return await decide(settings, environment, agent, run, state, study_state.digest)

    done: list[Proposal] = []
    for start in range(0, len(states), EPISODES_AT_ONCE):
        agent.refresh()
        done += await gather_all(map(one, states[start : start + EPISODES_AT_ONCE]))
    return done


async def rebuilt(
    settings: Settings, environment: DiagnosticEnvironment, case: CaseRecord, study_state: StudyState, style: str
) -> State:
    """Rebuild a state in the environment, in the ``style`` of the agent: without the words, and so without the reasons,
    of the policy whose episode it is from. Raises StudyError where it is another state now."""
    state = await state_after(environment, case, [in_style(reply, style) for reply in study_state.replies])
    if state_digest(settings, case, state) != study_state.digest:
        raise StudyError(f"{study_state.dataset}: state {study_state.digest} comes out differently: cases or matcher "
                         "have changed; sample again")  # fmt: skip
    return state


async def decide(
    settings: Settings, environment: DiagnosticEnvironment, agent: Agent, run: str, state: State, digest: str
) -> Proposal:
    """Get the decision of an agent at a state. An agent that gives no reasons and does not diagnose must also name the
    diagnosis that it leans to, which is all that raters can then know of its reasoning."""
    seed = derive_seed(settings.evaluation.seed, "study", digest)
    turn = await agent.act(state, False, seed)
    reasoning, decision = reasons(turn.text), dict[str, Any]()
    match parse_action(turn.text):
        case RequestTest(name) if not _VERB.search(name):
            forced = None if reasoning else parse_action((await agent.act(state, True, seed)).text)
            leaning = forced.text if isinstance(forced, FinalDiagnosis) and not _VERB.search(forced.text) else ""
            usd = await request_price(settings, environment, state, name)
            decision = {"kind": "request", "action": name, "leaning": leaning, "usd": usd}
        case FinalDiagnosis(text) if not _VERB.search(text):
            decision = {"kind": "diagnosis", "action": text}
    return Proposal(state=digest, run=run, reasoning=reasoning, **decision)


def reasons(reply: str) -> str:
    """Return a reply without its action."""
    text = _LABEL.sub("", _ACTION.sub("", reply))
    return "\n".join(line.strip() for line in text.splitlines() if re.search(r"\w", line))


def names(settings: Settings, agent: AgentEntry) -> list[str]:
    """List the names of the model that an agent uses: ours and its makers'."""
    model = model_of(settings, agent)
    return [name for name in (model.label, (model.id or "").rpartition("/")[2]) if name] if model else []


def blanked(text: str, own: Sequence[str]) -> str:
    """Replace names of models in a text: raters are blind."""
    known = "|".join([*map(re.escape, sorted(own, key=len, reverse=True)), _NAMES])
    return re.sub(rf"(?<!\w)(?:{known})(?!\w)", "[model]", text, flags=re.IGNORECASE)


async def request_price(settings: Settings, environment: DiagnosticEnvironment, state: State, name: str) -> float:
    """Return the US dollars that a request would be charged now; the list price where the record has no result, so that
    the price does not show raters what is available."""
    results = state.case.key_pertinent_results_dict
    await environment.matcher.prepare(name, results)
    match, _ = environment.matcher.match(name, results)
    if match:
        fresh = [key for key in match if key not in state.obtained]
        return charge(state.case, state.obtained, fresh[0]) if fresh else 0.0
    return 0.0 if is_physical(name) else round(price_of(name, settings.costs).usd, 2)
