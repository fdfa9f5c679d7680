"""Table 2: CDPR without one of its parts, on the in-domain test cases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..evaluation import statistics
from ..evaluation.metrics import Comparison
from ..results.methods import IN_DOMAIN, Method, tier_mark, trained
from ..results.pairs import reading
from ..results.results import Hole, Results
from ..results.rows import (
    IN_DOMAIN_FIGURES,
    adjusted,
    counts,
    discordant_share,
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
from ..results.table import Cell, Column, Row, Table, number
from ..settings import Settings, job_of, shown, variants

BASE = "cdpr"
# The paper's test set, and shares of discordant cases to judge it by: it prints none itself.
PAPER_CASES, PAPER_DISCORDANT = 750, (0.30, 0.34)
_PRINTED = ("acc", "aen", "aec")


def write_ablations(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Write ``out_stem`` + ``.csv``, ``.md`` and ``.tex``. Missing evaluations become labelled holes.

    Raises ProvenanceError for results that do not belong together, EvaluationError for a broken file.
    """
    results = Results(settings, results_dir, ablation_methods(settings))
    decodings = list(dict.fromkeys(settings.evaluation.decodings))
    changes = {decoding: _changes(results, decoding) for decoding in decodings}
    sections = []
    for decoding, found in changes.items():
        sections += [
            (f"{decoding.capitalize()} decoding", ablation_table(results, decoding)),
            (f"Changes against {results.method(BASE).label}, {decoding} decoding",
             change_table(results, found, decoding)),
            (f"Tests and power, {decoding} decoding", power_table(results, found, decoding)),
        ]  # fmt: skip
    sections.append((paper_title(settings), printed_table(settings)))
    return write_forms(out_stem, f"Ablations ({tier_mark(settings)})", long_table(results, changes), sections)


def ablation_methods(settings: Settings) -> list[Method]:
    """CDPR, then its ablations in the order of the experiments file."""
    return [trained(settings, name) for name in dict.fromkeys([BASE, *shown(settings, "ablations")])]


def ablation_table(results: Results, decoding: str) -> Table:
    """The paper's columns, with N_na and utility, counts and 95% intervals."""
    columns = [Column("method", "Method", align="l"), Column("seeds", "Seeds"), Column("k", "k / N")]
    columns += [Column(figure.metric, f"{figure.header} [95%]") for figure in IN_DOMAIN_FIGURES]
    found = {method.name: results.summary(method, IN_DOMAIN, decoding) for method in results.methods}
    cells = marked_cells(found, found, IN_DOMAIN_FIGURES)
    rows, notes = [], []
    for method in results.methods:
        head, summary = {"method": method.label}, found[method.name]
        if isinstance(summary, Hole):
            rows.append(Row(head, summary.reason))
        else:
            head |= {"seeds": seeds_of_runs(method), "k": counts(summary.correct, summary.cases)}
            rows.append(Row(head | cells[method.name]))
        notes += _shared_job(results.settings, method)
    notes.append("k / N: right diagnoses per seed / cases. Best in bold, second underlined. Every row is judged with "
                 "the same utility, whatever it was trained with.")  # fmt: skip
    text = f"Ablations. {in_domain_caption(results.settings, decoding)}"
    return Table(columns, rows, text, [*results.divergences(), *notes], f"tab:ablations_{decoding}")


def change_table(results: Results, changes: Mapping[str, Comparison | Hole], decoding: str) -> Table:
    """Each ablation minus CDPR on the same cases."""
    base = results.method(BASE).label
    columns = [Column("method", "Method", align="l"), Column("cases", "N")]
    columns += [Column(figure.metric, f"Δ {figure.header} [95%]") for figure in IN_DOMAIN_FIGURES]
    columns += [Column("seed_sd", "seed SD of Δ Acc.")]
    rows, notes = [], []
    for name, change in changes.items():
        head = {"method": results.method(name).label}
        if isinstance(change, Hole):
            rows.append(Row(head, change.reason))
            continue
        deviation = change.differences["accuracy"].seed_sd
        rows.append(Row(head | {
            "cases": change.cases, "seed_sd": None if deviation is None else 100 * deviation,
            **{f.metric: printed(change.differences[f.metric], f, signed=True) for f in IN_DOMAIN_FIGURES},
        }))  # fmt: skip
        notes.append(reading(change, results.method(name).label, base, IN_DOMAIN_FIGURES))
    notes.append("Intervals: paired bootstrap over cases, seeds averaged per case; they hold for the seeds that were "
                 "trained and do not cover training again.")  # fmt: skip
    text = f"Ablation minus {base} on the same cases, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, rows, text, notes, f"tab:ablation_changes_{decoding}")


def power_table(results: Results, changes: Mapping[str, Comparison | Hole], decoding: str) -> Table:
    """Whether accuracies differ, seed by seed, and which difference the cases could have shown at all."""
    base = results.method(BASE).label
    columns = [
        Column("method", "Method", align="l"), Column("cases", "N"),
        Column("discordant", f"only ablation : only {base} right"), Column("p", "McNemar p by seed"),
        Column("p_holm", "after Holm"), Column("share", "discordant (%)", decimals=1),
        Column("power", "detectable (points)", decimals=1),
    ]  # fmt: skip
    after_holm = adjusted(changes)
    rows = []
    for name, change in changes.items():
        head = {"method": results.method(name).label}
        if isinstance(change, Hole):
            rows.append(Row(head, change.reason))
            continue
        rows.append(Row(head | mcnemar_cells(change, after_holm[name]) | {
            "cases": change.cases, "share": 100 * discordant_share(change), "power": _detectable_cell(change),
        }))  # fmt: skip
    notes = [
        "McNemar: exact, seed by seed; Holm's family: all tests of this table (ablations and seeds).",
        "detectable: the smallest true difference in accuracy that a paired test of one seed, at 5% and before Holm, "
        "finds with 80% power, given N and the share of cases on which exactly one of the two is right. What is "
        "smaller may be there and not be seen.",
        _paper_power(),
    ]
    text = f"Accuracy of the ablations against {base}, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, rows, text, notes, f"tab:ablation_tests_{decoding}")


def printed_table(settings: Settings) -> Table:
    """The paper's Table 2, without its marks; the last column names our counterpart."""
    columns = [Column("method", "Method", align="l"), Column("acc", "Acc. (%)"), Column("aen", "AEN"),
               Column("aec", "AEC (USD)"), Column("ours", "Our counterpart", align="l")]  # fmt: skip
    labels = shown(settings, "ablations")
    rows = [
        Row({"method": row["method"], "ours": labels.get(row["variant"]), **{name: row[name] for name in _PRINTED}})
        for row in printed_rows("ablation.csv", *_PRINTED)
    ]
    text = f"{paper_title(settings)}. Nothing here was measured by this pipeline."
    return Table(columns, rows, text, label="tab:paper_ablations", wide=False)


def long_table(results: Results, changes: Mapping[str, Mapping[str, Comparison | Hole]]) -> Table:
    """One line per decoding and variant, as plain numbers (accuracy as a share); ``change_*`` is against CDPR,
    ``paper_*`` what the paper prints."""
    names = ["tier", "cost_unit_usd", "decoding", "variant", "method", "job", "status", "seeds", "k", "n"]
    metrics = [figure.metric for figure in IN_DOMAIN_FIGURES]
    columns = [Column(name, name, decimals=None) for name in names]
    columns += number_columns(*metrics, *(f"change_{metric}" for metric in metrics))
    columns += [Column(name, name) for name in ("only_this", "only_cdpr", "mcnemar_p", "mcnemar_p_holm")]
    columns += [Column(name, name, decimals=6) for name in ("discordant", "detectable")]
    columns += [Column(f"paper_{name}", f"paper_{name}") for name in _PRINTED]
    paper = {row["variant"]: {f"paper_{name}": row[name] for name in _PRINTED}
             for row in printed_rows("ablation.csv", *_PRINTED)}  # fmt: skip
    settings = results.settings
    rows = []
    for decoding, found in changes.items():
        after_holm = adjusted(found)
        for method in results.methods:
            head = {"tier": settings.tier, "cost_unit_usd": settings.utility.cost_unit_usd, "decoding": decoding,
                    "variant": method.name, "method": method.label, "job": job_of(settings, method.name)}  # fmt: skip
            cells = head | _measured(results, method, decoding, metrics) | paper.get(method.name, {})
            change = found.get(method.name)
            if isinstance(change, Comparison):
                cells |= _change_numbers(change, after_holm[method.name], metrics)
            rows.append(Row(cells))
    return Table(columns, rows)


def _changes(results: Results, decoding: str) -> dict[str, Comparison | Hole]:
    base = results.method(BASE)
    return {m.name: paired(results, m, base, IN_DOMAIN, decoding) for m in results.methods if m is not base}


def _measured(results: Results, method: Method, decoding: str, metrics: Iterable[str]) -> dict:
    summary = results.summary(method, IN_DOMAIN, decoding)
    if isinstance(summary, Hole):
        return {"status": summary.reason}
    cells: dict = {"status": results.status(method), "seeds": len(method.runs), "n": summary.cases,
                   "k": "+".join(map(str, summary.correct))}  # fmt: skip
    for metric in metrics:
        cells |= numbers(metric, summary.estimates[metric])
    return cells


def _change_numbers(change: Comparison, after_holm: Iterable[float], metrics: Iterable[str]) -> dict:
    cells: dict = {
        "only_this": "+".join(str(test.only_first) for test in change.mcnemar),
        "only_cdpr": "+".join(str(test.only_second) for test in change.mcnemar),
        "mcnemar_p": "+".join(f"{test.p_value:.6g}" for test in change.mcnemar),
        "mcnemar_p_holm": "+".join(f"{p:.6g}" for p in after_holm),
        "discordant": discordant_share(change), "detectable": _detectable(change),
    }  # fmt: skip
    for metric in metrics:
        cells |= numbers(f"change_{metric}", change.differences[metric])
    return cells


def _detectable(change: Comparison) -> float | None:
    """As a share; infinite where nothing is, None where the two never differ, which says nothing."""
    share = discordant_share(change)
    return statistics.detectable_difference(change.cases, share) if share else None


def _detectable_cell(change: Comparison) -> Cell:
    found = _detectable(change)
    if found is None or math.isinf(found):
        return Cell(text=None if found is None else "none")
    return Cell(100 * found)


def _paper_power() -> str:
    """What the paper's own test set could have shown."""
    least, most = (100 * statistics.detectable_difference(PAPER_CASES, share) for share in PAPER_DISCORDANT)
    rows = list(printed_rows("ablation.csv", *_PRINTED))
    base = next(row["acc"] for row in rows if row["variant"] == BASE)
    below = [f"{row['method']} ({number(base - row['acc'], 2)})" for row in rows
             if row["variant"] != BASE and abs(base - row["acc"]) < least]  # fmt: skip
    return (
        f"The paper's N = {PAPER_CASES}: if {' to '.join(f'{100 * share:.0f}' for share in PAPER_DISCORDANT)}% of the "
        f"cases are discordant (it does not say), {number(least, 1)} to {number(most, 1)} points are detectable; "
        f"{len(below)} of its {len(rows) - 1} accuracy drops are smaller: {', '.join(below)}."
    )


def _shared_job(settings: Settings, method: Method) -> list[str]:
    job = job_of(settings, method.name)
    if job == method.name:
        return []
    return [f"{method.label} trains what {variants(settings)[job].label} trains: one job, and these are its runs."]
