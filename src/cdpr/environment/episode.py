"""Agents, the environment that answers their replies, and the loop of an episode.

Training, continuations and evaluation all run :func:`run_episode`.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

from ..cases import CaseRecord
from ..costs.price import charge
from ..llm import CASE, DATASET
from ..seeding import derive_seed
from ..settings import Settings, schema
from .state import FinalDiagnosis, Invalid, Observation, RequestTest, State, Step, Trajectory, Turn, parse_action
from .table_judging import TableJudge, TableMatcher

EPISODES_AT_ONCE = 256  # enough to fill the batches of a model, few enough to show progress


class Agent(Protocol):
    """Anything that can diagnose a case. An agent of your own needs only :meth:`act`, whose reply must depend on its
    arguments alone (examples/evaluate_my_agent.py).

    ``unlimited_turns``: neither turn cap nor budget forces a diagnosis. ``whole_record``: the agent sees all results at
    once, so it has one turn, and an episode costs what all examinations of the record cost together. ``one_decoding``:
    its replies do not come from a language model, so it is evaluated once, as greedy decoding, and not with sampling.
    ``reads``: dotted keys of the settings that decide its replies, in addition to those that all agents read
    (``cdpr.agents.build.ACTING``). The agent cannot read other settings.
    """

    unlimited_turns: ClassVar[bool] = False
    whole_record: ClassVar[bool] = False
    one_decoding: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def build(cls, settings: Settings, spec: Any, temperature: float, dataset: str) -> Self:
        """Build the agent for an evaluation on the data set ``dataset``, with this sampling ``temperature``. ``spec``
        is the :class:`~cdpr.llm.ModelSpec` of the agent's model, None for an agent without one. This default calls the
        class without arguments."""
        return cls()

    def must_diagnose(self, state: State) -> bool:
        """Whether the agent can give only one more reply, for example because its context is nearly full. That reply
        then has to be a diagnosis."""
        return False

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Give the next reply at a state: a request or a diagnosis, as :func:`~.state.render_action` writes it. With
        ``forced`` it has to be a diagnosis. Equal seeds give equal replies."""

    def refresh(self) -> None:
        """Clear the agent's caches, so that later replies do not depend on earlier ones, not even by a rounding error.
        An agent without caches does nothing."""
        return None


class Policy(Agent, Protocol):
    """An agent that can give several replies at a state."""

    async def sample(self, state: State, numbers: Sequence[int], forced: bool, seed: int) -> list[Turn]:
        """Sample independent replies at a state. ``numbers`` are the indices of the replies; returns one reply per
        index, in their order. The reply with index k is the same for equal seeds, whichever other indices are
        requested. With ``forced`` each reply has to be a diagnosis."""

    async def score_diagnoses(self, state: State, names: Sequence[str], forced: bool) -> list[Turn]:
        """Compute how probable given diagnoses are at a state; nothing is sampled. Returns for each of ``names`` the
        reply that diagnoses it, with the log-probabilities of the reply's tokens under the policy at temperature 1.
        With ``forced`` the prompt demands a diagnosis."""

    def name_start(self, turn: Turn) -> int:
        """Find the index in ``turn.token_ids`` of the first token of the disease's name. It is 0 where the prompt
        already holds the words before the name."""


class DiagnosticEnvironment:
    """The transition T(s, a) of the decision process (paper, section "Problem Formulation"). It matches a requested
    examination with the record of the case, and charges it in US dollars. It judges the diagnosis that ends an episode,
    and says when an agent has to give it: at the turn cap, or after a request beyond the budget.

    ``settings`` is the section ``environment``. ``judge`` decides whether a diagnosis is right, ``matcher`` which
    examination a request names; both use tables of names by default. Where language models judge or match,
    :meth:`respond` waits for them; all other methods return at once. ``calls`` counts the calls of ``matcher`` and
    ``judge`` under these names. ``matcher_model`` and ``judge_model`` count those that a model answered,
    ``matcher_invalid`` and ``judge_invalid`` those with an unreadable answer, ``judge_several`` those about a text that
    lists several diagnoses.
    """

    def __init__(
        self, settings: schema.Environment, judge: TableJudge | None = None, matcher: TableMatcher | None = None
    ) -> None:
        """Start with all counts of ``calls`` at 0. The attribute ``counters`` of judge and matcher lists the names of
        the counts for kinds of their answers, such as ``judge_model``."""
        self.settings = settings
        self.judge = judge or TableJudge()
        self.matcher = matcher or TableMatcher(settings.fuzzy_cutoff)
        self.calls = Counter(dict.fromkeys([*self.judge.counters, *self.matcher.counters, "matcher", "judge"], 0))

    def initial(self, case: CaseRecord) -> State:
        """The first state of an episode, s_0: the presentation of the case, without any result."""
        return State(case)

    def must_diagnose(self, state: State, agent: Agent | None = None) -> bool:
        """Whether the next reply at a state has to be a diagnosis: because the turn cap is reached, because the last
        request exceeded the budget, or because ``agent`` has room for one reply only. Always False for an agent with
        unlimited turns."""
        if agent is not None and agent.unlimited_turns:
            return False
        has_one_reply_left = agent is not None and agent.must_diagnose(state)
        is_over_budget = bool(state.history) and state.history[-1].observation.kind == "over_budget"
        # A forced turn is the last of ``max_turns`` turns (``within``), or one turn more.
        free_turns = self.settings.max_turns - (1 if self.settings.forced_turn == "within" else 0)
        return has_one_reply_left or is_over_budget or len(state.history) >= free_turns

    async def respond(self, state: State, turn: Turn) -> Step:
        """Answer a reply of an agent: returns the step, with the action in the reply and the observation. First waits
        for the models that judge or match, if there are any. Raises ModelFailure where such a model gives no answer."""
        match parse_action(turn.text):
            case RequestTest(name):
                await self.matcher.prepare(name, state.case.key_pertinent_results_dict)
            case FinalDiagnosis(text):
                await self.judge.prepare(text, state.case.diagnosis_results)
        return self.step(state, turn)

    def step(self, state: State, turn: Turn) -> Step:
        """Parse the reply ``turn`` at a state and answer it: returns the step with its action and the observation. A
        diagnosis gets an empty observation of kind ``end``, an unreadable reply one of kind ``invalid``. Raises
        LookupError where a model matches examinations and :meth:`respond` has not asked it about this request."""
        match action := parse_action(turn.text):
            case RequestTest(name):
                return Step(turn, action, self.answer(state, name))
            case FinalDiagnosis():
                return Step(turn, action, Observation("end"))
        return Step(turn, action, Observation("invalid"))

    def answer(self, state: State, name: str) -> Observation:
        """Answer the request of the examination ``name``. Returns the observation: ``unavailable`` where the record has
        no such examination, ``repeat`` with the old result where it was obtained before, ``over_budget`` where its
        price exceeds the rest of the budget, else ``result`` with the text and the US dollars charged. Examinations
        that are billed together are charged once per case."""
        keys, source = self.matcher.match(name, state.case.key_pertinent_results_dict)
        self._count("matcher", f"matcher_{source}")
        if not keys:
            return Observation("unavailable")
        # Several keys are spellings or parts of one examination: each request gives the next one.
        new_keys = [key for key in keys if key not in state.obtained]
        if not new_keys:  # all were obtained; the last one is shown again
            return Observation("repeat", self._cut_result(state, keys[-1]), keys[-1])
        price = charge(state.case, state.obtained, new_keys[0])
        budget = self.settings.budget_usd
        if budget is not None and state.spent_usd + price > budget + 1e-9:  # sums of cents have rounding errors
            return Observation("over_budget")
        return Observation("result", self._cut_result(state, new_keys[0]), new_keys[0], price)

    def finish(self, state: State, step: Step, forced: bool) -> Trajectory:
        """End the episode with ``step``, taken at ``state``; returns its trajectory. A last step without a diagnosis
        counts as an invalid reply, and the trajectory as wrong. ``forced`` says that the reply had to be a
        diagnosis."""
        last, correct = self.conclude(state, step)
        diagnosis = last.action.text if isinstance(last.action, FinalDiagnosis) else None
        return Trajectory(state.case, (*state.history, last), diagnosis, correct, forced)

    def conclude(self, state: State, step: Step) -> tuple[Step, bool]:
        """Judge the last step of an episode: returns the step, and whether its diagnosis is right. A step without a
        diagnosis is returned as an invalid one, and is wrong."""
        if not isinstance(step.action, FinalDiagnosis):
            return Step(step.turn, Invalid(step.turn.text), Observation("invalid")), False
        return step, self.is_correct(step.action.text, state.case.diagnosis_results)

    def is_correct(self, diagnosis: str, truth: str) -> bool:
        """Whether the judge finds that ``diagnosis`` names the true disease ``truth``: 1(d_hat = d*). The call is
        counted in ``calls``. Raises LookupError where a model judges and :meth:`respond` has not requested its
        answer."""
        verdict = self.judge.verdict(diagnosis, truth)
        self._count("judge", f"judge_{verdict.by}", "judge_several" if verdict.several else "")
        return verdict.correct

    def _count(self, *names: str) -> None:
        """Count one call of the judge or of the matcher in ``calls``: under each of ``names`` that is counted."""
        self.calls.update(name for name in names if name in self.calls)

    def _cut_result(self, state: State, key: str) -> str:
        """The text of the result ``key`` as agents see it. A text that is longer than
        ``environment.prompt.max_observation_chars`` loses its middle."""
        text, limit = state.case.key_pertinent_results_dict[key], self.settings.prompt.max_observation_chars
        if len(text) <= limit:
            return text
        half = (limit - len(" ... ")) // 2
        return f"{text[:half]} ... {text[-half:]}"


def is_cut_result(case: CaseRecord, step: Step) -> bool:
    """Whether the agent saw only a part of the result that the step obtained, because the text on record was too long.
    False for a step without a result."""
    key = step.observation.exam_key
    return key is not None and step.observation.text != case.key_pertinent_results_dict[key]


async def run_episode(
    environment: DiagnosticEnvironment, agent: Agent, case: CaseRecord, seed: int, start: State | None = None
) -> Trajectory:
    """Run one episode of a case until the diagnosis; returns its trajectory. It begins at the presentation of the case,
    or at the state ``start``.

    ``seed`` fixes all draws of models that take seeds. Raises ModelFailure where a model gives no answer, and what the
    agent raises. Source: paper, section "Problem Formulation".
    """
    CASE.set(case.note_id)  # errors and recordings of model calls name case and data set
    DATASET.set(case.dataset)
    state = start or environment.initial(case)
    while True:
        forced = environment.must_diagnose(state, agent)
        turn = await agent.act(state, forced, derive_seed(seed, len(state.history)))
        step = await environment.respond(state, turn)
        if forced or agent.whole_record or isinstance(step.action, FinalDiagnosis):
            return environment.finish(state, step, forced)
        state = state.after(step)


def case_seed(seed: int, case: CaseRecord) -> int:
    """The seed of the episode of ``case`` in an evaluation with this ``seed``. It does not depend on the other
    cases."""
    return derive_seed(seed, "case", case.note_id)


async def run_episodes(
    environment: DiagnosticEnvironment, agent: Agent, cases: Sequence[CaseRecord], seed: int
) -> list[Trajectory]:
    """Run one episode of each case; returns the trajectories in the order of the cases. At most
    :data:`EPISODES_AT_ONCE` run at the same time. Each has the seed :func:`case_seed` of ``seed`` and its case. Raises
    ModelFailure where a model gives no answer, and what the agent raises."""
    trajectories: list[Trajectory] = []
    for start in range(0, len(cases), EPISODES_AT_ONCE):
        batch = cases[start : start + EPISODES_AT_ONCE]
        episodes = (run_episode(environment, agent, case, case_seed(seed, case)) for case in batch)
        trajectories += await asyncio.gather(*episodes)
    return trajectories
