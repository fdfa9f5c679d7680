"""What a target would ask of language models, and what that costs, before anything is sent."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from ..agents.build import agent_class
from ..agents.framework import Calls, Framework
from ..cases import CaseRecord, iterate_records
from ..environment import PromptBuilder, State
from ..environment.prompt import opening_messages
from ..llm.recording import Recordings
from ..llm.spending import unpriced
from ..results.paper import PaperFacts, read_paper
from ..settings import AgentEntry, ModelEntry, Settings, SettingsError, judging_models, model_of
from ..settings.datasets import BENCHMARKS, DATASETS, FURTHER, IN_DOMAIN, benchmark_of
from ..settings.judging import ASKERS
from ..settings.queries import named_model
from ..study.model_rater import rules
from .experiment import Options, Product
from .plan import Plan
from .stages import STAGES

_BYTES = 4.0  # of English text in a token
_SAMPLE = 50  # cases whose prompts are measured
# Where no case is there to be measured: tokens of a presentation and of a result, examinations of a record.
_PRESENTATION, _RESULT, _RECORD = 500, 120, 30
_TURNS = 4.0  # of a workup of an agent whose examinations the paper does not print
_REPLY, _THOUGHT = 150, 1000  # tokens of an answer, and of one with thoughts before it
_WORDS = 700  # tokens of a framework's own words, and of what was said before, in each of its prompts
_SHORTEST = 30
# Judges and matcher: questions of a workup, tokens of one and of its answer. Tables know part of the answers.
_JUDGING = {"judge": (0.7, 400, 3), "second_judge": (1.0, 400, 3), "matcher": (1.0, 550, 8)}
_CASES_OF_A_STATE = 2  # that the expert study's source works up
_PROPOSAL, _SCORES = 100, (9, 10, 64)  # tokens of a proposal that is rated, and of its five scores
_OF_STUDY = ("sample_states", "propose_actions", "rate_by_model")
_EVERYWHERE = "http://127.0.0.1/v1"  # stands for a server that nobody has named yet


@dataclass(frozen=True)
class Range:
    """At least, as expected, at most."""

    least: float = 0.0
    expected: float = 0.0
    most: float = 0.0

    def __add__(self, other: Range) -> Range:
        return Range(self.least + other.least, self.expected + other.expected, self.most + other.most)

    def times(self, factor: float) -> Range:
        return Range(self.least * factor, self.expected * factor, self.most * factor)


@dataclass(frozen=True)
class Asked:
    """What a system would ask: ``recorded`` of its calls are answered already and cost nothing (tokens and dollars are
    those of the others, should the recorded ones be among them). ``usd`` is None where no price is named, and
    ``unpriced`` says that this is no server of one's own, so that nobody knows what it costs. ``study``: at ``cases``
    states of the expert study, counted whether or not they are recorded."""

    system: str
    model: str
    cases: int
    calls: Range
    prompt: Range
    completion: Range
    usd: Range | None
    recorded: int
    date: str
    unpriced: bool
    study: bool = False


@dataclass(frozen=True)
class Work:
    """``times`` pieces of work on the cases of a data set. Each takes ``acts`` turns, in which ``read`` results are
    read, at least, as expected and at most."""

    times: float
    acts: tuple[float, float, float]
    read: tuple[float, float, float]

    @classmethod
    def of_workups(cls, settings: Settings, entry: AgentEntry, turns: float, times: float) -> Work:
        """Whole workups, of ``turns`` as expected. Every turn reads all results before it."""
        most = 1 if _diagnoses_at_once(entry) else _most_turns(settings)
        usual = min(turns, most)
        return cls(times, (1, usual, most), (0, usual * (usual - 1) / 2, most * (most - 1) / 2))

    @classmethod
    def of_decisions(cls, settings: Settings, turns: float, times: float) -> Work:
        """Single decisions in workups of ``turns``; where no reasons are given the diagnosis is asked for too."""
        return cls(times, (1, 1, 2), (0, (turns - 1) / 2, 2 * (_most_turns(settings) - 1)))


@dataclass(frozen=True)
class Texts:
    """Tokens of a data set's prompts on average: the first one, a result, and a whole record. ``measured`` on how many
    cases; 0: assumed."""

    cases: int
    opening: float
    result: float
    record: float
    measured: int


def plan_spending(plan: Plan, target: str) -> tuple[list[Asked], list[str]]:
    """What every system behind a target would ask, whether or not it can be run yet, and what was assumed. Raises
    SettingsError for a target that is no table or figure."""
    settings, facts = plan.settings, read_paper()
    everything, stages = _with_all_models(settings), _stages(plan, target)
    pairs = list(dict.fromkeys(pair for stage in stages for pair in everything.evidence(stage).evaluations))
    study = list(_jobs(everything, stages))
    datasets = [*(dataset for _, dataset in pairs), *(BENCHMARKS if study else ())]
    texts = {dataset: _texts(plan, dataset, facts) for dataset in dict.fromkeys(datasets)}
    recorded = _recorded(plan.state)
    found = []
    for run in dict.fromkeys(run for run, _ in pairs):
        if (entry := settings.agents.get(run)) is None:
            continue
        of_run, workups = [dataset for r, dataset in pairs if r == run], len(settings.evaluation.decodings)
        work = {dataset: Work.of_workups(settings, entry, _turns(facts, entry, dataset), workups * texts[dataset].cases)
                for dataset in of_run}  # fmt: skip
        cases = sum(texts[dataset].cases for dataset in of_run)
        found += _asked(settings, run, entry, cases, work, texts, recorded.get(run, 0))
    found += _judging(settings, pairs, texts, recorded)
    found += _study(settings, study, texts, facts)
    return found, _assumptions(settings, texts, found)


def _stages(plan: Plan, target: str) -> list[str]:
    """The tables and figures of a target."""
    named = {"reproduce_paper": "report"}.get(target, target)
    stages = [name for name in (f"write_{named}", f"plot_{named}", named) if name in STAGES and STAGES[name].evidence]
    if not stages:
        known = sorted(name.partition("_")[2] for name, stage in STAGES.items() if stage.evidence)
        raise SettingsError(f"{target} is no table or figure; name one of: {', '.join(dict.fromkeys(known))}")
    return [*stages, *(plan.on_page if named == "report" else ())]


def _with_all_models(settings: Settings) -> Plan:
    """The plan as if every agent could be run."""
    models = {name: entry.model_copy(update={"at": entry.where or _EVERYWHERE, "enabled": True})
              for name, entry in settings.models.items()}  # fmt: skip
    agents = {name: entry.model_copy(update={"why": ""}) if entry.model else entry
              for name, entry in settings.agents.items()}  # fmt: skip
    return Plan(settings.model_copy(update={"models": models, "agents": agents}))


def _jobs(plan: Plan, stages: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Jobs of the expert study that ask an agent or a language model before these stages can be made, as (stage, run);
    none where the study was handed out and is kept."""
    left: list[tuple[str, Options]] = [(stage, {}) for stage in stages]
    seen = []
    while left:
        stage, options = left.pop(0)
        made = (plan.source(stage, need, options) for need in STAGES[stage].needs)
        before = [(source.stage, source.options) for source in made if isinstance(source, Product)]
        new = [job for job in before if job not in seen]
        seen += new
        left += new
        yield from ((stage, options.get("run", "")) for stage, options in new if stage in _OF_STUDY)


def _asked(
    settings: Settings, run: str, entry: AgentEntry, cases: int, work: Mapping[str, Work], texts: Mapping[str, Texts],
    recorded: int = 0, study: bool = False,
) -> list[Asked]:  # fmt: skip
    """What an agent would ask of its language model for its work on every data set; nothing where it has none."""
    if (model := model_of(settings, entry)) is None:
        return []
    parts = [_extent(settings, entry, model, texts[dataset], of_one) for dataset, of_one in work.items()]
    calls, prompt, completion = (sum(column, Range()) for column in zip(*parts, strict=True))
    return [_told(run, model, cases, calls, prompt, completion, recorded, study)]


def _told(
    system: str, model: ModelEntry, cases: int, calls: Range, prompt: Range, completion: Range, recorded: int = 0,
    study: bool = False,
) -> Asked:  # fmt: skip
    """The whole, less what is recorded."""
    left = max(0.0, 1 - recorded / max(calls.expected, 1))
    prompt, completion, prices = prompt.times(left), completion.times(left), model.prices
    tokens = zip(vars(prompt).values(), vars(completion).values(), strict=True)
    usd = Range(*(prices.usd(asked, said) for asked, said in tokens)) if prices else None
    unknown, date = unpriced(model, None if model.folder else model.where), prices.date if prices else ""
    called = model.id or model.label or model.where or ""
    return Asked(system, called, cases, calls, prompt, completion, usd, recorded, date, unknown, study)


def _extent(
    settings: Settings, entry: AgentEntry, model: ModelEntry, texts: Texts, work: Work
) -> tuple[Range, Range, Range]:
    """Calls, and tokens of prompts and answers, of an agent's work on a data set."""
    kind, conversation = agent_class(entry), _calls(settings, entry)
    words = _WORDS if issubclass(kind, Framework) and conversation.turn[2] > 1 else 0
    opening = texts.opening + words + (texts.record if kind.whole_record else 0)
    longest = max(conversation.longest, model.sampling.max_tokens or 0)
    replies = _SHORTEST, min(_THOUGHT if model.answer else _REPLY, longest), longest

    def piece(calls: float, once: float, acts: float, read: float, reply: float) -> tuple[float, float, float]:
        asked = calls * acts + once
        history = read * (texts.result + _REPLY)  # what was thought is not shown again
        return asked, asked * opening + calls * history, asked * reply

    bounds = map(piece, conversation.turn, conversation.once, work.acts, work.read, replies)
    calls, prompt, completion = (Range(*column).times(work.times) for column in zip(*bounds, strict=True))
    return calls, prompt, completion


def _calls(settings: Settings, entry: AgentEntry) -> Calls:
    """How an agent asks: a framework as it says, any other once a turn."""
    kind = agent_class(entry)
    once_a_turn = Calls((1, 1, 1), settings.evaluation.max_turn_tokens)
    return kind.calls(settings) if issubclass(kind, Framework) else once_a_turn


def _diagnoses_at_once(entry: AgentEntry) -> bool:
    return agent_class(entry).whole_record or entry.acts.endswith(":ImmediateAgent")


def _most_turns(settings: Settings) -> int:
    return settings.environment.max_turns + (settings.environment.forced_turn == "extra")


def _study(
    settings: Settings, jobs: Sequence[tuple[str, str]], texts: Mapping[str, Texts], facts: PaperFacts
) -> list[Asked]:
    """What the expert study would ask: of agents at every state, of the one whose states they are, and of the model
    that rates."""
    found: list[Asked] = []
    if not jobs:
        return found
    agents, source = settings.agents, settings.agents.get(settings.study.source)
    turns = {d: _turns(facts, source, d) if source else _TURNS for d in BENCHMARKS}
    states = {d: min(settings.study.states, texts[d].cases * settings.environment.max_turns) for d in BENCHMARKS}
    worked_up = {d: min(settings.study.states * _CASES_OF_A_STATE, texts[d].cases) for d in BENCHMARKS}
    for stage, run in jobs:
        if stage == "sample_states" and run in agents:
            work = {d: Work.of_workups(settings, agents[run], turns[d], worked_up[d]) for d in BENCHMARKS}
            found += _asked(settings, run, agents[run], sum(worked_up.values()), work, texts, study=True)
        elif stage == "propose_actions" and run in agents:
            work = {d: Work.of_decisions(settings, turns[d], states[d]) for d in BENCHMARKS}
            found += _asked(settings, run, agents[run], sum(states.values()), work, texts, study=True)
        elif stage == "rate_by_model":
            model = named_model(settings, str(settings.study.model_rater))
            methods = sum(stage == "propose_actions" for stage, _ in jobs)
            asked, prompt = Range(), Range()
            for d in BENCHMARKS:
                calls = Range(1, methods, methods).times(states[d])  # what reads alike is rated once
                shown = texts[d].opening + turns[d] / 2 * texts[d].result + _PROPOSAL
                asked, prompt = asked + calls, prompt + calls.times(shown + _tokens([rules()]))
            said = Range(*map(operator.mul, vars(asked).values(), _SCORES))
            found.append(_told("rater", model, sum(states.values()), asked, prompt, said, study=True))
    return found


def _judging(
    settings: Settings, pairs: Sequence[tuple[str, str]], texts: Mapping[str, Texts], recorded: Mapping[str, int]
) -> list[Asked]:
    """What the judges and the matcher would ask: at most once about every diagnosis, or every request."""
    found = []
    cases = sum(texts[dataset].cases for _, dataset in pairs)
    workups = len(settings.evaluation.decodings) * cases
    for asker, where in ASKERS.items():
        if (model := judging_models(settings).get(where)) is None or not workups:
            continue
        share, words, said = _JUDGING[asker]
        most = workups * (settings.environment.max_turns - 1 if asker == "matcher" else 1)
        calls = Range(0, share * workups, most)
        said = max(said, _THOUGHT if model.answer else 0)
        found.append(_told(asker, model, cases, calls, calls.times(words), calls.times(said), recorded.get(asker, 0)))
    return found


def _turns(facts: PaperFacts, entry: AgentEntry, dataset: str) -> float:
    """Turns of a workup: the paper's examinations of that row, and the diagnosis."""
    printed = facts.numbers.get(f"main:{entry.paper}:{benchmark_of(dataset)}.aen")
    return _TURNS if printed is None else float(printed) + 1


def _texts(plan: Plan, dataset: str, facts: PaperFacts) -> Texts:
    """Measured on priced cases where they are there; else assumed, with as many cases as the settings or the paper
    name."""
    prompt = plan.settings.environment.prompt.model_copy(update={"style": "full"})
    path = Path(plan.resolved(plan.output("map_costs", "cases", dataset=benchmark_of(dataset))))
    if path.exists():
        cases = list(itertools.islice(iterate_records(path, "test"), _limit(plan.settings, dataset)))
        builder, shown = PromptBuilder(prompt, None, plan.settings.policy.max_prompt_tokens), cases[:_SAMPLE]
        results = [_results(case, prompt.max_observation_chars) for case in shown]
        return Texts(
            len(cases), mean(_tokens(m["content"] for m in builder.messages(State(case), False)) for case in shown),
            mean(itertools.chain.from_iterable(results)), mean(map(sum, results)), len(shown),
        )  # fmt: skip
    words = _tokens(message["content"] for message in opening_messages(prompt, ""))
    return Texts(_size(plan.settings, dataset, facts), words + _PRESENTATION, _RESULT, _RECORD * _RESULT, 0)


def _results(case: CaseRecord, longest: int) -> list[float]:
    return [_tokens([text[:longest]]) for text in case.key_pertinent_results_dict.values()] or [0.0]


def _tokens(texts: Iterable[str]) -> float:
    return sum(len(text.encode()) for text in texts) / _BYTES


def _size(settings: Settings, dataset: str, facts: PaperFacts) -> int:
    """Test cases of a data set that is not there yet."""
    name = benchmark_of(dataset)
    if name == IN_DOMAIN:
        return settings.data.test_cases
    if name in FURTHER:
        return _limit(settings, name) or 0
    if settings.data.source(name).path is None and DATASETS[name].size:
        return getattr(settings.hospital, DATASETS[name].size)
    return facts.cases(name) if f"text:cases.{name}" in facts.numbers else 0


def _limit(settings: Settings, dataset: str) -> int | None:
    """How many of a data set's cases are taken; None: all."""
    return settings.evaluation.open_cases.cases if benchmark_of(dataset) in FURTHER else None


def _recorded(state: str) -> dict[str, int]:
    """Answers that are kept, by the system that asks."""
    found: dict[str, int] = {}
    for credentialed in (False, True):
        if Recordings.exist(state, credentialed):
            rows = Recordings(state, credentialed).journal.read("SELECT system, COUNT(*) FROM uses GROUP BY system")
            for system, count in rows:
                found[system] = found.get(system, 0) + count
    return found


def _assumptions(settings: Settings, texts: Mapping[str, Texts], found: Sequence[Asked]) -> list[str]:
    said = [f"workups of every case: {len(settings.evaluation.decodings)} (evaluation.decodings: "
            f"{', '.join(settings.evaluation.decodings)})"]  # fmt: skip
    for dataset, text in texts.items():
        how = f"measured on {text.measured} cases" if text.measured else "assumed: its cases are not there yet"
        said.append(
            f"{DATASETS[benchmark_of(dataset)].label}: {text.cases:,} cases; {text.opening:,.0f} tokens "
            f"before the first reply, {text.result:,.0f} in a result ({how}; {_BYTES:g} bytes a token)"
        )
    said.append(
        f"turns of a workup: the paper's examinations of the row and one more, {_TURNS:g} where it prints "
        f"none; at most environment.max_turns, {settings.environment.max_turns}; every turn reads all before"
    )
    said.append(f"an answer: {_REPLY} tokens, {_THOUGHT:,} where the model thinks first; at least {_SHORTEST}, at most "
                "what is asked for")  # fmt: skip
    if any(asked.system in ASKERS for asked in found):
        told = (
            f"{asker}: {share:g} calls a workup, {words} tokens asked" for asker, (share, words, _) in _JUDGING.items()
        )
        said.append(f"{'; '.join(told)}; the same question is asked once; of evaluations alone: what training and "
                    "the expert study ask of them comes on top")  # fmt: skip
    if any(asked.study for asked in found):
        said.append(f"the expert study: up to {settings.study.states} states of every test set, at each one turn, or "
                    "two where no reasons are given; counted whether or not they are recorded")  # fmt: skip
    if any(asked.recorded for asked in found):
        said.append("recorded answers are all of a system's, whatever target they were asked for")
    for asked in {asked.system: asked for asked in found if asked.system in settings.agents}.values():
        conversation = _calls(settings, settings.agents[asked.system])
        few, usual, many = conversation.turn
        if many > 1:
            said.append(f"{asked.system}: {few:g} to {many:g} calls a turn, {usual:g} expected"
                        f"{f', and {conversation.once[1]:g} once for a case' if any(conversation.once) else ''}; "
                        f"{_WORDS} tokens of its own in a prompt")  # fmt: skip
    return [*said, "no discounts: neither batches nor prompts that a provider remembers; failed calls are not counted"]
