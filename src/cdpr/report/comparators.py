"""Ways to assign credit, side by side: what each policy does in-domain, and what its training cost."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from ..job import Job
from ..results import frame
from ..results.curves import read_curves
from ..results.methods import IN_DOMAIN, TRAINED, Method, comparator_methods, tier_mark
from ..results.results import Hole, Results, results_folder
from ..results.table import Column, Sheet, Table
from ..settings import Settings

METRICS = frame.IN_DOMAIN_METRICS


def write_comparators(settings: Settings, job: Job) -> None:
    """Write the table; missing evaluations become labelled holes. Raises as :class:`Results` does."""
    results = Results(settings, results_folder(settings, job), comparator_methods(settings))
    parts = [(f"{decoding.capitalize()} decoding", _levels(results, decoding)) for decoding in results.decodings]
    Sheet(f"Ways to assign credit ({tier_mark(settings)})", parts, _long(results)).write(job.out)


def _levels(results: Results, decoding: str) -> Table:
    """A row per method: the in-domain metrics with 95% intervals, training minutes and tokens (millions) per run."""
    columns = [frame.METHOD, *frame.interval_columns(METRICS), Column("minutes", "Training (min)", decimals=1),
               Column("tokens", "Tokens (M)")]  # fmt: skip
    rivals = [method.name for method in results.methods if method.learned]
    rows = frame.method_rows(results, METRICS, decoding, rivals, lambda method, _: _cost(results, method))
    text = (f"{frame.in_domain_caption(results.settings, decoding)} Training: mean over seeds, without validation; "
            "tokens with probes and continuations.")  # fmt: skip
    return Table(columns, rows, text, results.divergences(), f"tab:comparators_{decoding}")


def _long(results: Results) -> Table:
    """One line per decoding and method, in the units of the table."""
    lines = []
    for decoding in results.decodings:
        for method in results.methods:
            cells = frame.line(results, method, IN_DOMAIN, decoding) | {"variant": method.name, "method": method.label}
            summary = results.summary(method, IN_DOMAIN, decoding)
            if not isinstance(summary, Hole):
                cells |= _cost(results, method)
                for metric in METRICS:
                    cells |= frame.numbers(metric.name, summary.estimates[metric.name], metric.factor)
            lines.append(cells | {"decoding": decoding})
    names = ("decoding", "variant", "method", "status")
    return frame.long_table(lines, names, [metric.name for metric in METRICS], ("minutes", "tokens"))


def _cost(results: Results, method: Method) -> dict[str, float]:
    """Minutes and tokens (millions) at the end of training, of a run that diverged at its last validation."""
    if method.group != TRAINED:
        return {}
    curves = read_curves(results.folder, method, ("accuracy",))
    if not curves.runs:
        return {}
    seconds, tokens = (np.nanmax(curves.axes[axis], axis=1) for axis in ("seconds", "tokens"))
    return {"minutes": fmean(seconds) / 60, "tokens": fmean(tokens) / 1e6}
