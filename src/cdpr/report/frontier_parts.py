"""The parts of a rule's gain, from choices and from readings; and the grid that chose each rule's settings on
validation cases."""

from pathlib import Path
from statistics import fmean
from typing import Any

from ..evaluation.preflight import exact_accuracy
from ..evaluation.row import read_rows
from ..settings import Settings, resolve_variant
from . import comparisons, layout
from .comparators import with_tokens
from .curves import read_curves
from .methods import IN_DOMAIN, Method, grid_methods, part_methods, synthetic
from .results import Results
from .table import Column, Row, Sheet, Table

GRID_WEIGHT = 3.0  # weight of correctness in the figure by which the grid is judged, of every rule


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make a table per decoding of the parts in-domain, and the table of the grid. Raises as :class:`Results` and
    CurveError."""
    results = Results(settings, folder, part_methods(settings), {IN_DOMAIN: ""})
    parts, lines = [], []
    for decoding in results.decodings:
        rows = [row | _exact(results, method, decoding)
                for method, row in zip(results.methods, with_tokens(results, decoding), strict=True)]  # fmt: skip
        parts.append(layout.part(settings, "frontier_parts.levels", rows, decoding, remarks=results.remarks()))
        lines += [row | {"decoding": decoding, "variant": row["method"]} for row in rows]
    parts.append(_grid(settings, folder))
    return layout.declared_sheet(settings, "frontier_parts", parts, lines)


write_frontier_parts = comparisons.writer(sheet)


def _exact(results: Results, method: Method, decoding: str) -> Row:
    """Return, where the hospital is known, the exact posterior's accuracy on the results of the episodes (%)."""
    measured = all(results.path(run, IN_DOMAIN).exists() for run in method.runs)
    if not (measured and synthetic(results.settings, IN_DOMAIN)):
        return {}
    cases, right, exact = results.folder / "cases" / f"{IN_DOMAIN}.jsonl", [], []
    for run in method.runs:
        rows = [row for row in read_rows(results.path(run, IN_DOMAIN)) if row.decoding == decoding]
        right.append(fmean(row.correct for row in rows))
        exact.append(exact_accuracy(results.settings, IN_DOMAIN, cases, rows))
    return {"exact": 100 * fmean(exact), "reading": 100 * (fmean(exact) - fmean(right))}


def _grid(settings: Settings, folder: Path) -> tuple[str, Table]:
    """Make a table with a row per rule and learning rate, a column per validated step; each rule's best is marked."""
    by_rule: dict[str, list[tuple[Method, dict[str, float]]]] = {}
    for method in grid_methods(settings):
        curves = read_curves(folder, method, ("accuracy", "utility"))
        accuracy, utility = (curves.mean(name) for name in ("accuracy", "utility"))
        values = accuracy - (accuracy - utility) / GRID_WEIGHT
        by_step = {f"{step:g}": float(value) for step, value in zip(curves.mean("step"), values, strict=True) if step}
        by_rule.setdefault(method.label, []).append((method, by_step))
    steps = list(dict.fromkeys(step for rows in by_rule.values() for _, by_step in rows for step in by_step))
    lines = []
    for rule, rows in by_rule.items():
        best = max((value for _, by_step in rows for value in by_step.values()), default=None)
        for method, by_step in rows:
            rate = resolve_variant(settings, method.name).training.learning_rate
            marks = {f"{step}_mark": "best" for step, value in by_step.items() if value == best}
            values = {step: 100 * value for step, value in by_step.items()}
            lines.append({"label": rule, "rate": f"{rate:g}", "seeds": len(method.runs)} | values | marks)
    columns = [Column(step, step, "100 U / w after so many iterations") for step in steps]
    words: dict[str, Any] = {"validation_cases": settings.data.validation_cases, "weight": GRID_WEIGHT}
    return layout.part(settings, "frontier_parts.grid", lines, columns=columns, **words)
