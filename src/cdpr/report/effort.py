"""The use of language models by each system: calls, tokens and dollars per case, and failed replies.

Bad replies and forced diagnoses explain rows of the main table that accuracy and cost alone do not.
"""

from dataclasses import asdict
from pathlib import Path

from ..llm.spending import spent
from ..settings import Settings, model_of
from ..settings.models import Prices
from . import comparisons, layout
from .methods import Method, main_methods, tier_mark
from .results import NotMeasured, Results
from .table import Row, Sheet, Table

_FIGURES = ("calls", "prompt_tokens", "completion_tokens", "invalid", "unmarked", "silent", "too_long", "refused",
            "failed", "cut", "cut_results", "forced", "usd", "usd_in_all")  # fmt: skip


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make a table per decoding of each system's calls, tokens and dollars. Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    parts = [effort_table(results, decoding, tier_mark(settings)) for decoding in results.decodings]
    return layout.declared_sheet(settings, "effort", parts, [row for _, table in parts for row in table.rows])


write_effort = comparisons.writer(sheet)


def spent_part(settings: Settings) -> list[tuple[str, Table]]:
    """Make the table of what was paid so far, by system and model, as ``cdpr spend`` shows it; empty where nothing
    was."""
    if not (bills := [asdict(bill) for bill in spent(settings.paths.state)]):
        return []
    numbers = [name for name, value in bills[0].items() if not isinstance(value, str)]
    total = {"system": "In all"} | {name: sum(bill[name] for bill in bills) for name in numbers}
    total |= {f"{key}_mark": "total" for key in total}
    return [layout.part(settings, "effort.spent", [*bills, total])]


def effort_table(results: Results, decoding: str, mark: str, label: str = "effort") -> tuple[str, Table]:
    """Make a table with a row per system and data set, and one row for a system that is not run."""
    pairs = ((m, d) for m in results.methods for d in (results.datasets if m.runs else ("",)))
    rows = [_row(results, method, dataset, decoding) for method, dataset in pairs]
    prices = {m.label: prices for m in results.methods if m.runs and (prices := _prices(results.settings, m))}
    notes = [f"{label}: {at.input:g} USD a million tokens asked, {at.output:g} answered ({at.source}, {at.date})."
             for label, at in prices.items()]  # fmt: skip
    return layout.part(results.settings, "effort.levels", rows, decoding, source=mark, table=label, prices=notes)


def _row(results: Results, method: Method, dataset: str, decoding: str) -> Row:
    """Average over the cases of all seeds; a figure that no record has stays empty."""
    row: Row = {"tier": results.settings.tier, "decoding": decoding, "group": method.group, "method": method.name,
           "label": method.label, "dataset": dataset, "dataset_text": results.datasets.get(dataset)}  # fmt: skip
    try:
        rows = results.rows(method, dataset, decoding).rename(columns={"n_invalid": "invalid"})
    except NotMeasured as error:
        return row | {"status": error.reason, "reason": error.reason}
    names = [name for name in _FIGURES if name in rows]
    means = dict(zip(names, rows[names].to_numpy(float).mean(axis=0).tolist(), strict=True))
    means["forced"] *= 100
    if prices := _prices(results.settings, method):
        usd = prices.usd(means["prompt_tokens"], means["completion_tokens"])
        means |= {"usd": usd, "usd_in_all": usd * len(rows)}
    row |= {"status": "measured", "cases": len(rows), "runs": results.behind(dataset, method)}
    return row | {name: value for name, value in means.items() if value == value}  # without NaN


def _prices(settings: Settings, method: Method) -> Prices | None:
    """Return the prices of the model behind a row, where a provider charges for it."""
    agent = settings.agents.get(method.name)
    model = model_of(settings, agent) if agent else None
    return model.prices if model else None
