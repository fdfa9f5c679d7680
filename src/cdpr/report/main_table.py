"""Table 1: every agent on every benchmark, ours as measured, the paper's figures beside them and never among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..evaluation.metrics import METRICS, Estimate
from ..results import pairs
from ..results.methods import AGENTS, CLOSED, DATASETS, OPEN, TRAINED, Method, main_methods, tier_mark
from ..results.paper import PaperRow, read_main_results
from ..results.results import Hole, Results
from ..results.rows import (
    ACCURACY,
    AEC,
    AEN,
    UTILITY,
    counts,
    number_columns,
    numbers,
    paper_title,
    printed,
    write_forms,
)
from ..results.sources import notices
from ..results.table import Cell, Column, Row, Section, Table, marks
from ..settings import Settings

# Figures of a cell of Table 1: name, metric, header, factor for printing, whether more is better.
FIGURES = (
    ("acc", "accuracy", "Acc.", 100.0, True),
    ("aen", "aen", "AEN", 1.0, False),
    ("aec", "aec", "AEC", 1.0, False),
    ("utility", "utility", "Utility", 1.0, True),
)
PLACES = {"mimic_iv": "MIMIC-IV (in-domain)", "clinicalbench": "ClinicalBench (OOD)", "private": "Private (OOD)",
          "average": "Average"}  # fmt: skip
DECIMALS = 2
PAIRS = (("cdpr", "grpo"), ("cdpr", "utility_grpo"))


def write_main_results(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Write ``out_stem`` + ``.csv`` (one line per method, data set and decoding), ``.md`` and ``.tex``.

    Missing evaluations become labelled holes. Raises ProvenanceError for results of another tier, utility or set of
    cases, EvaluationError for a broken file; nothing is written then.
    """
    results = Results(settings, results_dir, main_methods(settings))
    paper = read_main_results()
    decodings = list(dict.fromkeys(settings.evaluation.decodings))
    sections = []
    for place, decoding in enumerate(decodings):
        wide = wide_table(results, decoding, absent=not place)
        sections.append((f"{decoding.capitalize()} decoding{'' if place else ' (main)'}", wide))
        sections += [(f"{pairs.title(results, *pair)}, {decoding} decoding",
                      pairs.paired_table(results, *pair, decoding)) for pair in PAIRS]  # fmt: skip
    sections += [(f"Counts, seeds and intervals, {d} decoding", interval_table(results, d)) for d in decodings]
    sections.append((paper_title(settings), paper_table(settings, paper)))
    plain = long_table(results, paper, decodings)
    return write_forms(out_stem, f"Main results ({tier_mark(settings)})", plain, sections)


def wide_table(results: Results, decoding: str, absent: bool = True) -> Table:
    """The paper's layout: a row per method, Acc/AEN/AEC per data set and on average, utility on average.

    ``absent`` shows the rows that cannot be run here too.
    """
    methods = [method for method in results.methods if method.runs or absent]
    columns = [Column("method", "Method", align="l"), Column("seeds", "Seeds", decimals=None)]
    columns += [Column(f"{p}.{f[0]}", f[2], PLACES[p], DECIMALS) for p in PLACES for f in _shown(p)]
    cells = {method: _wide_cells(results, method, decoding) for method in methods}
    for column in columns[2:]:
        figure = next(f for f in FIGURES if column.key.endswith(f".{f[0]}"))
        values = {m.name: cells[m][column.key].value for m in methods if m.learned}
        for name, mark in marks(values, DECIMALS, higher_is_better=figure[4]).items():
            method = results.method(name)
            cells[method][column.key] = Cell(cells[method][column.key].value, mark)
    rows: list[Row | Section] = []
    missing = []
    for group in dict.fromkeys(method.group for method in methods):
        rows.append(Section(group))
        for method in (m for m in methods if m.group == group):
            rows.append(Row({"method": method.label, **cells[method]}, method.why))
            holes = (results.summary(method, dataset, decoding) for dataset in DATASETS)
            missing += [f"{method.label}, missing: {h.missing}" for h in holes if isinstance(h, Hole) and h.missing]
    return Table(columns, rows, caption(results.settings, decoding), [*missing, *_legend(results)],
                 f"tab:main_results_{decoding}")  # fmt: skip


def _shown(place: str) -> tuple:
    return FIGURES if place == "average" else FIGURES[:3]


def _wide_cells(results: Results, method: Method, decoding: str) -> dict[str, Cell]:
    cells = {"seeds": Cell(len(method.runs) if method.learned else None)}
    for place in PLACES:
        found = _estimates(results, method, place, decoding)
        for name, metric, _, factor, _ in _shown(place):
            if isinstance(found, Hole):
                cells[f"{place}.{name}"] = Cell(text="missing" if found.missing else None)
            else:
                cells[f"{place}.{name}"] = Cell(found[metric].mean * factor)
    return cells


def interval_table(results: Results, decoding: str) -> Table:
    """What stands behind each figure: counts, 95% intervals over cases, deviation between seeds."""
    columns = [
        Column("method", "Method", align="l"), Column("dataset", "Data set", align="l"), Column("k", "k / N"),
        Column("acc", "Acc. [95%]"), Column("acc_sd", "seed SD"), Column("aen", "AEN [95%]"),
        Column("aec", "AEC [95%]"), Column("aec_sd", "seed SD"), Column("cost_median", "median"),
        Column("cost_p90", "p90"), Column("utility", "Utility [95%]", decimals=3), Column("n_na", "N_na"),
        Column("aen_available", "available"), Column("physical", "physical"), Column("forced", "forced %"),
    ]  # fmt: skip
    rows: list[Row | Section] = []
    for method in (m for m in results.methods if m.runs):
        for dataset, label in DATASETS.items():
            found = results.summary(method, dataset, decoding)
            head = {"method": method.label, "dataset": label}
            if isinstance(found, Hole):
                rows.append(Row({"method": f"{method.label}, {label}"}, found.reason))
                continue
            at = found.estimates
            rows.append(Row(head | {
                "k": counts(found.correct, found.cases),
                "acc": printed(at["accuracy"], ACCURACY), "acc_sd": _sd(at["accuracy"], 100),
                "aen": printed(at["aen"], AEN), "aec": printed(at["aec"], AEC), "aec_sd": _sd(at["aec"]),
                "cost_median": found.cost_median, "cost_p90": found.cost_p90,
                "utility": printed(at["utility"], UTILITY), "n_na": at["n_na"].mean,
                "aen_available": at["aen_available"].mean, "physical": at["physical"].mean,
                "forced": 100 * at["forced"].mean,
            }))  # fmt: skip
    notes = (
        "k / N: right diagnoses per seed / cases.",
        "Intervals are over cases: Wilson for the accuracy of a single run, else the percentile bootstrap "
        f"({results.settings.evaluation.bootstrap} resamples, seeds averaged per case). Seed SD, the deviation between "
        "training seeds, is no part of them.",
        "available: issued requests that gave a new result; N_na: unavailable or unparsable requests; physical: items "
        "of the physical examination (free, not in AEN); median and p90: cost per case in USD.",
    )
    text = f"Behind the main results, {decoding} decoding ({tier_mark(results.settings)})."
    return Table(columns, rows, text, notes, f"tab:main_results_intervals_{decoding}")


def long_table(results: Results, paper: Mapping[str, PaperRow], decodings: Iterable[str]) -> Table:
    """One line per method, data set (and average) and decoding; ``paper_*`` holds what the paper prints."""
    names = ["tier", "cost_unit_usd", "decoding", "group", "method", "label", "dataset", "status", "seeds", "k", "n"]
    columns = [Column(name, name, decimals=None) for name in names] + number_columns(*METRICS)
    columns += [Column(name, name, decimals=6) for name in ("cost_median", "cost_p90")]
    columns += [Column("paper_method", "paper_method")]
    columns += [Column(f"paper_{f[0]}", f"paper_{f[0]}") for f in FIGURES[:3]]
    common = {"tier": results.settings.tier, "cost_unit_usd": results.settings.utility.cost_unit_usd}
    rows = []
    for place_of_decoding, decoding in enumerate(decodings):
        for method in results.methods:
            if place_of_decoding and not (method.runs and method.decodes):
                continue
            for place in PLACES:
                head = common | {"decoding": decoding if method.decodes else "greedy", "group": method.group,
                                 "method": method.name, "label": method.label, "dataset": place}  # fmt: skip
                figures = _long_figures(results, method, place, decoding)
                rows.append(Row(head | figures | _paper_figures(paper, method, place)))
    return Table(columns, rows)


def _long_figures(results: Results, method: Method, place: str, decoding: str) -> dict:
    found = _estimates(results, method, place, decoding)
    if isinstance(found, Hole):
        return {"status": found.reason}
    figures: dict = {"status": results.status(method), "seeds": len(method.runs)}
    if place != "average":
        summary = results.summary(method, place, decoding)
        figures |= {"k": "+".join(map(str, summary.correct)), "n": summary.cases, "cost_median": summary.cost_median,
                    "cost_p90": summary.cost_p90}  # fmt: skip
    for metric, estimate in found.items():
        figures |= numbers(metric, estimate)
    return figures


def _paper_figures(paper: Mapping[str, PaperRow], method: Method, place: str) -> dict:
    if not method.paper:
        return {}
    return {"paper_method": method.paper} | {f"paper_{n}": v for n, v in paper[method.paper].figures[place].items()}


def paper_table(settings: Settings, paper: Mapping[str, PaperRow]) -> Table:
    """Table 1 as printed, without the paper's marks; the last column names our counterpart."""
    columns = [Column("method", "Method", align="l")]
    columns += [Column(f"{p}.{f[0]}", f[2], PLACES[p], DECIMALS) for p in PLACES for f in FIGURES[:3]]
    columns.append(Column("ours", "Our counterpart", align="l"))
    ours = {method.paper: method.label for method in main_methods(settings) if method.paper and method.runs}
    rows: list[Row | Section] = []
    for group in (CLOSED, OPEN, AGENTS, TRAINED):
        rows.append(Section(group))
        for row in (r for r in paper.values() if r.group == group):
            cells = {f"{place}.{name}": value for place, at in row.figures.items() for name, value in at.items()}
            rows.append(Row({"method": row.method, "ours": ours.get(row.method), **cells}))
    text = f"{paper_title(settings)}. Nothing here was measured by this pipeline."
    return Table(columns, rows, text, label="tab:paper_main_results")


def caption(settings: Settings, decoding: str) -> str:
    """What a reader must know before comparing figures."""
    weights = settings.utility
    unit = f"{weights.cost_unit_usd:g}"
    return (
        f"Main results, {decoding} decoding. T{tier_mark(settings)[1:]}; cost_unit_usd = {unit}. "
        "Acc.: correct diagnoses in %; AEN: examinations requested per case (items of the physical examination apart); "
        "AEC: cost per case in USD; "
        f"Utility: Acc. as a share - {weights.lambda_test:g} tests - {weights.lambda_cost:g} cost / {unit} USD - "
        f"{weights.lambda_na:g} N_na, on average over data sets. Trained rows are means over the seeds "
        f"{', '.join(map(str, settings.seeds))}. Best in bold and second underlined among the open-source and "
        "reinforcement rows that were run."
    )


def _legend(results: Results) -> list[str]:
    notes = []
    if any(not method.decodes for method in results.methods):
        notes.append("Reference policies do not decode: their figures are the same for every decoding. They are told "
                     "the disease model that made the cases, which no learned row is.")  # fmt: skip
    average = "Average: unweighted mean of the three data sets, as in the paper."
    return [*results.divergences(), *notes, average, *notices(results.settings)]


def _estimates(results: Results, method: Method, place: str, decoding: str) -> Mapping[str, Estimate] | Hole:
    if place == "average":
        return results.average(method, decoding)
    found = results.summary(method, place, decoding)
    return found if isinstance(found, Hole) else found.estimates


def _sd(estimate: Estimate, factor: float = 1.0) -> float | None:
    return None if estimate.seed_sd is None else estimate.seed_sd * factor
