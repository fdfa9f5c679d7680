"""Ways to assign credit, side by side: what each policy does in-domain, and what its training cost."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import numpy as np

from ..evaluation.metrics import Summary
from ..job import Job
from ..results.curves import read_curves
from ..results.methods import IN_DOMAIN, TRAINED, Method, comparator_methods, tier_mark
from ..results.results import Hole, Results, results_folder
from ..results.rows import (
    IN_DOMAIN_METRICS,
    Cells,
    in_domain_caption,
    interval_columns,
    line,
    long_table,
    method_rows,
    numbers,
)
from ..results.table import Column, Sheet, Table
from ..settings import Settings


def write_comparators(settings: Settings, job: Job) -> None:
    """Write the table as CSV, Markdown and LaTeX. Missing evaluations become labelled holes. Raises ProvenanceError for
    results that do not belong together, CurveError for a broken metrics file."""
    comparators_sheet(settings, results_folder(settings, job)).write(job.out["csv"].with_suffix(""))


def comparators_sheet(settings: Settings, folder: Path) -> Sheet:
    """One table per decoding."""
    results = Results(settings, folder, comparator_methods(settings))
    parts = [(f"{decoding.capitalize()} decoding", _levels(results, decoding)) for decoding in results.decodings]
    return Sheet(f"Ways to assign credit ({tier_mark(settings)})", parts, _long(results))


def _levels(results: Results, decoding: str) -> Table:
    """A row per method: the in-domain metrics with 95% intervals, training minutes and tokens (millions) per run."""
    columns = [Column("method", "Method", align="l"), *interval_columns(IN_DOMAIN_METRICS),
               Column("minutes", "Training (min)", decimals=1), Column("tokens", "Tokens (M)")]  # fmt: skip

    def more(method: Method, summary: Summary) -> Cells:
        return _cost(results, method)

    rows = method_rows(results, IN_DOMAIN_METRICS, decoding, [m.name for m in results.methods if m.learned], more)
    text = (
        f"{in_domain_caption(results.settings, decoding)} Training: mean over seeds, without validation; tokens with "
        "probes and continuations."
    )
    return Table(columns, rows, text, results.divergences(), f"tab:comparators_{decoding}")


def _long(results: Results) -> Table:
    """One line per decoding and method, in the units of the table."""
    lines = []
    for decoding in results.decodings:
        for method in results.methods:
            cells = line(results, method, IN_DOMAIN, decoding) | {"variant": method.name, "method": method.label}
            summary = results.summary(method, IN_DOMAIN, decoding)
            if not isinstance(summary, Hole):
                cells |= _cost(results, method)
                for metric in IN_DOMAIN_METRICS:
                    cells |= numbers(metric.name, summary.estimates[metric.name], metric.factor)
            lines.append(cells | {"decoding": decoding})
    names = ("decoding", "variant", "method", "status")
    return long_table(lines, names, [metric.name for metric in IN_DOMAIN_METRICS], ("minutes", "tokens"))


def _cost(results: Results, method: Method) -> dict[str, float]:
    """Minutes and tokens (millions) at the end of training, of a run that diverged at its last validation."""
    if method.group != TRAINED:
        return {}
    curves = read_curves(results.folder, method, ("accuracy",))
    if not curves.runs:
        return {}
    seconds, tokens = (np.nanmax(curves.axes[axis], axis=1) for axis in ("seconds", "tokens"))
    return {"minutes": fmean(seconds) / 60, "tokens": fmean(tokens) / 1e6}
