"""How each agent used language models: calls, tokens and dollars per case, and replies that could not be used.

These numbers explain rows of the main table that accuracy and cost alone do not.
"""

import math
from pathlib import Path
from typing import Any

from ..settings import Settings, model_of
from ..settings.models import Prices
from . import layout
from .methods import Method, main_methods
from .results import NotMeasured, Results, evaluations_of
from .table import Row, Sheet, Table


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of each agent's calls, tokens and dollars per case, from the results in ``folder``.
    Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    tables = [effort_table(results, decoding) for decoding in results.decodings]
    return layout.declared_sheet(settings, "effort", tables, [row for table in tables for row in table.rows])


def effort_table(results: Results, decoding: str, table: str = "effort.levels", **words: Any) -> Table:
    """Return the table of calls, tokens and dollars per case: a row per agent and data set, and a row
    with the reason for an agent that is not run. ``table`` is the name of a declaration, and ``words`` are further
    words for it (:func:`~.layout.table`)."""
    rows, price_notes = [], []
    for method in results.methods:
        for dataset in results.datasets if method.runs else [""]:  # without runs, a single row with the reason
            rows.append(_effort_row(results, method, dataset, decoding))
        if method.runs and (prices := _prices(results.settings, method)):
            price_notes.append(f"{method.label}: {prices.input:g} USD a million tokens asked, {prices.output:g} "
                               f"answered ({prices.source}, {prices.date}).")  # fmt: skip
    return layout.table(results.settings, table, rows, decoding, prices=price_notes, **words)


def _effort_row(results: Results, method: Method, dataset: str, decoding: str) -> Row:
    """Return calls, tokens, dollars and failed replies of an agent as a row: means of the fields of
    :class:`~cdpr.evaluation.row.EvaluationRow` over the cases and seeds of a data set. ``invalid`` is the mean of
    ``n_invalid``, and ``forced`` is in %. ``usd`` is computed from the tokens; ``usd_in_all`` is its sum over cases and
    seeds. A mean is left out where a case lacks the value, such as tokens that a server did not report. Where a run is
    missing, the row has the ``reason``."""
    row: Row = {"tier": results.settings.tier, "decoding": decoding, "group": method.group, "method": method.name,
                "label": method.label, "dataset": dataset,
                "dataset_text": results.datasets.get(dataset)}  # fmt: skip
    try:
        rows = results.rows(method, dataset, decoding).rename(columns={"n_invalid": "invalid"})
    except NotMeasured as error:
        return row | {"status": error.reason, "reason": error.reason}
    # A value that a case lacks is NaN, and so is the mean.
    means = rows.select_dtypes(["number", "bool"]).mean(skipna=False).to_dict()
    means["forced"] *= 100
    if prices := _prices(results.settings, method):
        means["usd"] = prices.usd(means.get("prompt_tokens", math.nan), means.get("completion_tokens", math.nan))
        means["usd_in_all"] = means["usd"] * len(rows)
    row |= {"status": "measured", "cases": len(rows), "runs": evaluations_of(method, dataset)}
    return row | {name: mean for name, mean in means.items() if not math.isnan(mean)}


def _prices(settings: Settings, method: Method) -> Prices | None:
    """Return the token prices of the model that an agent uses; None where no provider charges for it."""
    agent = settings.agents.get(method.name)
    model = model_of(settings, agent) if agent else None
    return model.prices if model else None
