"""Table 1: every agent on every benchmark, ours as measured, the paper's figures beside them and never among them."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from ..environment.utility import utility_formula
from ..evaluation.metrics import METRICS
from ..results import frame
from ..results.methods import AVERAGE, AVERAGED, DATASETS, Method, domain, judges, main_methods, tier_mark
from ..results.paper import printed_rows
from ..results.results import Hole, Results
from ..results.sources import notices
from ..results.table import Cell, Column, Heading, Sheet, Table
from ..settings import Settings

# Metrics of every data set, and of the average; the utility stands with the average alone.
SHOWN = tuple(metric for metric in METRICS.values() if metric.main)
COMPARED = tuple(metric for metric in METRICS.values() if metric.compared)
AVERAGED_METRICS = tuple(dict.fromkeys((*SHOWN, *COMPARED)))  # in the columns of the average
# Figures behind the results, without intervals.
BEHIND = tuple(METRICS[name] for name in ("n_na", "aen_available", "physical", "forced"))
DECIMALS = 2
PAIRS = (("cdpr", "grpo"), ("cdpr", "utility_grpo"))
_FILE, _PRINTED = "main_results.csv", {"acc": "accuracy", "aen": "aen", "aec": "aec"}


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding: the paper's layout and ours against its rivals; then counts and runs, and the paper's table.
    Raises as :class:`Results` does."""
    results = Results(settings, folder, main_methods(settings))
    parts = []
    for decoding in results.decodings:
        parts.append(wide(results, decoding, main_caption(settings, decoding), legend(results), "main_results"))
        for first, second in PAIRS:
            title = f"{results.method(first).label} against {results.method(second).label}"
            paired = _paired(results, results.method(first), results.method(second), decoding, title)
            parts.append((f"{title}, {decoding} decoding", paired))
    parts += [intervals(results, decoding, tier_mark(settings)) for decoding in results.decodings]
    parts.append(_printed(settings, results.methods))
    return Sheet(f"Main results ({tier_mark(settings)})", parts, long(results))


write_main_table = frame.writer(sheet)


def places(results: Results) -> dict[str, str]:
    """Groups of columns: every data set and, of benchmarks, the average."""
    if not results.averaged:
        return dict(results.datasets)
    return {d: f"{label} ({domain(d)})" for d, label in results.datasets.items()} | {AVERAGE: "Average"}


def _columns(places: Mapping[str, str], metrics: Mapping[str, str]) -> list[Column]:
    return [Column(f"{place}.{name}", header, group, DECIMALS)
            for place, group in places.items() for name, header in metrics.items()]  # fmt: skip


def wide(results: Results, decoding: str, text: str, notes: Sequence[str], label: str) -> tuple[str, Table]:
    """The paper's layout below its heading: a row per method, Acc/AEN/AEC per data set and on average, utility on
    average. The main decoding shows the rows that cannot be run here too."""
    main = decoding == results.decodings[0]
    methods, groups = [method for method in results.methods if method.runs or main], places(results)
    columns = [
        frame.METHOD,
        Column("seeds", "Seeds", decimals=None),
        *_columns(groups, {metric.name: metric.short for metric in SHOWN}),
    ]
    if results.averaged:
        columns.append(Column(f"{AVERAGE}.utility", frame.UTILITY.header, groups[AVERAGE], DECIMALS))
    cells = {method: _wide_cells(results, method, decoding) for method in methods}
    for metric in AVERAGED_METRICS if results.averaged else SHOWN:
        for place in groups if metric in SHOWN else (AVERAGE,):
            key = f"{place}.{metric.name}"
            rivals = [cells[m] for m in methods if m.learned and cells[m][key].value is not None]
            if len(rivals) > 1 or results.averaged:  # one alone is the best of nothing
                frame.mark_best(rivals, key, metric, DECIMALS)
    lines: list[Heading | frame.Cells] = []
    missing = []
    for group, of_group in itertools.groupby(methods, lambda method: method.group):
        lines.append(Heading(group))
        for method in of_group:
            summaries = [results.summary(method, dataset, decoding) for dataset in results.datasets]
            holes = [one for one in summaries if isinstance(one, Hole)]
            missing += [f"{method.label}, missing: {hole.missing}" for hole in holes if hole.missing]
            # Why it is not run on any of the data sets, on purpose.
            nowhere = len(holes) == len(summaries) and not any(hole.missing for hole in holes)
            hole = method.why or (holes[0].reason if nowhere else "")
            lines.append({"method": method.label, **cells[method], "hole": hole})
    table = Table(columns, lines, text, [*missing, *notes], f"tab:{label}_{decoding}")
    return f"{decoding.capitalize()} decoding{' (main)' if main else ''}", table


def _wide_cells(results: Results, method: Method, decoding: str) -> dict[str, Cell]:
    cells = {"seeds": Cell(len(method.runs) if method.learned else None)}
    for place in places(results):
        estimates, runs = results.estimates(method, place, decoding), results.behind(place, method)
        for metric in AVERAGED_METRICS if place == AVERAGE else SHOWN:
            if isinstance(estimates, Hole):
                cell = Cell(text="missing" if estimates.missing else None)
            else:
                cell = Cell(estimates[metric.name].mean * metric.factor, runs=runs)
            cells[f"{place}.{metric.name}"] = cell
    return cells


def _paired(results: Results, first: Method, second: Method, decoding: str, title: str) -> Table:
    """First minus second per data set. Holm's family: the McNemar tests of this table (data sets and seeds)."""
    columns = [frame.DATA_SET, Column("cases", "N"), *frame.interval_columns(COMPARED, "Δ ", short=True), frame.SEED_SD,
               *frame.mcnemar_columns("only first : only second right")]  # fmt: skip
    changes = frame.changes(results, [(first, second, dataset) for dataset in results.datasets], decoding)
    text = f"{title}, {decoding} decoding: first minus second on the same cases ({tier_mark(results.settings)})."
    label = f"tab:paired_{first.name}_{second.name}_{decoding}"
    table = frame.change_table(changes, COMPARED, text, label, columns, "McNemar: exact, seed by seed.")
    return replace(table, notes=[*table.notes, *results.judging()])


def intervals(results: Results, decoding: str, mark: str, label: str = "main_results") -> tuple[str, Table]:
    """What stands behind each figure, below its heading: counts, 95% intervals over seeds and cases, deviation between
    seeds."""
    beside = {
        "accuracy": [Column("accuracy_sd", "seed SD")],
        "aec": [Column("aec_sd", "seed SD"), Column("cost_median", "median"), Column("cost_p90", "p90")],
    }
    columns = [frame.METHOD, frame.DATA_SET, Column("k", "k / N")]
    for column in frame.interval_columns(COMPARED, short=True):
        columns += [column, *beside.get(column.key, ())]
    columns += [Column(metric.name, metric.header) for metric in BEHIND]
    lines: list[frame.Cells] = []
    for method, (dataset, name) in itertools.product(results.methods, results.datasets.items()):
        summary, runs = results.summary(method, dataset, decoding), results.behind(dataset, method)
        if isinstance(summary, Hole):
            lines += [{"method": f"{method.label}, {name}", "hole": summary.reason}] if runs else []
            continue
        at = summary.estimates
        plain = {"k": frame.counts(method, summary)["k"], "aec_sd": at["aec"].seed_sd,
                 "accuracy_sd": None if at["accuracy"].seed_sd is None else 100 * at["accuracy"].seed_sd,
                 "cost_median": summary.cost_median, "cost_p90": summary.cost_p90,
                 **{metric.name: metric.factor * at[metric.name].mean for metric in BEHIND}}  # fmt: skip
        lines.append({
            "method": method.label, "dataset": name,
            **{metric.name: frame.interval_cell(metric, at[metric.name], runs) for metric in COMPARED},
            **{name: Cell(value, runs=runs) for name, value in plain.items()},
        })  # fmt: skip
    notes = (
        "k / N: right diagnoses per seed / cases.",
        f"Intervals: bootstrap over training seeds and cases ({results.settings.evaluation.bootstrap} resamples); of a "
        "single run over cases alone, for its accuracy Wilson's. Seed SD: deviation between training seeds.",
        "available: issued requests that gave a new result; N_na: unavailable or unparsable requests; physical: items "
        "of the physical examination (free, not in AEN); median and p90: cost per case in USD.",
        *results.judging(),
    )
    text = f"Behind the results, {decoding} decoding ({mark})."
    table = Table(columns, lines, text, notes, f"tab:{label}_intervals_{decoding}")
    return f"Counts, seeds and intervals, {decoding} decoding", table


def long(results: Results) -> Table:
    """One line per method, place and decoding; ``paper_*`` holds what the paper prints."""
    rows = printed_rows(_FILE, *_PRINTED)
    paper = {(row["method"], row["dataset"]): frame.paper_cells(row, _PRINTED) for row in rows}
    lines = []
    for decoding, method in itertools.product(results.decodings, results.methods):
        for place in places(results) if decoding == results.decodings[0] or method.learned else ():
            head = {"paper_method": method.paper} if method.paper else {}
            lines.append(frame.line(results, method, place, decoding) | head | paper.get((method.paper, place), {}))
    names = ("tier", "cost_unit_usd", "decoding", "group", "method", "label", "dataset", "status", "seeds", "k", "n")
    more = ("cost_median", "cost_p90", "paper_method", *(f"paper_{name}" for name in _PRINTED))
    return frame.long_table(lines, names, tuple(METRICS), more)


def _printed(settings: Settings, methods: Sequence[Method]) -> tuple[str, Table]:
    ours = {method.paper: method.label for method in methods if method.paper and method.runs}
    printed: list[Heading | frame.Cells] = []
    for group, of_group in itertools.groupby(printed_rows(_FILE, *_PRINTED), itemgetter("group")):
        printed.append(Heading(group))
        for method, rows in itertools.groupby(of_group, itemgetter("method")):
            cells = {f"{row['dataset']}.{name}": row[name] for row in rows for name in _PRINTED}
            printed.append({"method": method, "ours": ours.get(method), **cells})
    headers = {metric.name: metric.short for metric in SHOWN}
    groups = {name: f"{label} ({domain(name)})" for name, label in DATASETS.items() if name in AVERAGED}
    columns = _columns(groups | {AVERAGE: "Average"}, {name: headers[metric] for name, metric in _PRINTED.items()})
    return frame.paper_table(settings, columns, printed, "main_results", wide=True)


MEASURED = "; ".join(f"{metric.short}: {metric.about}" for metric in SHOWN)


def main_caption(settings: Settings, decoding: str) -> str:
    """What a reader of the main table must know."""
    return (
        f"Main results, {decoding} decoding. T{tier_mark(settings)[1:]}; cost_unit_usd = "
        f"{settings.utility.cost_unit_usd:g}. {MEASURED}; Utility: {utility_formula(settings.utility)}, on average "
        "over data sets. Trained rows are means over their training seeds. Best in bold and second underlined among "
        "the open-source and reinforcement rows that were run."
    )


def legend(results: Results) -> list[str]:
    """What stands below the main table."""
    notes = []
    if any(method.knows_hospital for method in results.methods):
        notes.append("Reference policies do not decode: their figures are the same for every decoding. They know "
                     "the disease model that made the cases; no learned row does.")  # fmt: skip
    if {"static", "all_tests"} <= {method.name for method in results.methods if method.runs}:
        notes.append("Static diagnosis and all-tests pay for the same examinations, those of the record. AEN of static "
                     "counts these alone; all-tests requests what the record lacks too, in vain (N_na).")  # fmt: skip
    for method in results.methods:
        if names := results.answered_as(method):
            notes.append(f"{method.label}: the server answered as {', '.join(names)}, not as the model asked for.")
    if results.settings.judge.model:
        notes.append(f"Diagnoses are judged by {judges(results.settings)[0]}.")
    notes.append("Average: unweighted mean of the three data sets, as in the paper.")
    if others := [label for dataset, label in results.datasets.items() if dataset not in AVERAGED]:
        notes.append(f"No part of the average: {', '.join(others)}.")
    return [*results.remarks(), *notes, *notices(results.settings)]
