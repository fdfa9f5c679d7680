"""``cdpr spend``: what was spent on language models, and a forecast for a table before anything is sent."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from ..agents.build import agent_class
from ..agents.framework import Calls, Framework
from ..cases import iterate_records
from ..environment.prompt import opening_messages
from ..llm.recording import Recordings
from ..llm.spending import Spent, spent, unpriced
from ..report.paper import read_paper
from ..settings import AgentEntry, ModelEntry, Settings, SettingsError, model_of
from ..settings.datasets import DATASETS, FURTHER, IN_DOMAIN, benchmark_of
from .evidence import EVIDENCE
from .experiment import Experiment

_BYTES = 4  # of English text in a token
_PRESENTATION, _RESULT, _RECORD = 500, 120, 30 * 120  # tokens of a presentation, a result, and all results of a case
_TURNS = 4.0  # of a workup of an agent whose examinations the paper does not print
_REPLY, _THOUGHT, _SHORTEST = 150, 1000, 30  # tokens of an answer, of one with thoughts before it, of the shortest
_WORDS = 700  # tokens of a framework's own words, and of the conversation so far, in each of its prompts
_NOT_COUNTED = "judges, the matcher, the expert study, training, failed calls"
_NO_PRICE = ("no price: open models without `prices`. On your own machines they cost nothing; before you use somebody "
             "else's host, name `prices` in the model's entry.")  # fmt: skip
_EVERYWHERE = "http://127.0.0.1/v1"  # stands for a server without an address


@dataclass(frozen=True)
class Forecast:
    """Calls, tokens of prompts and answers, and US dollars of a system, each at least, as expected and at most: arrays
    of shape [3]. ``recorded`` of its calls have answers already: tokens and dollars are those of the others. ``usd``
    is None without prices; ``unpriced``: the server is not one's own either, so that the price is unknown."""

    system: str
    model: str
    cases: int
    calls: np.ndarray
    prompt: np.ndarray
    completion: np.ndarray
    usd: np.ndarray | None
    recorded: int
    date: str
    unpriced: bool


def plan_spending(experiment: Experiment, target: str) -> list[Forecast]:
    """A forecast for every system behind a target, ready or not. Raises SettingsError for no table or figure."""
    settings, printed, everything = experiment.settings, read_paper(), _with_all_models(experiment.settings)
    pairs = dict.fromkeys(pair for stage in _stages(target) for pair in everything.evidence(stage).evaluations)
    recorded, forecasts = Counter[str](), []
    for credentialed in (False, True):
        if Recordings.exist(experiment.state, credentialed):
            journal = Recordings(experiment.state, credentialed).journal
            recorded.update(dict(journal.read("SELECT system, COUNT(*) FROM uses GROUP BY system")))
    for run in dict.fromkeys(run for run, _ in pairs):
        entry = settings.agents.get(run)
        if entry is None or (model := model_of(settings, entry)) is None:
            continue
        cases = {dataset: _cases(experiment, dataset, printed) for name, dataset in pairs if name == run}
        rows = {d: printed.get(f"main:{entry.paper}:{benchmark_of(d)}.aen", _TURNS - 1) for d in cases}
        extent = sum(count * _workup(settings, entry, model, float(rows[d]) + 1) for d, count in cases.items())
        calls, *tokens = len(settings.evaluation.decodings) * np.asarray(extent)
        prompt, completion = np.array(tokens) * max(0.0, 1 - recorded[run] / max(calls[1], 1))
        prices = model.prices
        forecasts.append(Forecast(
            run, model.id or model.label or model.where or "", sum(cases.values()), calls, prompt, completion,
            np.array([prices.usd(*pair) for pair in zip(prompt, completion, strict=True)]) if prices else None,
            recorded[run], prices.date if prices else "", unpriced(model, None if model.folder else model.where),
        ))  # fmt: skip
    return forecasts


def render_plan(settings: Settings, forecasts: Sequence[Forecast]) -> str:
    """A forecast as text, with its assumptions."""
    if not forecasts:
        return f"No evaluation behind this target asks a model of workflow/models.yaml.\nNot counted: {_NOT_COUNTED}."
    rows = [("system", "model", "cases", "calls", "(least..most)", "recorded", "M in", "M out", "USD", "(least..most)",
             "price of")]  # fmt: skip
    for f in forecasts:
        price = ("?", "not known") if f.unpriced else ("-", "no price")
        if f.usd is not None:
            price = f"{f.usd[1]:,.2f}", f"({f.usd[0]:,.2f}..{f.usd[2]:,.2f})"
        rows.append((f.system, f.model, f"{f.cases:,}", f"{f.calls[1]:,.0f}", f"({f.calls[0]:,.0f}..{f.calls[2]:,.0f})",
                     f"{f.recorded:,}", f"{f.prompt[1] / 1e6:,.2f}", f"{f.completion[1] / 1e6:,.2f}", *price, f.date)
                    )  # fmt: skip
    few, usual, many = sum((f.usd for f in forecasts if f.usd is not None), np.zeros(3))
    unknown, decodings = sorted({f.system for f in forecasts if f.unpriced}), settings.evaluation.decodings
    known = sum(min(f.recorded, f.calls[1]) for f in forecasts)
    how_often = "once" if len(decodings) == 1 else f"{len(decodings)} times"
    return "\n".join([
        *_aligned(rows), "",
        f"{sum(f.calls[1] for f in forecasts):,.0f} calls are expected, {known:,.0f} of them with recorded answers; "
        f"the others cost {usual:,.2f} USD (least {few:,.2f}, most {many:,.2f}) where prices are known.",
        *([_NO_PRICE] if any(f.usd is None and not f.unpriced for f in forecasts) else []),
        *([f"NOT in this sum: {', '.join(unknown)}. The price of their answers is unknown: name `prices` in the "
           "model's entry ({input: 0, output: 0} where they are free)."] if unknown else []),
        f"{_budget(settings.calls.budget_usd)}.", "", "Assumed:",
        f"- every case is worked up {how_often} (evaluation.decodings: {', '.join(decodings)})",
        f"- tokens: {_PRESENTATION} of a presentation, {_RESULT} of a result, {_REPLY} of an answer, {_THOUGHT:,} "
        "where the model thinks first",
        f"- turns: the paper's examinations of the row and one more, {_TURNS:g} where it prints none; at most "
        f"environment.max_turns, {settings.environment.max_turns}; every turn reads all before",
        f"- not counted: {_NOT_COUNTED}; no discounts",
    ])  # fmt: skip


def _stages(target: str) -> list[str]:
    name = {"reproduce_paper": "report"}.get(target, target)
    if stages := [stage for stage in (f"write_{name}", f"plot_{name}", name) if stage in EVIDENCE]:
        return stages
    known = sorted({stage.partition("_")[2] for stage in EVIDENCE})
    raise SettingsError(f"{target} is no table or figure; name one of: {', '.join(known)}")


def _with_all_models(settings: Settings) -> Experiment:
    """The plan as if every agent could be run."""
    models = {name: entry.model_copy(update={"at": entry.where or _EVERYWHERE, "enabled": True})
              for name, entry in settings.models.items()}  # fmt: skip
    ready = {name: entry.model_copy(update={"why": ""}) for name, entry in settings.agents.items() if entry.model}
    return Experiment(settings.model_copy(update={"models": models, "agents": settings.agents | ready}))


def _workup(settings: Settings, entry: AgentEntry, model: ModelEntry, turns: float) -> np.ndarray:
    """Calls, and tokens of prompts and answers, of a workup: shape [3, 3], each at least, as expected and at most."""
    kind, calls = agent_class(entry), Calls((1, 1, 1), settings.evaluation.max_turn_tokens)
    calls = kind.calls(settings) if issubclass(kind, Framework) else calls
    prompt = settings.environment.prompt.model_copy(update={"style": "full"})
    opening = sum(len(m["content"].encode()) for m in opening_messages(prompt, "")) / _BYTES + _PRESENTATION
    opening += _WORDS * (issubclass(kind, Framework) and calls.turn[2] > 1) + _RECORD * kind.whole_record
    longest = max(calls.longest, model.sampling.max_tokens or 0)
    reply = np.array([_SHORTEST, min(_THOUGHT if model.answer else _REPLY, longest), longest])
    at_once = kind.whole_record or entry.acts.endswith(":ImmediateAgent")
    most = 1 if at_once else settings.environment.max_turns + (settings.environment.forced_turn == "extra")
    acts = np.array([1, min(turns, most), most])
    turn = np.array(calls.turn)
    count = turn * acts + calls.once
    history = turn * acts * (acts - 1) / 2 * (_RESULT + _REPLY)  # every turn reads all results before it
    return np.array([count, count * opening + history, count * reply])


def _cases(experiment: Experiment, dataset: str, printed: Mapping[str, float]) -> int:
    """Test cases of a data set: those of its file; without a file, as many as the settings or the paper say."""
    settings, name = experiment.settings, benchmark_of(dataset)
    limit = settings.evaluation.open_cases.cases if name in FURTHER else None
    path = Path(experiment.results, "cases", f"{name}.jsonl")
    if path.exists():
        count = sum(1 for _ in iterate_records(path, "test"))
        return count if limit is None else min(limit, count)
    if name == IN_DOMAIN:
        return settings.data.test_cases
    if name in FURTHER:
        return limit or 0
    if settings.data.source(name).path is None and DATASETS[name].size:
        return getattr(settings.hospital, DATASETS[name].size)
    return int(printed.get(f"text:cases.{name}", 0))


def render_spent(state: str, budget: float | None) -> str:
    """What was spent, for people."""
    bills = spent(state)
    if not bills:
        return f"Nothing was spent: {state} holds no call of a model with prices; other models are not listed."
    counted = [field.name for field in fields(Spent) if field.name not in ("system", "model")]
    total = Spent("total", "", *(sum(getattr(bill, name) for bill in bills) for name in counted))
    head = ("system", "model", "calls", "tokens in", "tokens out", "USD", "of it unknown", "under way")
    rows = [(s.system or "-", s.model, f"{s.calls:,}", f"{s.prompt_tokens:,}", f"{s.completion_tokens:,}",
             f"{s.usd:,.4f}", f"{s.unknown_usd:,.4f} ({s.unknown_calls:,})", f"{s.reserved_usd:,.4f}")
            for s in [*bills, total]]  # fmt: skip
    lines = [*_aligned([head, *rows]), ""]
    if total.unknown_calls:
        lines.append(f"Unknown: {total.unknown_calls:,} calls timed out, or their process was killed; they may have "
                    "been billed, and count as spent in their worst case.")  # fmt: skip
    left = "" if budget is None else f"; {max(0.0, budget - total.usd - total.reserved_usd):,.2f} USD are left"
    return "\n".join([*lines, f"{_budget(budget)}{left}."])


def _budget(usd: float | None) -> str:
    return f"calls.budget_usd is {'not set' if usd is None else f'{usd:,.2f}'}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; all but the first two columns are numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) if n < 2 else cell.rjust(width) for n, (cell, width) in
                      enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]  # fmt: skip
