"""Every agent on each benchmark and on its leak-controlled variant: what a leak was worth to it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Evaluation, EvaluationError, compare
from ..results import frame
from ..results.methods import DATASETS, Method, leak_methods, tier_mark
from ..results.provenance import check_provenance
from ..results.results import Results, first_hole
from ..results.sources import notices
from ..results.table import Cell, Column, Heading, Sheet, Table, number
from ..settings import Settings
from ..settings.datasets import controlled_name

SHOWN = (frame.ACCURACY, frame.AEC)
_ENDS = ("", "_controlled", "_change", "_change_low", "_change_high")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Per decoding every agent on each benchmark and on its variant. Raises as :class:`Results` does."""
    results = Results(settings, folder, leak_methods(settings))
    variants = [results.path(run, controlled_name(d)) for m in results.methods for run in m.runs for d in DATASETS]
    check_provenance(settings, sorted({path for path in variants if path.exists()}))
    parts, every_line = [], []
    for decoding in results.decodings:
        pairs = [(method, dataset) for method in results.methods for dataset in DATASETS]
        lines = [_line(results, method, dataset, decoding) for method, dataset in pairs]
        parts.append((f"{decoding.capitalize()} decoding", _table(results, lines, decoding)))
        every_line += lines
    names = ("tier", "decoding", "method", "dataset", "status", "seeds", "cases")
    plain = frame.long_table(every_line, names, more=[f"{metric.name}{end}" for metric in SHOWN for end in _ENDS])
    return Sheet(f"Leak control ({tier_mark(settings)})", parts, plain)


write_leak_control = frame.writer(sheet)


def _line(results: Results, method: Method, dataset: str, decoding: str) -> frame.Cells:
    """One agent on a benchmark and its variant, seed by seed on the cases in both: its means, and variant minus
    benchmark (accuracy as a share, shown in %); or why there is no such figure.

    Raises EvaluationError when the variant holds a case that the benchmark does not.
    """
    line, places = frame.line(results, method, dataset, decoding), (dataset, controlled_name(dataset))
    sides = [results.evaluations(method, place, decoding) for place in places]
    if hole := first_hole(sides):
        head = {name: line[name] for name in ("tier", "decoding", "method", "label", "dataset")}
        return head | {"status": hole.reason, "seeds": len(method.runs), "hole": hole.reason}
    less = [replace(evaluation, dataset=dataset) for evaluation in sides[1]]
    whole = [_among(one, other.note_ids) for one, other in zip(sides[0], less, strict=True)]
    plan = results.settings.evaluation
    comparison = compare(less, whole, plan.bootstrap, plan.seed)
    runs = [results.behind(place, method) for place in places]
    both = (*runs[1], *runs[0])
    line |= {"cases": comparison.cases, "discordant": Cell(frame.discordant(comparison), runs=both)}
    for metric in SHOWN:
        name, change = metric.name, comparison.differences[metric.name]
        for key, side, behind in zip((name, f"{name}_controlled"), (whole, less), runs, strict=True):
            line[key] = Cell(float(np.mean([e.metric(name) for e in side])), runs=behind)
        text = frame.interval_cell(metric, change, signed=True).text
        line[f"{name}_change"] = Cell(change.mean, text=text, runs=both)
        line |= {f"{name}_change_low": change.low, f"{name}_change_high": change.high}
    return line


def _table(results: Results, lines: Sequence[frame.Cells], decoding: str) -> Table:
    """A row per agent and data set: each metric on the benchmark, on its variant, and the change with its interval."""
    columns = [Column("label", "Method", align="l"), Column("cases", "N")]
    for metric in SHOWN:
        columns += [Column(metric.name, "benchmark", metric.header, factor=metric.factor),
                    Column(f"{metric.name}_controlled", "controlled", metric.header, factor=metric.factor),
                    Column(f"{metric.name}_change", "Δ [95%]", metric.header)]  # fmt: skip
    columns += [Column("discordant", "only controlled : only benchmark right")]
    rows: list[Heading | frame.Cells] = []
    notes = results.remarks()
    for dataset, label in DATASETS.items():
        rows += [Heading(label), *(line for line in lines if line["dataset"] == dataset)]
        notes += _taken_out(results, dataset, label)
    notes.append(f"Both figures are over the cases in both (N). {frame.PAIRED_INTERVALS} What is left in a controlled "
                 "case keeps its price, so costs change only by what the agent does.")  # fmt: skip
    text = (f"Benchmarks and their leak-controlled variants, {decoding} decoding ({tier_mark(results.settings)}). "
            "Δ: controlled minus benchmark.")  # fmt: skip
    return Table(columns, rows, text, [*notes, *notices(results.settings)], f"tab:leak_control_{decoding}")


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
    cases = f"{label}: {attrition['kept']} of {attrition['read']} cases ({share}%)"
    return [f"{cases}; {'; '.join(done) or 'no leak was found'}."]
