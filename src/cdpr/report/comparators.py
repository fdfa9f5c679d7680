"""Ways to assign credit, side by side: the in-domain results of each policy, and the price of its training."""

from pathlib import Path
from typing import Any

import numpy as np

from ..settings import Settings
from . import comparisons, layout
from .curves import read_curves
from .methods import IN_DOMAIN, OURS, TRAINED, comparator_methods
from .results import Results
from .table import Row, Sheet

METRICS = comparisons.IN_DOMAIN_METRICS
_ENDS = ("", "_low", "_high", "_seed_sd")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make, per decoding, the tables of figures with the tokens of training, and of changes against CDPR; as plain
    numbers a line per decoding and method, in its units; ``change_*`` (accuracy as a share) is against CDPR. Raises as
    :class:`Results` does."""
    results = Results(settings, folder, comparator_methods(settings))
    ours, others = results.method(OURS), [m for m in results.methods if m.learned and m.name != OURS]
    parts, lines = [], []
    for decoding in results.decodings:
        changes = comparisons.changes(results, [(method, ours, IN_DOMAIN) for method in others], decoding)
        rows, readings = with_tokens(results, decoding), comparisons.readings(changes, METRICS)
        words: dict[str, Any] = {"remarks": results.remarks(), "base": ours.label, "readings": readings}
        parts += [layout.part(settings, "comparators.levels", rows, decoding, **words),
                  layout.part(settings, "comparators.changes", changes, decoding, **words)]  # fmt: skip
        differences = {m.name: comparisons.prefixed("change_", row) for m, row in zip(others, changes, strict=True)}
        for row in rows:
            printed = {f"{m.name}{end}": m.factor * row[f"{m.name}{end}"] for m in METRICS for end in _ENDS
                       if row.get(f"{m.name}{end}") is not None}  # fmt: skip
            lines.append(row | differences.get(row["method"], {}) | printed | {
                "decoding": decoding, "variant": row["method"], "method": row["label"]})  # fmt: skip
    return layout.declared_sheet(settings, "comparators", parts, lines)


write_comparators = comparisons.writer(sheet)


def with_tokens(results: Results, decoding: str) -> list[Row]:
    """Return in-domain rows of all methods; trained ones have the tokens (millions) at the end of training, or at the
    last validation of a run that diverged."""
    rows = []
    for method in results.methods:
        row = results.summary(method, IN_DOMAIN, decoding)
        curves = read_curves(results.folder, method, ("accuracy",)) if method.group == TRAINED else None
        tokens = np.nanmax(curves.values["tokens"], axis=1) if curves and curves.runs else None
        rows.append(row if tokens is None else row | {"tokens": float(tokens.mean()) / 1e6})
    return rows
