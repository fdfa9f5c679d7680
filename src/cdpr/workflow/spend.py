"""What a target would ask of language models, and what that costs, before anything is sent; and what was spent so far
(``cdpr spend``)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from ..agents.build import agent_class
from ..agents.framework import Calls, Framework
from ..cases import CaseRecord, iterate_records
from ..environment import Agent, PromptBuilder, State
from ..environment.prompt import opening_messages
from ..llm.recording import Recordings
from ..llm.spending import Spent, spent
from ..results.paper import PaperFacts, read_paper
from ..settings import AgentEntry, ModelEntry, Settings, SettingsError, judging_models, model_of
from ..settings.datasets import DATASETS, FURTHER, IN_DOMAIN, benchmark_of
from ..settings.judging import ASKERS
from .plan import Plan
from .stages import STAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    those of the others, should the recorded ones be among them). ``usd`` is None where no price is known."""

    system: str
    model: str
    cases: int
    calls: Range
    prompt: Range
    completion: Range
    usd: Range | None
    recorded: int
    date: str


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
    pairs = _evaluations(plan.settings, target)
    facts, settings = read_paper(), plan.settings
    texts = {dataset: _texts(plan, dataset, facts) for dataset in dict.fromkeys(dataset for _, dataset in pairs)}
    recorded = _recorded(plan.state)
    found = []
    for run in dict.fromkeys(run for run, _ in pairs):
        entry = settings.agents.get(run)
        model = entry and model_of(settings, entry)
        if entry is None or model is None:
            continue
        parts = [_one(settings, entry, model, texts[d], _turns(facts, entry, d)) for r, d in pairs if r == run]
        calls, prompt, completion = (sum(column, Range()) for column in zip(*parts, strict=True))
        left = max(0.0, 1 - recorded.get(run, 0) / max(calls.expected, 1))
        usd = _usd(model, prompt, completion)
        found.append(Asked(
            run, model.id or model.label, sum(texts[d].cases for r, d in pairs if r == run), calls, prompt.times(left),
            completion.times(left), usd and usd.times(left), recorded.get(run, 0),
            model.prices.date if model.prices else "",
        ))  # fmt: skip
    found += _judging(settings, pairs, texts, recorded)
    return found, _assumptions(settings, texts, found)


def render_plan(found: Sequence[Asked], assumptions: Sequence[str], budget: float | None) -> str:
    """For people."""
    if not found:
        return "This target asks no language model beside those that act in this project's own processes."
    head = ("system", "model", "cases", "calls", "(least..most)", "recorded", "M in", "M out", "USD", "(least..most)",
            "price of")  # fmt: skip
    rows = [(a.system, a.model, f"{a.cases:,}", f"{a.calls.expected:,.0f}", _between(a.calls, 0), f"{a.recorded:,}",
             f"{a.prompt.expected / 1e6:,.2f}", f"{a.completion.expected / 1e6:,.2f}",
             f"{a.usd.expected:,.2f}" if a.usd else "-", _between(a.usd, 2) if a.usd else "no price", a.date)
            for a in found]  # fmt: skip
    total = sum((a.usd for a in found if a.usd), Range())
    lines = [*_aligned([head, *rows]), "",
             f"{sum(a.calls.expected for a in found):,.0f} calls are expected, for {total.expected:,.2f} USD "
             f"(least {total.least:,.2f}, most {total.most:,.2f}) where prices are known; the others are open models "
             "on servers of your own.",
             f"calls.budget_usd is {'not set' if budget is None else f'{budget:,.2f}'}.", "", "Assumed:"]  # fmt: skip
    return "\n".join([*lines, *(f"- {text}" for text in assumptions)])


def render_spent(state: str, budget: float | None) -> str:
    """What was spent, for people."""
    found = spent(state)
    if not found:
        return f"Nothing was spent: {state} knows of no call of a model with prices."
    head = ("system", "model", "calls", "tokens in", "tokens out", "USD", "of it unknown", "under way")
    total = Spent("total", "", *(sum(getattr(s, name) for s in found) for name in Spent.__dataclass_fields__ if name
                                 not in ("system", "model")))  # fmt: skip
    rows = [(s.system or "-", s.model, f"{s.calls:,}", f"{s.prompt_tokens:,}", f"{s.completion_tokens:,}",
             f"{s.usd:,.4f}", f"{s.unknown_usd:,.4f} ({s.unknown_calls:,})", f"{s.reserved_usd:,.4f}")
            for s in [*found, total]]  # fmt: skip
    said = [*_aligned([head, *rows]), ""]
    if total.unknown_calls:
        said.append(f"Unknown: {total.unknown_calls:,} calls timed out, or their process was killed; they may have "
                    "been billed, and count as spent in their worst case.")  # fmt: skip
    left = "" if budget is None else f"; {max(0.0, budget - total.usd - total.reserved_usd):,.2f} USD are left"
    return "\n".join([*said, f"calls.budget_usd is {'not set' if budget is None else f'{budget:,.2f}'}{left}."])


def _evaluations(settings: Settings, target: str) -> list[tuple[str, str]]:
    """(run, data set) of all agents behind a target, as if each of them could be run."""
    named = {"reproduce_paper": "report"}.get(target, target)
    stages = [name for name in (f"write_{named}", f"plot_{named}", named) if name in STAGES and STAGES[name].evidence]
    if not stages:
        known = sorted(name.partition("_")[2] for name, stage in STAGES.items() if stage.evidence)
        raise SettingsError(f"{target} is no table or figure; name one of: {', '.join(dict.fromkeys(known))}")
    models = {name: entry.model_copy(update={"at": entry.where or _EVERYWHERE, "enabled": True})
              for name, entry in settings.models.items()}  # fmt: skip
    agents = {name: entry.model_copy(update={"why": ""}) if entry.model else entry
              for name, entry in settings.agents.items()}  # fmt: skip
    everything = Plan(settings.model_copy(update={"models": models, "agents": agents}))
    return list(dict.fromkeys(pair for stage in stages for pair in everything.evidence(stage).evaluations))


def _one(
    settings: Settings, entry: AgentEntry, model: ModelEntry, texts: Texts, turns: float
) -> tuple[Range, Range, Range]:
    """Calls, and tokens of prompts and answers, of an agent on a data set."""
    kind = agent_class(entry)
    conversation = _calls(settings, kind)
    words = _WORDS if issubclass(kind, Framework) and conversation.turn[2] > 1 else 0
    most = settings.environment.max_turns + (settings.environment.forced_turn == "extra")
    longest = max(conversation.longest, model.sampling.max_tokens or 0)
    reply = min(_THOUGHT if model.answer else _REPLY, longest)
    opening = texts.opening
    if kind.whole_record:
        opening, turns, most = opening + texts.record, 1.0, 1
    elif entry.acts.endswith(":ImmediateAgent"):
        turns, most = 1.0, 1

    def workup(calls: float, once: float, turns: float, reply: float) -> tuple[float, float, float]:
        history = turns * (turns - 1) / 2 * (texts.result + _REPLY)  # what was thought is not shown again
        asked = calls * turns + once
        return asked, asked * (opening + words) + calls * history, asked * reply

    extents = zip(conversation.turn, conversation.once, (1, min(turns, most), most), (_SHORTEST, reply, longest),
                  strict=True)  # fmt: skip
    bounds = [workup(*extent) for extent in extents]
    workups = texts.cases * len(settings.evaluation.decodings)
    calls, prompt, completion = (Range(*column).times(workups) for column in zip(*bounds, strict=True))
    return calls, prompt, completion


def _calls(settings: Settings, kind: type[Agent]) -> Calls:
    """How an agent asks: a framework as it says, any other once a turn."""
    once_a_turn = Calls((1, 1, 1), settings.evaluation.max_turn_tokens)
    return kind.calls(settings) if issubclass(kind, Framework) else once_a_turn


def _judging(
    settings: Settings, pairs: Sequence[tuple[str, str]], texts: Mapping[str, Texts], recorded: Mapping[str, int]
) -> list[Asked]:
    """What the judges and the matcher would ask: at most once about every diagnosis, or every request."""
    found = []
    workups = len(settings.evaluation.decodings) * sum(texts[dataset].cases for _, dataset in pairs)
    for asker, where in ASKERS.items():
        if (model := judging_models(settings).get(where)) is None:
            continue
        share, words, said = _JUDGING[asker]
        most = workups * (settings.environment.max_turns - 1 if asker == "matcher" else 1)
        calls = Range(0, share * workups, most)
        said = max(said, _THOUGHT if model.answer else 0)
        left = max(0.0, 1 - recorded.get(asker, 0) / calls.expected) if calls.expected else 0.0
        prompt, completion = calls.times(words * left), calls.times(said * left)
        found.append(Asked(
            asker, model.id or model.label, sum(texts[d].cases for _, d in pairs), calls, prompt, completion,
            _usd(model, prompt, completion), recorded.get(asker, 0), model.prices.date if model.prices else "",
        ))  # fmt: skip
    return found


def _usd(model: ModelEntry, prompt: Range, completion: Range) -> Range | None:
    if model.prices is None:
        return None
    tokens = zip(vars(prompt).values(), vars(completion).values(), strict=True)
    return Range(*(model.prices.usd(asked, said) for asked, said in tokens))


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
        said.append(f"{'; '.join(told)}; the same question is asked once; of evaluations alone: what training asks of "
                    "them comes on top")  # fmt: skip
    for asked in found:
        if asked.system in ASKERS:
            continue
        conversation = _calls(settings, agent_class(settings.agents[asked.system]))
        few, usual, many = conversation.turn
        if many > 1:
            said.append(f"{asked.system}: {few:g} to {many:g} calls a turn, {usual:g} expected"
                        f"{f', and {conversation.once[1]:g} once for a case' if any(conversation.once) else ''}; "
                        f"{_WORDS} tokens of its own in a prompt")  # fmt: skip
    return [*said, "no discounts: neither batches nor prompts that a provider remembers; failed calls are not counted"]


def _between(found: Range, digits: int) -> str:
    return f"({found.least:,.{digits}f}..{found.most:,.{digits}f})"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) if n < 2 else cell.rjust(width) for n, (cell, width) in
                      enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]  # fmt: skip
