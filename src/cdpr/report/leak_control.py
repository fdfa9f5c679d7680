"""Every agent on each benchmark and on its leak-controlled variant: what a leak was worth to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Comparison, Evaluation, EvaluationError, compare
from ..results import frame
from ..results.methods import DATASETS, Method, leak_methods, tier_mark
from ..results.provenance import check_provenance
from ..results.results import Hole, Results
from ..results.sources import notices
from ..results.table import Cell, Column, Heading, Sheet, Table, number
from ..settings import Settings
from ..settings.datasets import controlled_name

SHOWN = (frame.ACCURACY, frame.AEC)
_ENDS = ("", "_controlled", "_change", "_change_low", "_change_high")


@dataclass(frozen=True)
class Paired:
    """Means by metric on the benchmark and on its variant, over the cases in both, and variant minus benchmark."""

    benchmark: Mapping[str, float]
    variant: Mapping[str, float]
    change: Comparison


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding every agent on each benchmark and on its variant. Raises as :class:`Results` does."""
    methods = leak_methods(settings)
    results = Results(settings, folder, methods)
    variants = [results.path(run, controlled_name(d)) for m in methods for run in m.runs for d in DATASETS]
    check_provenance(settings, sorted({path for path in variants if path.exists()}))
    pairs = {
        (m, place, d): paired(results, m, place, d) for d in results.decodings for m in methods for place in DATASETS
    }
    parts = [(f"{decoding.capitalize()} decoding", _table(results, pairs, decoding)) for decoding in results.decodings]
    return Sheet(f"Leak control ({tier_mark(settings)})", parts, _long(results, pairs))


write_leak_control = frame.writer(sheet)


def paired(results: Results, method: Method, dataset: str, decoding: str) -> Paired | Hole:
    """One agent on a benchmark and its variant, seed by seed on the cases in both, or why there is no such figure.

    Raises EvaluationError when the variant holds a case that the benchmark does not.
    """
    whole, less = (results.evaluations(method, place, decoding) for place in (dataset, controlled_name(dataset)))
    if isinstance(whole, Hole) or isinstance(less, Hole):
        return whole if isinstance(whole, Hole) else less
    less = [replace(evaluation, dataset=dataset) for evaluation in less]
    whole = [_among(one, other.note_ids) for one, other in zip(whole, less, strict=True)]
    plan = results.settings.evaluation
    change = compare(less, whole, plan.bootstrap, plan.seed)
    means = [{m.name: float(np.mean([e.metric(m.name) for e in side])) for m in SHOWN} for side in (whole, less)]
    return Paired(*means, change)


def _table(results: Results, pairs: Mapping[tuple, Paired | Hole], decoding: str) -> Table:
    """A row per agent and data set: each metric on the benchmark, on its variant, and the change with its interval."""
    columns = [frame.METHOD, Column("cases", "N")]
    for metric in SHOWN:
        columns += [Column(metric.name, "benchmark", metric.header),
                    Column(f"{metric.name}_controlled", "controlled", metric.header),
                    Column(f"{metric.name}_change", "Δ [95%]", metric.header)]  # fmt: skip
    columns += [Column("discordant", "only controlled : only benchmark right")]
    lines: list[Heading | frame.Cells] = []
    notes = []
    for dataset, label in DATASETS.items():
        lines.append(Heading(label))
        notes += _taken_out(results, dataset, label)
        lines += [{"method": m.label, **_cells(pairs[m, dataset, decoding], results, m, dataset)}
                  for m in results.methods]  # fmt: skip
    notes.append(f"Both figures are over the cases in both (N). {frame.PAIRED_INTERVALS} What is left in a controlled "
                 "case keeps its price, so costs change only by what the agent does.")  # fmt: skip
    text = (f"Benchmarks and their leak-controlled variants, {decoding} decoding ({tier_mark(results.settings)}). "
            "Δ: controlled minus benchmark.")  # fmt: skip
    notes = [*results.divergences(), *notes, *notices(results.settings)]
    return Table.of(columns, lines, text, notes, f"tab:leak_control_{decoding}")


def _cells(pair: Paired | Hole, results: Results, method: Method, dataset: str) -> frame.Cells:
    if isinstance(pair, Hole):
        return {"hole": pair.reason}
    whole, less = (results.behind(place, method) for place in (dataset, controlled_name(dataset)))
    cells: frame.Cells = {"cases": pair.change.cases}
    for metric in SHOWN:
        cells[metric.name] = Cell(pair.benchmark[metric.name] * metric.factor, runs=whole)
        cells[f"{metric.name}_controlled"] = Cell(pair.variant[metric.name] * metric.factor, runs=less)
        change = pair.change.differences[metric.name]
        cells[f"{metric.name}_change"] = frame.interval_cell(metric, change, (*less, *whole), signed=True)
    return cells | {"discordant": Cell(frame.discordant(pair.change), runs=(*less, *whole))}


def _long(results: Results, pairs: Mapping[tuple, Paired | Hole]) -> Table:
    """One line per decoding, agent and data set."""
    lines = []
    for (method, dataset, decoding), pair in pairs.items():
        cells = frame.line(results, method, dataset, decoding)
        if isinstance(pair, Hole):
            lines.append({name: cells[name] for name in ("tier", "decoding", "method", "dataset")}
                         | {"status": pair.reason, "seeds": len(method.runs)})  # fmt: skip
            continue
        for name in (metric.name for metric in SHOWN):
            at = pair.change.differences[name]
            values = (pair.benchmark[name], pair.variant[name], at.mean, at.low, at.high)
            cells |= {f"{name}{end}": value for end, value in zip(_ENDS, values, strict=True)}
        lines.append(cells | {"cases": pair.change.cases})
    names = ("tier", "decoding", "method", "dataset", "status", "seeds", "cases")
    return frame.long_table(lines, names, more=[f"{metric.name}{end}" for metric in SHOWN for end in _ENDS])


def _among(evaluation: Evaluation, note_ids: tuple[str, ...]) -> Evaluation:
    """The evaluation on some of its cases. Raises EvaluationError for a case that it does not have."""
    chosen = np.isin(evaluation.note_ids, note_ids)
    if chosen.sum() != len(note_ids):
        strange = len(note_ids) - int(chosen.sum())
        raise EvaluationError(f"{evaluation.run} on {evaluation.dataset}: {strange} cases of the leak-controlled "
                              "variant are not in the benchmark; evaluate both again")  # fmt: skip
    columns = {name: values[chosen] for name, values in evaluation.columns.items()}
    return replace(evaluation, note_ids=note_ids, columns=columns)


def _taken_out(results: Results, dataset: str, label: str) -> list[str]:
    """What `remove_leaks` reports of a data set, in a sentence."""
    path = results.folder / "cases" / f"{controlled_name(dataset)}.report.json"
    if not path.exists():
        return []
    attrition = json.loads(path.read_text(encoding="utf-8"))
    done = [f"{row['leak']} ({row['action']} in {row['cases']})" for row in attrition["leaks"]]
    done += [f"cases dropped: {step['rule']} ({step['dropped']})" for step in attrition["funnel"]]
    share = number(100 * attrition["kept"] / attrition["read"], 1) if attrition["read"] else "0.0"
    return [
        f"{label}: {attrition['kept']} of {attrition['read']} cases ({share}%); "
        f"{'; '.join(done) or 'no leak was found'}."
    ]
