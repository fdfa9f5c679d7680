"""Table 1: every agent on every benchmark as measured; the paper's figures are beside them, never among them."""

import itertools
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..environment.utility import utility_formula
from ..evaluation.metrics import METRICS
from ..settings import Settings
from . import comparisons, layout
from .methods import AVERAGE, AVERAGED, DATASETS, Method, domain, judges, main_methods, tier_mark
from .paper import printed_rows
from .results import Results
from .sources import notices
from .table import EMPTY, Column, Row, Sheet, Table

# Metrics of every data set, and of the average; the utility stands with the average alone.
SHOWN = tuple(metric for metric in METRICS.values() if metric.main)
COMPARED = tuple(metric for metric in METRICS.values() if metric.compared)
# Figures behind the results, without intervals.
BEHIND = tuple(METRICS[name] for name in ("n_na", "aen_available", "physical", "forced"))
DECIMALS = 2
PAIRS = (("cdpr", "grpo"), ("cdpr", "utility_grpo"))
_FILE, _PRINTED = "main_results.csv", {"acc": "accuracy", "aen": "aen", "aec": "aec"}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make, per decoding, the paper's layout and ours against its rivals; then counts and runs, and the paper's table.
    Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    parts, present = [], {method.name for method in results.methods}
    for decoding in results.decodings:
        parts.append(wide(results, decoding, main_caption(settings, decoding), legend(results), "main_results"))
        for first, second in ([results.method(name) for name in pair] for pair in PAIRS if present.issuperset(pair)):
            parts.append(_paired(results, first, second, decoding))
    parts += [intervals(results, decoding, tier_mark(settings)) for decoding in results.decodings]
    parts.append(_printed(settings, results.methods))
    return layout.declared_sheet(settings, "main_table", parts, long_format(results))


write_main_table = comparisons.writer(sheet)


def places(results: Results) -> dict[str, str]:
    """Return the groups of columns: every data set and, of benchmarks, the average."""
    if not results.averaged:
        return dict(results.datasets)
    return {d: f"{label} ({domain(d)})" for d, label in results.datasets.items()} | {AVERAGE: "Average"}


def wide(results: Results, decoding: str, text: str, notes: list[str], label: str) -> tuple[str, Table]:
    """Make the table in the paper's layout: a row per method, Acc/AEN/AEC per data set and on average, utility on
    average. The main decoding shows the rows that cannot be run here too."""
    main = decoding == results.decodings[0]
    columns: list[Column] = []
    for place, group in places(results).items():
        metrics = dict.fromkeys((*SHOWN, *COMPARED)) if place == AVERAGE else SHOWN
        columns += [Column(f"{place}.{m.name}", m.short or m.header, group, DECIMALS, factor=m.factor, marked=2,
                           higher_is_better=m.higher_is_better) for m in metrics]  # fmt: skip
    rows, missing = [], []
    for method in (method for method in results.methods if method.runs or main):
        figures_of = {place: results.summary(method, place, decoding) for place in places(results)}
        holes = [figures_of[dataset] for dataset in results.datasets if "reason" in figures_of[dataset]]
        missing += [f"{method.label}, missing: {row['missing']}" for row in holes if row["missing"]]
        # Why it is not run on any of the data sets, on purpose.
        nowhere = len(holes) == len(results.datasets) and not any(row["missing"] for row in holes)
        row = {"label": method.label, "group": method.group, "learned": method.learned,
               "seeds": len(method.runs) if method.learned else None,
               "reason": method.why or (holes[0]["reason"] if nowhere else "")}  # fmt: skip
        for place, figures in figures_of.items():
            row |= comparisons.prefixed(f"{place}.", figures)
            if "reason" in figures:
                gap = "missing" if figures["missing"] else EMPTY
                row |= {f"{column.key}_text": gap for column in columns if column.key.startswith(f"{place}.")}
        rows.append(row)
    words: dict[str, Any] = {
        "main": " (main)" if main else "",
        "about": text,
        "missing": missing,
        "legend": notes,
        "table": label,
    }
    return layout.part(results.settings, "main_table.levels", rows, decoding, columns, **words)


def _paired(results: Results, first: Method, second: Method, decoding: str) -> tuple[str, Table]:
    """Make the table of first minus second per data set. Holm's family: the McNemar tests of this table (data sets and
    seeds)."""
    changes = comparisons.changes(results, [(first, second, dataset) for dataset in results.datasets], decoding)
    columns = [
        *comparisons.interval_columns(COMPARED, "Δ ", short=True),
        *layout.shared("seed_sd", "discordant", "p", "p_holm"),
    ]
    words: dict[str, Any] = {"pair": f"{first.label} against {second.label}", "names": f"{first.name}_{second.name}",
             "readings": comparisons.readings(changes, COMPARED), "judging": results.judging()}  # fmt: skip
    return layout.part(results.settings, "main_table.paired", changes, decoding, columns, **words)


def intervals(results: Results, decoding: str, mark: str, label: str = "main_results") -> tuple[str, Table]:
    """Make the table behind each figure: counts, 95% intervals over seeds and cases, deviation between seeds."""
    beside = {
        "accuracy": [Column("accuracy_seed_sd", "seed SD", factor=100.0)],
        "aec": [Column("aec_seed_sd", "seed SD"), Column("cost_median", "median"), Column("cost_p90", "p90")],
    }
    columns: list[Column] = []
    for column in comparisons.interval_columns(COMPARED, short=True):
        columns += [column, *beside.get(column.key, ())]
    columns += [Column(metric.name, metric.header, factor=metric.factor) for metric in BEHIND]
    pairs = itertools.product((method for method in results.methods if method.runs), results.datasets)
    rows = [results.summary(method, dataset, decoding) for method, dataset in pairs]
    rows = [row | {"label": f"{row['label']}, {row['dataset_text']}"} if "reason" in row else row for row in rows]
    words: dict[str, Any] = {"source": mark, "table": label, "judging": results.judging(),
             "resamples": results.settings.evaluation.bootstrap}  # fmt: skip
    return layout.part(results.settings, "main_table.intervals", rows, decoding, columns, **words)


def long_format(results: Results) -> list[Row]:
    """Return one row per method, place and decoding; of methods that are not learned with the first decoding alone.
    ``paper_*`` is what the paper prints."""
    paper = {(row["method"], row["dataset"]): comparisons.paper_cells(row, _PRINTED)
             for row in printed_rows(_FILE, *_PRINTED)}  # fmt: skip
    rows = []
    for decoding, method in itertools.product(results.decodings, results.methods):
        if decoding != results.decodings[0] and not method.learned:
            continue
        for place in places(results):
            printed = {"paper_method": method.paper or None} | paper.get((method.paper, place), {})
            rows.append(results.summary(method, place, decoding) | printed)
    return rows


def _printed(settings: Settings, methods: Sequence[Method]) -> tuple[str, Table]:
    ours = {method.paper: method.label for method in methods if method.paper and method.runs}
    rows = []
    for method, of_method in itertools.groupby(printed_rows(_FILE, *_PRINTED), itemgetter("method", "group")):
        figures = {f"{row['dataset']}.{name}": row[name] for row in of_method for name in _PRINTED}
        rows.append({"method": method[0], "group": method[1], "ours": ours.get(method[0])} | figures)
    groups = {name: f"{label} ({domain(name)})" for name, label in DATASETS.items() if name in AVERAGED}
    groups[AVERAGE] = "Average"
    columns = [Column(f"{place}.{name}", METRICS[metric].short, group)
               for place, group in groups.items() for name, metric in _PRINTED.items()]  # fmt: skip
    return layout.part(settings, "main_table.paper", rows, columns=[*columns, *layout.shared("ours")])


MEASURED = "; ".join(f"{metric.short}: {metric.about}" for metric in SHOWN)


def main_caption(settings: Settings, decoding: str) -> str:
    """Make the caption of the main table."""
    return (
        f"Main results, {decoding} decoding. T{tier_mark(settings)[1:]}; cost_unit_usd = "
        f"{settings.utility.cost_unit_usd:g}. {MEASURED}; Utility: {utility_formula(settings.utility)}, on average "
        "over data sets. Trained rows are means over their training seeds. Best in bold and second underlined among "
        "the open-source and reinforcement rows that were run."
    )


def legend(results: Results) -> list[str]:
    """List the notes below the main table."""
    notes = []
    if any(method.knows_hospital for method in results.methods):
        notes.append("Reference policies do not decode: their figures are the same for every decoding. They know "
                     "the disease model that made the cases; no learned row does.")  # fmt: skip
    if {"static", "all_tests"} <= {method.name for method in results.methods if method.runs}:
        notes.append("Static diagnosis and all-tests pay for the same examinations, those of the record. AEN of static "
                     "counts these alone; all-tests also requests what the record lacks (N_na).")  # fmt: skip
    for method in results.methods:
        if names := results.answered_as(method):
            notes.append(f"{method.label}: the server answered as {', '.join(names)}, not as the requested model.")
    if results.settings.judge.model:
        notes.append(f"Diagnoses are judged by {judges(results.settings)[0]}.")
    notes.append("Average: unweighted mean of the three data sets, as in the paper.")
    if others := [label for dataset, label in results.datasets.items() if dataset not in AVERAGED]:
        notes.append(f"No part of the average: {', '.join(others)}.")
    return [*results.remarks(), *notes, *notices(results.settings)]
