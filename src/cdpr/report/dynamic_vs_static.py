"""Table 3: CDPR, which asks for examinations one by one, against a diagnosis from the whole record at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Comparison, Estimate, Evaluation
from ..evaluation.statistics import bootstrap_means, percentile_interval
from ..results.methods import IN_DOMAIN, main_methods, tier_mark
from ..results.pairs import reading
from ..results.results import Hole, Results
from ..results.rows import (
    ACCURACY,
    AEC,
    UTILITY,
    Figure,
    adjusted,
    counts,
    in_domain_caption,
    marked_cells,
    mcnemar_cells,
    number_columns,
    numbers,
    paired,
    paper_title,
    printed,
    printed_rows,
    seeds_of_runs,
    write_forms,
)
from ..results.table import Cell, Column, Row, Table
from ..seeding import derive_seed
from ..settings import Settings

STATIC, DYNAMIC = "static", "cdpr"
FIGURES = (ACCURACY, AEC)
COMPARED = (ACCURACY, AEC, UTILITY)
REDUCTION = Figure("aec_reduction", "AEC reduction (%)", 100.0, decimals=1)
_PRINTED = ("acc", "aec", "aec_reduction_percent")
_COUNTERPARTS = {"Static diagnosis": STATIC, "CDPR": DYNAMIC}


def write_dynamic_vs_static(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Write ``out_stem`` + ``.csv``, ``.md`` and ``.tex``. Missing evaluations become labelled holes.

    Raises ProvenanceError for results that do not belong together, EvaluationError for a broken file.
    """
    methods = {method.name: method for method in main_methods(settings)}
    results = Results(settings, results_dir, [methods[STATIC], methods[DYNAMIC]])
    decodings = list(dict.fromkeys(settings.evaluation.decodings))
    sections = []
    for decoding in decodings:
        sections.append((f"{decoding.capitalize()} decoding", pair_table(results, decoding)))
        sections.append((f"{_title(results)}, {decoding} decoding", change_table(results, decoding)))
    sections.append((paper_title(settings), printed_table(results)))
    title = f"Dynamic against static diagnosis ({tier_mark(settings)})"
    return write_forms(out_stem, title, long_table(results, decodings), sections)


def reduction(static: list[Evaluation], dynamic: list[Evaluation], resamples: int, seed: int) -> Estimate | Hole:
    """By which share of the static cost the dynamic cost is lower; negative where it is higher.

    A ratio of means over the same cases: both are resampled together, seeds averaged per case (percentile bootstrap).
    A hole where static diagnosis costs nothing.
    """
    costs = np.stack([np.mean([e.metric("aec") for e in side], axis=0) for side in (static, dynamic)], axis=1)
    draws = bootstrap_means(costs, resamples, derive_seed(seed, static[0].dataset))
    whole, _ = costs.mean(axis=0)
    if not (whole > 0 and (draws[:, 0] > 0).all()):
        return Hole("not defined: static diagnosis costs nothing")
    by_seed = tuple(float(1 - e.metric("aec").mean() / whole) for e in dynamic)
    return Estimate(float(np.mean(by_seed)), *percentile_interval(1 - draws[:, 1] / draws[:, 0]), by_seed)


def pair_table(results: Results, decoding: str) -> Table:
    """The paper's layout: static diagnosis, CDPR, and how much cheaper it is; with counts and 95% intervals."""
    columns = [Column("method", "Method", align="l"), Column("seeds", "Seeds"), Column("k", "k / N")]
    columns += [Column(figure.metric, f"{figure.header} [95%]") for figure in (*FIGURES, REDUCTION)]
    found = {method.name: results.summary(method, IN_DOMAIN, decoding) for method in results.methods}
    cells = marked_cells(found, found, FIGURES)
    rows = []
    for method in results.methods:
        head, summary = {"method": method.label}, found[method.name]
        if isinstance(summary, Hole):
            rows.append(Row(head, summary.reason))
            continue
        # Of two rows the second best is the worst: only the best is marked, as in the paper.
        own = {k: c if c.mark == "best" else Cell(c.value, "", c.text) for k, c in cells[method.name].items()}
        head |= {"seeds": seeds_of_runs(method), "k": counts(summary.correct, summary.cases), **own}
        rows.append(Row(head | (_reduction_cell(results, decoding) if method.name == DYNAMIC else {})))
    notes = [
        "AEC reduction: 1 - AEC of CDPR / AEC of static diagnosis; interval: both resampled over the same cases.",
        "Static diagnosis: the policy before reinforcement learning reads the whole record in one turn; its cost is "
        "that of every examination of the record, each billing group charged once. Best in bold.",
    ]
    text = f"Dynamic against static diagnosis. {in_domain_caption(results.settings, decoding)}"
    return Table(columns, rows, text, [*results.divergences(), *notes], f"tab:dynamic_vs_static_{decoding}")


def change_table(results: Results, decoding: str) -> Table:
    """CDPR minus static diagnosis on the same cases. Holm's family: the tests of the seeds."""
    columns = [Column("cases", "N", align="l")]
    columns += [Column(figure.metric, f"Δ {figure.header} [95%]") for figure in COMPARED]
    columns += [Column("discordant", "only CDPR : only static right"), Column("p", "McNemar p by seed"),
                Column("p_holm", "after Holm")]  # fmt: skip
    change = _change(results, decoding)
    notes = ["Intervals: paired bootstrap over cases, seeds averaged per case. McNemar: exact, each seed of CDPR "
             "against the one run of static diagnosis."]  # fmt: skip
    if isinstance(change, Hole):
        row = Row({"cases": "—"}, change.reason)
    else:
        row = Row({
            "cases": change.cases,
            **{f.metric: printed(change.differences[f.metric], f, signed=True) for f in COMPARED},
            **mcnemar_cells(change, adjusted({DYNAMIC: change})[DYNAMIC]),
        })  # fmt: skip
        notes.insert(0, reading(change, results.method(DYNAMIC).label, results.method(STATIC).label, COMPARED))
    text = (f"{_title(results)}: first minus second on the same cases, {decoding} decoding "
            f"({tier_mark(results.settings)}).")  # fmt: skip
    return Table(columns, [row], text, notes, f"tab:dynamic_minus_static_{decoding}")


def printed_table(results: Results) -> Table:
    """The paper's Table 3, without its marks; the last column names our counterpart."""
    columns = [Column("method", "Method", align="l"), Column("acc", "Acc. (%)"), Column("aec", "AEC (USD)"),
               Column("aec_reduction_percent", REDUCTION.header, decimals=1),
               Column("ours", "Our counterpart", align="l")]  # fmt: skip
    rows = [
        Row({name: row[name] for name in ("method", *_PRINTED)}
            | {"ours": results.method(_COUNTERPARTS[row["method"]]).label})
        for row in printed_rows("dynamic_vs_static.csv", *_PRINTED)
    ]  # fmt: skip
    text = f"{paper_title(results.settings)}. Nothing here was measured by this pipeline."
    return Table(columns, rows, text, label="tab:paper_dynamic_vs_static", wide=False)


def long_table(results: Results, decodings: Iterable[str]) -> Table:
    """One line per decoding and method, as plain numbers (accuracy and reduction as shares); ``change_*`` is CDPR
    minus static, ``paper_*`` what the paper prints."""
    names = ["tier", "cost_unit_usd", "decoding", "method", "label", "status", "seeds", "k", "n"]
    metrics = [figure.metric for figure in COMPARED]
    columns = [Column(name, name, decimals=None) for name in names]
    columns += number_columns(*metrics, REDUCTION.metric, *(f"change_{metric}" for metric in metrics))
    columns += [Column(f"paper_{name}", f"paper_{name}") for name in _PRINTED]
    paper = {_COUNTERPARTS[row["method"]]: {f"paper_{name}": row[name] for name in _PRINTED}
             for row in printed_rows("dynamic_vs_static.csv", *_PRINTED)}  # fmt: skip
    settings = results.settings
    common = {"tier": settings.tier, "cost_unit_usd": settings.utility.cost_unit_usd}
    rows = []
    for decoding in decodings:
        change, less = _change(results, decoding), _reduction(results, decoding)
        for method in results.methods:
            summary = results.summary(method, IN_DOMAIN, decoding)
            cells = common | {"decoding": decoding, "method": method.name, "label": method.label}
            cells |= paper.get(method.name, {})
            if isinstance(summary, Hole):
                rows.append(Row(cells | {"status": summary.reason}))
                continue
            cells |= {"status": results.status(method), "seeds": len(method.runs), "n": summary.cases,
                      "k": "+".join(map(str, summary.correct))}  # fmt: skip
            for metric in metrics:
                cells |= numbers(metric, summary.estimates[metric])
                if method.name == DYNAMIC and not isinstance(change, Hole):
                    cells |= numbers(f"change_{metric}", change.differences[metric])
            if method.name == DYNAMIC and not isinstance(less, Hole):
                cells |= numbers(REDUCTION.metric, less)
            rows.append(Row(cells))
    return Table(columns, rows)


def _change(results: Results, decoding: str) -> Comparison | Hole:
    return paired(results, results.method(DYNAMIC), results.method(STATIC), IN_DOMAIN, decoding)


def _reduction(results: Results, decoding: str) -> Estimate | Hole:
    static, dynamic = (results.evaluations(results.method(name), IN_DOMAIN, decoding) for name in (STATIC, DYNAMIC))
    for hole in (static, dynamic):
        if isinstance(hole, Hole):
            return hole
    return reduction(static, dynamic, results.settings.evaluation.bootstrap, results.settings.evaluation.seed)


def _reduction_cell(results: Results, decoding: str) -> dict[str, Cell]:
    found = _reduction(results, decoding)
    text = found.reason if isinstance(found, Hole) else printed(found, REDUCTION)
    return {REDUCTION.metric: Cell(None if isinstance(found, Hole) else found.mean * REDUCTION.factor, text=text)}


def _title(results: Results) -> str:
    return f"{results.method(DYNAMIC).label} against {results.method(STATIC).label}"
