"""The in-domain results of policies that were trained with different ways to assign credit to actions, and what their
training took."""

from pathlib import Path
from typing import Any

import numpy as np

from ..settings import Settings
from . import comparisons, layout
from .curves import read_curves
from .methods import IN_DOMAIN, OURS, TRAINED, Method, comparator_methods
from .results import Results
from .table import Row, Sheet


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return two tables per decoding from the results in ``folder``: results with the tokens generated in training, and
    differences from CDPR.

    The CSV has a row per decoding and method. In it results are in printed units (accuracy in %), but differences from
    CDPR, ``change_*``, are not (accuracy as a fraction). Raises as :class:`Results`, and TableError for a broken file
    of training metrics.
    """
    results = Results(settings, folder, comparator_methods(settings))
    ours = results.method(OURS)
    pairs = [(method, ours, IN_DOMAIN) for method in results.methods if method.learned and method is not ours]
    words: dict[str, Any] = {"remarks": results.notes(), "base": ours.label}
    tables, csv_rows = [], []
    for decoding in results.decodings:
        levels = [summary_with_tokens(results, method, decoding) for method in results.methods]
        changes = comparisons.compare_pairs(results, pairs, decoding)
        words["findings"] = comparisons.describe_changes(changes, comparisons.IN_DOMAIN_METRICS)
        tables.append(layout.table(settings, "comparators.levels", levels, decoding, **words))
        tables.append(layout.table(settings, "comparators.changes", changes, decoding, **words))
        change_of = {row["method"]: comparisons.add_prefix("change_", row) for row in changes}
        for row in levels:
            names = {"decoding": decoding, "variant": row["method"], "method": row["label"]}
            csv_rows.append(row | change_of.get(row["method"], {}) | _printed_units(row) | names)
    return layout.declared_sheet(settings, "comparators", tables, csv_rows)


def summary_with_tokens(results: Results, method: Method, decoding: str) -> Row:
    """Return the in-domain results of a method as a row (:meth:`Results.summary`). The row of a trained method with
    training metrics also has ``tokens``: millions of tokens generated in training, a mean over seeds. Those of a run
    that diverged are counted up to its last validation. Raises TableError for a broken file of training metrics."""
    row = results.summary(method, IN_DOMAIN, decoding)
    if method.group != TRAINED:
        return row
    curves = read_curves(results.folder, method, ["accuracy"])  # they have the tokens at every validation
    if not curves.runs:
        return row
    tokens_by_seed = np.nanmax(curves.values["tokens"], axis=1)  # they are counted up: the last value is the largest
    return row | {"tokens": float(tokens_by_seed.mean()) / 1e6}


def _printed_units(row: Row) -> Row:
    """Return the metrics of a row, with their intervals and deviations between seeds, in the units that tables print:
    accuracy in %. Values that the row lacks are left out."""
    factors = {f"{metric.name}{end}": metric.factor
               for metric in comparisons.IN_DOMAIN_METRICS for end in ("", "_low", "_high", "_seed_sd")}  # fmt: skip
    return {column: factor * row[column] for column, factor in factors.items() if row.get(column) is not None}
