"""How much of a training rule's gain comes from better choice of examinations, and how much from better diagnosis of
the same results; and the validation results by which each rule's learning rate was chosen."""

import math
from pathlib import Path
from statistics import fmean

from ..evaluation.preflight import exact_accuracy
from ..evaluation.row import read_rows
from ..settings import Settings, resolve_variant
from . import layout
from .comparators import summary_with_tokens
from .curves import read_curves
from .methods import IN_DOMAIN, Method, grid_methods, is_synthetic, part_methods
from .results import Results
from .table import Column, Row, Sheet, Table

# The learning rates of every rule are compared by a utility in which a right diagnosis has this weight.
GRID_WEIGHT = 3.0


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return, from the results in ``folder``, a table per decoding of in-domain results beside the accuracy that exact
    diagnoses from the same examinations would have, and the table of learning rates. Raises as :class:`Results`, and
    TableError for a broken file of training metrics."""
    # In-domain alone, without a label, since these tables do not name the data set.
    results = Results(settings, folder, part_methods(settings), {IN_DOMAIN: ""})
    tables, csv_rows = [], []
    for decoding in results.decodings:
        rows = [summary_with_tokens(results, method, decoding) | _exact_columns(results, method, decoding)
                for method in results.methods]  # fmt: skip
        tables.append(layout.table(settings, "frontier_parts.levels", rows, decoding, remarks=results.notes()))
        csv_rows += [row | {"decoding": decoding, "variant": row["method"]} for row in rows]
    tables.append(_grid_table(settings, folder))
    return layout.declared_sheet(settings, "frontier_parts", tables, csv_rows)


def _exact_columns(results: Results, method: Method, decoding: str) -> Row:
    """Return two columns about the diagnoses that a method made from the examination results that it had gathered:

    - ``exact``: the accuracy (%) of the likeliest diagnosis from the same results, by Bayes' rule under the model that
      generated the cases;
    - ``reading``: what the method could gain by better reading of these results, ``exact`` minus its own accuracy.

    Empty where a run is missing, or where the cases are real, so that no model is known that generated them.
    """
    paths = [results.path(run, IN_DOMAIN) for run in method.runs]
    if not is_synthetic(results.settings, IN_DOMAIN) or not all(path.exists() for path in paths):
        return {}
    cases = results.folder / "cases" / f"{IN_DOMAIN}.jsonl"
    rows_by_run = [[row for row in read_rows(path) if row.decoding == decoding] for path in paths]
    own = fmean(fmean(row.correct for row in rows) for rows in rows_by_run)
    exact = fmean(exact_accuracy(results.settings, IN_DOMAIN, cases, rows) for rows in rows_by_run)
    return {"exact": 100 * exact, "reading": 100 * (exact - own)}


def _grid_table(settings: Settings, folder: Path) -> Table:
    """Return the table of validation results by learning rate,: a row per training rule and learning
    rate, a column per validated step. A value is 100 U / w, the utility in which a right diagnosis has the weight w
    (:data:`GRID_WEIGHT`), divided by w: the accuracy in % less what examinations cost. The best value of each rule is
    marked."""
    all_rows: list[Row] = []
    values_by_rule: dict[str, list[float]] = {}
    all_steps: dict[str, None] = {}  # each once, in order
    for method in grid_methods(settings):
        curves = read_curves(folder, method, ("accuracy", "utility"))
        accuracy, utility, steps = (curves.mean(name) for name in ("accuracy", "utility", "step"))
        costs = accuracy - utility  # the weight of a right diagnosis in the logged utility is 1
        values = 100 * (accuracy - costs / GRID_WEIGHT)
        # Step 0 is left out: it is before training, and the same for all.
        value_by_step = {f"{step:g}": float(value) for step, value in zip(steps, values, strict=True) if step}
        rate = resolve_variant(settings, method.name).training.learning_rate
        all_rows.append({"label": method.label, "rate": f"{rate:g}", "seeds": len(method.runs), **value_by_step})
        values_by_rule.setdefault(method.label, []).extend(value_by_step.values())
        all_steps |= dict.fromkeys(value_by_step)
    all_rows.sort(key=lambda row: list(values_by_rule).index(row["label"]))
    for row in all_rows:
        best = max(values_by_rule[row["label"]], default=math.inf)
        row |= {f"{step}_mark": "best" for step in all_steps if row.get(step) == best}
    columns = [Column(step, step, "100 U / w after so many iterations") for step in all_steps]
    return layout.table(settings, "frontier_parts.grid", all_rows, columns=columns, weight=GRID_WEIGHT,
                        validation_cases=settings.data.validation_cases)  # fmt: skip
