"""What each system asks of its language model: calls, tokens and dollars a case, and what went wrong with its replies.

Bad replies and forced diagnoses explain rows of the main table that accuracy and cost alone do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import numpy as np

from ..job import Job
from ..llm.spending import spent
from ..results import frame
from ..results.methods import Method, main_methods, tier_mark
from ..results.results import Hole, Results, results_folder
from ..results.table import Cell, Column, Heading, Row, Sheet, Table
from ..settings import Settings, model_of
from ..settings.models import Prices

# Means over cases: name, header, field of a row, factor, decimals.
_MEANS = (
    ("calls", "Calls", "calls", 1, 2),
    ("prompt_tokens", "Tokens asked", "prompt_tokens", 1, 0),
    ("completion_tokens", "answered", "completion_tokens", 1, 0),
    ("invalid", "Invalid replies", "n_invalid", 1, 2),
    ("unmarked", "Unmarked answers", "unmarked", 1, 2),
    ("silent", "Silent calls", "silent", 1, 2),
    ("too_long", "too long", "too_long", 1, 2),
    ("forced", "Forced %", "forced", 100, 1),
)
# As the fields of what is spent stand.
_SPENT = {column.key: column for column in (
    Column("system", "System", align="l"), Column("model", "Model", align="l"), Column("calls", "Calls"),
    Column("prompt_tokens", "Tokens asked"), Column("completion_tokens", "answered"), Column("usd", "USD", decimals=4),
    Column("unknown_calls", "Calls", "Of it unknown"), Column("unknown_usd", "USD", "Of it unknown", decimals=4),
    Column("reserved_usd", "USD under way", decimals=4),
)}  # fmt: skip
_DOLLARS = (("usd", "USD", 4), ("usd_in_all", "USD in all", 2))


def write_effort(settings: Settings, job: Job) -> None:
    """Write the table; missing evaluations become labelled holes. Raises as :class:`Results` does."""
    sheet(settings, results_folder(settings, job)).write(job.out)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding what each system took. Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    mark = tier_mark(settings)
    parts = [(f"{one.capitalize()} decoding", effort_table(results, one, mark)) for one in results.decodings]
    lines = [line for decoding in results.decodings for line in _lines(results, decoding)]
    names = ("tier", "decoding", "group", "method", "label", "dataset", "status", "cases")
    measured = [name for name, *_ in (*_MEANS, *_DOLLARS)]
    return Sheet(f"Effort ({mark})", parts, frame.long_table(lines, names, (), measured))


def spent_table(state: str) -> Table | None:
    """What was paid so far, by system and model, as ``cdpr spend`` tells it; None where nothing was."""
    if not (effort := spent(state)):
        return None
    rows: list[Row | Heading] = [Row(dict(zip(_SPENT, astuple(one), strict=True))) for one in effort]
    sums = [sum(values) for values in list(zip(*map(astuple, effort), strict=True))[2:]]
    total = {name: Cell(value, mark="total") for name, value in zip(_SPENT, ("In all", "", *sums), strict=True)}
    notes = [
        "The bill of all runs with the same paths.state, when this page was made: failed attempts, earlier results, "
        "judge and matcher are in it, and recorded answers cost nothing again.",
        "Of it unknown: the worst case of calls that timed out or whose process was killed; they may have been billed.",
    ]
    return Table(list(_SPENT.values()), [*rows, Row(total)], "Spent so far, in US dollars.", notes, "tab:spent")


def effort_table(results: Results, decoding: str, mark: str, label: str = "effort") -> Table:
    """A row per system and data set; one for a system that is not run."""
    columns = [
        frame.METHOD, frame.DATA_SET, Column("cases", "N"),
        *(Column(name, header, decimals=decimals) for name, header, _, _, decimals in _MEANS),
        *(Column(name, header, decimals=decimals) for name, header, decimals in _DOLLARS),
    ]  # fmt: skip
    rows: list[Row | Heading] = []
    keys = {column.key for column in columns}
    for line in _lines(results, decoding):
        head = {"method": line["label"], "dataset": results.datasets.get(line["dataset"])}
        heading = Heading(line["group"])
        rows += [] if heading in rows else [heading]
        cells = {key: cell for key, cell in (line | head).items() if key in keys}
        rows.append(Row(cells if "cases" in line else head, "" if "cases" in line else line["status"]))
    text = f"What was asked per case, {decoding} decoding ({mark}); means over cases and seeds."
    return Table(columns, rows, text, _notes(results), f"tab:{label}_{decoding}")


def _lines(results: Results, decoding: str) -> Iterator[frame.Cells]:
    for method in results.methods:
        for dataset in results.datasets if method.runs else ("",):
            yield _line(results, method, dataset, decoding)


def _line(results: Results, method: Method, dataset: str, decoding: str) -> frame.Cells:
    """Means over the cases of all seeds; a figure that no record holds stays empty."""
    head = {"tier": results.settings.tier, "decoding": decoding, "group": method.group, "method": method.name,
            "label": method.label, "dataset": dataset}  # fmt: skip
    evaluations = results.evaluations(method, dataset, decoding)
    if isinstance(evaluations, Hole):
        return head | {"status": evaluations.reason}
    means = {
        name: factor * float(np.mean([e.columns[field] for e in evaluations])) for name, _, field, factor, _ in _MEANS
    }
    cases = sum(len(e.note_ids) for e in evaluations)
    dollars: dict[str, float] = {}
    if prices := _prices(results.settings, method):
        usd = prices.usd(means["prompt_tokens"], means["completion_tokens"])
        dollars = {"usd": usd, "usd_in_all": usd * cases}
    runs = results.behind(dataset, method)
    cells = {name: Cell(value, runs=runs) for name, value in (means | dollars).items() if not math.isnan(value)}
    return head | {"status": "measured", "cases": cases} | cells


def _prices(settings: Settings, method: Method) -> Prices | None:
    """What the model behind a row costs, where a provider charges for it."""
    agent = settings.agents.get(method.name)
    model = model_of(settings, agent) if agent else None
    return model.prices if model else None


def _notes(results: Results) -> list[str]:
    notes = [
        "Tokens as the server counts them; empty where it does not report them. Answer tokens include the thoughts "
        "before an answer. Unmarked: answers without the mark behind which the model puts them; their whole text "
        "was read.",
        "Silent calls brought no word; too long: those of them whose conversation exceeded what the model reads.",
        "Invalid replies name neither an examination nor a diagnosis. USD: these tokens at the prices of "
        "workflow/models.yaml, without discounts: an upper bound, whether answers were bought or replayed.",
    ]
    for method in results.methods:
        if method.runs and (prices := _prices(results.settings, method)):
            notes.append(f"{method.label}: {prices.input:g} USD a million tokens asked, {prices.output:g} answered "
                         f"({prices.source}, {prices.date}).")  # fmt: skip
    return notes
