"""What a reader wants first: does CDPR beat GRPO and the backbone here, in accuracy and in cost?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..evaluation.metrics import Comparison, Estimate, Metric
from ..results.frame import ACCURACY, AEC, UTILITY, favour, interval_cell
from ..results.methods import AVERAGE, IN_DOMAIN, OURS, Method
from ..results.results import Hole, Results
from ..results.table import Cell, Column, Heading, Row, Table, number

RIVALS = ("grpo", "warm_start")
PLACES = {IN_DOMAIN: "In-domain", AVERAGE: "Average of the data sets"}
# What is asked about: metric, header, unit, and words for what the interval of a difference shows.
ASKED: tuple[tuple[Metric, str, str, dict[str, str]], ...] = (
    (ACCURACY, "Accuracy (%)", " points",
     {"better": "more accurate", "worse": "less accurate", "": "accuracy is open"}),
    (AEC, "Cost per case (USD)", " USD",
     {"better": "cheaper", "worse": "costlier", "": "cost is open"}),
    (UTILITY, "Utility", "", {}),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """Ours against one rival at one place, in words."""

    place: str
    question: str
    short: str
    sentence: str


def headline(results: Results, decoding: str) -> tuple[list[Answer], Table]:
    """The questions with their answers, in-domain first, and a small table: per place the methods, then ours minus each
    rival."""
    ours, rivals = results.method(OURS), [results.method(name) for name in RIVALS]
    columns = [Column("method", "Method", align="l"), *(Column(m.name, header) for m, header, *_ in ASKED)]
    answers, rows = [], []
    for place, label in PLACES.items():
        comparisons = [(rival, results.compare(ours, rival, place, decoding)) for rival in rivals]
        answers += [_answer(results, label, ours, rival, at) for rival, at in comparisons]
        rows.append(Heading(label))
        rows += [_level(results, method, place, decoding) for method in (ours, *rivals)]
        rows.append(Heading(f"{label}: ours minus theirs"))
        rows += [_change(results, ours, rival, at) for rival, at in comparisons]
    return answers, Table(columns, rows)


def short(at: Comparison) -> str:
    """Yes, in part, no or open, judged by accuracy and cost: ``In part: cheaper, but less accurate``."""
    if at.void:
        return f"Open: {at.void}"
    verdicts = [favour(at, metric) for metric, *_ in ASKED[:2]]
    both = [words[verdict] for verdict, (*_, words) in zip(verdicts, ASKED, strict=False)]
    if verdicts == ["better", "better"]:
        return f"Yes: {both[0]} and {both[1]}"
    if "better" in verdicts:
        good, other = both if verdicts[0] == "better" else reversed(both)
        return f"In part: {good}, {'but ' if 'worse' in verdicts else ''}{other}"
    return f"{'No' if 'worse' in verdicts else 'Open'}: {both[0]}, {both[1]}"


def sentence(at: Mapping[str, Estimate]) -> str:
    """The differences with intervals, and how many seeds agree with their signs."""
    parts = []
    for metric, header, unit, _ in ASKED:
        parts.append(
            f"{header.partition(' (')[0].lower()} {interval_cell(metric, at[metric.name], signed=True).text}{unit}"
        )
    seeds = at["accuracy"].by_seed
    text = f"Ours minus theirs: {'; '.join(parts)}."
    if len(seeds) > 1:
        same = [sum(value * at[name].mean > 0 for value in at[name].by_seed) for name in ("accuracy", "aec")]
        text += f" Of {len(seeds)} seeds, {same[0]} agree on the sign for accuracy and {same[1]} for cost."
    return text


def _level(results: Results, method: Method, place: str, decoding: str) -> Row:
    estimates = results.estimates(method, place, decoding)
    if isinstance(estimates, Hole):
        return Row({"method": method.label}, estimates.reason)
    runs, cells = results.behind(place, method), {}
    for metric, *_ in ASKED:
        of = estimates[metric.name]
        spread = "" if of.seed_sd is None else f"seed SD {number(of.seed_sd * metric.factor, metric.decimals)}"
        cells[metric.name] = Cell(text=interval_cell(metric, of).text, runs=runs, note=spread)
    return Row({"method": _name(results, method.label, len(method.runs), *method.runs), **cells})


def _change(results: Results, ours: Method, rival: Method, at: Comparison | Hole) -> Row:
    label = f"{ours.label} − {rival.label}"
    if isinstance(at, Hole):
        return Row({"method": label}, at.reason)
    cells = {}
    for metric, *_ in ASKED:
        of = at.differences[metric.name]
        by_seed = ", ".join(number(value * metric.factor, metric.decimals, True) for value in of.by_seed)
        spread = f"by seed {by_seed}" if len(of.by_seed) > 1 else ""
        cells[metric.name] = Cell(
            None, favour(at, metric), interval_cell(metric, of, signed=True).text, at.runs, spread
        )
    return Row({"method": _name(results, label, len(of.by_seed), *ours.runs, *rival.runs), **cells})


def _name(results: Results, label: str, seeds: int, *runs: str) -> Cell:
    notes = [f"{seeds} seed{'s' if seeds > 1 else ''}", *results.diverged(*runs)]
    return Cell(label, note="; ".join(notes))


def _answer(results: Results, place: str, ours: Method, rival: Method, at: Comparison | Hole) -> Answer:
    rival_name = (
        rival.label if rival.name != "warm_start" else f"its backbone ({rival.label[0].lower()}{rival.label[1:]})"
    )
    question = f"Does {ours.label} beat {rival_name}?"
    if isinstance(at, Hole):
        return Answer(place, question, "Not known", f"{at.reason}.")
    broken = "; ".join(results.diverged(*ours.runs, *rival.runs))
    note = f" {broken}: evaluated with the weights before." if broken else ""
    return Answer(place, question, short(at), sentence(at.differences) + note)
