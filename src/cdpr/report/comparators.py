"""Ways to assign credit, side by side: what each policy does in-domain, and what its training cost."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

import numpy as np

from ..results.curves import read_curves
from ..results.methods import IN_DOMAIN, OPEN, REFERENCE, Method, backbone, tier_mark, trained
from ..results.results import Hole, Results
from ..results.rows import IN_DOMAIN_FIGURES, in_domain_caption, marked_cells, number_columns, numbers, write_forms
from ..results.table import Column, Row, Table
from ..settings import Settings, shown


def write_comparators(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Write ``out_stem`` + ``.csv``, ``.md`` and ``.tex``, one table per decoding. Missing evaluations become labelled
    holes. Raises ProvenanceError for results that do not belong together, CurveError for a broken metrics file."""
    methods = [
        Method("warm_start", backbone(settings), OPEN, ("warm_start",), learned=True),
        *(trained(settings, name) for name in shown(settings, "comparators")),
        Method("value_of_information", "Value of information", REFERENCE, ("value_of_information",), decodes=False),
    ]
    results = Results(settings, results_dir, methods)
    decodings = list(dict.fromkeys(settings.evaluation.decodings))
    sections = [(f"{decoding.capitalize()} decoding", comparator_table(results, decoding)) for decoding in decodings]
    title = f"Ways to assign credit ({tier_mark(settings)})"
    return write_forms(out_stem, title, long_table(results, decodings), sections)


def comparator_table(results: Results, decoding: str) -> Table:
    """A row per method: the in-domain metrics with 95% intervals, training seconds and tokens per run."""
    columns = [Column("method", "Method", align="l")]
    columns += [Column(figure.metric, f"{figure.header} [95%]") for figure in IN_DOMAIN_FIGURES]
    columns += [Column("minutes", "Training (min)", decimals=1), Column("tokens", "Tokens (M)", decimals=2)]
    found = {method.name: results.summary(method, IN_DOMAIN, decoding) for method in results.methods}
    cells = marked_cells(found, [m.name for m in results.methods if m.learned], IN_DOMAIN_FIGURES)
    rows: list[Row] = []
    for method in results.methods:
        head, summary = {"method": method.label}, found[method.name]
        if isinstance(summary, Hole):
            rows.append(Row(head, summary.reason))
        else:
            rows.append(Row(head | cells[method.name] | _cost(results, method)))
    text = (
        f"{in_domain_caption(results.settings, decoding)} Training: mean over seeds, without validation; tokens with "
        "probes and continuations."
    )
    return Table(columns, rows, text, notes=results.divergences(), label=f"tab:comparators_{decoding}")


def long_table(results: Results, decodings: Iterable[str]) -> Table:
    """The same figures as plain numbers, one line per decoding and method, intervals in columns of their own."""
    names = ["decoding", "variant", "method", "status"]
    columns = [Column(name, name) for name in names] + number_columns(*(f.metric for f in IN_DOMAIN_FIGURES))
    columns += [Column(name, name, decimals=6) for name in ("minutes", "tokens")]
    rows = []
    for decoding in decodings:
        for method in results.methods:
            summary = results.summary(method, IN_DOMAIN, decoding)
            head = {"decoding": decoding, "variant": method.name, "method": method.label}
            if isinstance(summary, Hole):
                rows.append(Row(head | {"status": summary.reason}))
                continue
            cells: dict = {"status": results.status(method), **_cost(results, method)}
            for figure in IN_DOMAIN_FIGURES:
                cells |= numbers(figure.metric, summary.estimates[figure.metric], figure.factor)
            rows.append(Row(head | cells))
    return Table(columns, rows)


def _cost(results: Results, method: Method) -> dict[str, float]:
    """Seconds and tokens at the end of training, of a run that diverged at its last validation."""
    if method.runs == ("warm_start",) or not method.decodes:
        return {}
    curves = read_curves(results.folder, method, ("accuracy",))
    if not curves.runs:
        return {}
    seconds, tokens = (np.nanmax(curves.axes[axis], axis=1) for axis in ("seconds", "tokens"))
    return {"minutes": fmean(seconds) / 60, "tokens": fmean(tokens) / 1e6}
