"""Every agent on each benchmark and on its leak-controlled variant: what a leak was worth to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..evaluation.metrics import Comparison, Evaluation, EvaluationError, compare, read_evaluation
from ..files import with_suffix, write_text
from ..results.methods import DATASETS, OPEN, REFERENCE, Method, backbone, tier_mark, trained
from ..results.provenance import check_provenance
from ..results.results import Hole, Results
from ..results.sources import notices
from ..results.table import Column, Row, Section, Table, interval, markdown_page, number, to_csv, to_latex, to_markdown
from ..settings import Settings
from ..settings.datasets import controlled_name

# Metric, header, factor for printing, decimals.
SHOWN = (("accuracy", "Acc. (%)", 100.0, 2), ("aec", "AEC (USD)", 1.0, 2))
_LABELS = {"zero_test": "Zero-test", "all_tests": "All-tests", "grpo": "GRPO", "cdpr": "CDPR (ours)"}


@dataclass(frozen=True)
class Paired:
    """Means by metric on the benchmark and on its variant, over the cases in both, and variant minus benchmark."""

    cases: int
    benchmark: Mapping[str, float]
    variant: Mapping[str, float]
    change: Comparison


def write_leak_control(settings: Settings, results_dir: str | Path, out_stem: str | Path) -> list[Path]:
    """Write ``out_stem`` + ``.csv``, ``.md`` and ``.tex``, one table per decoding. Missing evaluations become labelled
    holes. Raises ProvenanceError or EvaluationError for results that do not belong together."""
    methods = leak_methods(settings)
    results = Results(settings, results_dir, methods)
    variants = [_variant_path(results, run, dataset) for m in methods for run in m.runs for dataset in DATASETS]
    check_provenance(settings, sorted({path for path in variants if path.exists()}))
    decodings = list(dict.fromkeys(settings.evaluation.decodings))
    found = {(m.name, place, d): paired(results, m, place, d) for m in methods for place in DATASETS for d in decodings}
    tables = {decoding: leak_table(results, found, decoding) for decoding in decodings}
    sections = [(f"{decoding.capitalize()} decoding", to_markdown(table)) for decoding, table in tables.items()]
    forms = {
        ".csv": to_csv(long_table(results, found, decodings)),
        ".md": markdown_page(f"Leak control ({tier_mark(settings)})", sections),
        ".tex": "% needs \\usepackage{booktabs}\n" + "\n".join(map(to_latex, tables.values())),
    }
    return [write_text(with_suffix(out_stem, suffix), text) for suffix, text in forms.items()]


def leak_methods(settings: Settings) -> list[Method]:
    """The agents that are compared: the untrained policy, GRPO, CDPR, and the references without and with all
    examinations."""
    return [
        Method("warm_start", backbone(settings), OPEN, ("warm_start",), learned=True),
        *(trained(settings, name) for name in ("grpo", "cdpr")),
        *(Method(name, _LABELS[name], REFERENCE, (name,), decodes=False) for name in ("zero_test", "all_tests")),
    ]


def paired(results: Results, method: Method, dataset: str, decoding: str) -> Paired | Hole:
    """One agent on a benchmark and its variant, seed by seed on the cases in both, or why there is no such figure.

    Raises EvaluationError when the variant holds a case that the benchmark does not.
    """
    whole = results.evaluations(method, dataset, decoding)
    if isinstance(whole, Hole):
        return whole
    less, missing = [], []
    for evaluation in whole:
        path = _variant_path(results, evaluation.run, dataset)
        found = read_evaluation(path).get(evaluation.decoding) if path.exists() else None
        if found is None:
            missing.append(path.relative_to(results.folder).as_posix())
        else:
            less.append(replace(found, dataset=dataset))
    if missing:
        return Hole(f"missing: {', '.join(missing)}", ", ".join(missing))
    whole = [_among(one, other.note_ids) for one, other in zip(whole, less, strict=True)]
    plan = results.settings.evaluation
    change = compare(less, whole, plan.bootstrap, plan.seed)
    means = [{name: float(np.mean([e.metric(name) for e in side])) for name, *_ in SHOWN} for side in (whole, less)]
    return Paired(change.cases, means[0], means[1], change)


def leak_table(results: Results, found: Mapping[tuple, Paired | Hole], decoding: str) -> Table:
    """A row per agent and data set: each metric on the benchmark, on its variant, and the change with its interval."""
    columns = [Column("method", "Method", align="l"), Column("cases", "N")]
    for name, header, _, decimals in SHOWN:
        columns += [Column(name, "benchmark", header, decimals), Column(f"{name}_controlled", "controlled", header,
                    decimals), Column(f"{name}_change", "Δ [95%]", header)]  # fmt: skip
    columns += [Column("discordant", "only controlled : only benchmark right")]
    rows: list[Row | Section] = []
    notes = []
    for dataset, label in DATASETS.items():
        rows.append(Section(label))
        notes += _taken_out(results, dataset, label)
        for method in results.methods:
            pair = found[method.name, dataset, decoding]
            head = {"method": method.label}
            rows.append(Row(head, pair.reason) if isinstance(pair, Hole) else Row(head | _cells(pair)))
    notes.append(
        "Both figures are over the cases in both (N). Intervals: paired bootstrap over cases, seeds averaged per case. "
        "What is left in a controlled case keeps its price, so costs change only by what the agent does."
    )
    text = (f"Benchmarks and their leak-controlled variants, {decoding} decoding ({tier_mark(results.settings)}). "
            "Δ: controlled minus benchmark.")  # fmt: skip
    return Table(columns, rows, text, [*results.divergences(), *notes, *notices(results.settings)],
                 f"tab:leak_control_{decoding}")  # fmt: skip


def long_table(results: Results, found: Mapping[tuple, Paired | Hole], decodings: Iterable[str]) -> Table:
    """The same figures as plain numbers, one line per decoding, agent and data set."""
    names = ["tier", "decoding", "method", "dataset", "status", "seeds", "cases"]
    ends = ("", "_controlled", "_change", "_change_low", "_change_high")
    columns = [Column(name, name, decimals=None) for name in names]
    columns += [Column(f"{metric}{end}", f"{metric}{end}", decimals=6) for metric, *_ in SHOWN for end in ends]
    rows = []
    for decoding in decodings:
        for method in results.methods:
            for dataset in DATASETS:
                pair = found[method.name, dataset, decoding]
                head = {"tier": results.settings.tier, "decoding": decoding if method.decodes else "greedy",
                        "method": method.name, "dataset": dataset, "seeds": len(method.runs)}  # fmt: skip
                if isinstance(pair, Hole):
                    rows.append(Row(head | {"status": pair.reason}))
                    continue
                cells: dict = {"status": results.status(method), "cases": pair.cases}
                for metric, *_ in SHOWN:
                    at = pair.change.differences[metric]
                    values = (pair.benchmark[metric], pair.variant[metric], at.mean, at.low, at.high)
                    cells |= {f"{metric}{end}": value for end, value in zip(ends, values, strict=True)}
                rows.append(Row(head | cells))
    return Table(columns, rows)


def _cells(pair: Paired) -> dict:
    cells: dict = {"cases": pair.cases}
    for metric, _, factor, decimals in SHOWN:
        at = pair.change.differences[metric]
        cells |= {
            metric: pair.benchmark[metric] * factor,
            f"{metric}_controlled": pair.variant[metric] * factor,
            f"{metric}_change": interval(at.mean * factor, at.low * factor, at.high * factor, decimals, signed=True),
        }
    return cells | {"discordant": ", ".join(f"{t.only_first}:{t.only_second}" for t in pair.change.mcnemar)}


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
    """What `control_leaks` reports of a data set, in a sentence."""
    path = results.folder / "cases" / f"{controlled_name(dataset)}.report.json"
    if not path.exists():
        return []
    told = json.loads(path.read_text(encoding="utf-8"))
    done = [f"{row['leak']} ({row['action']} in {row['cases']})" for row in told["leaks"]]
    done += [f"cases dropped: {step['rule']} ({step['dropped']})" for step in told["funnel"]]
    share = number(100 * told["kept"] / told["read"], 1) if told["read"] else "0.0"
    return [f"{label}: {told['kept']} of {told['read']} cases ({share}%); {'; '.join(done) or 'no leak was found'}."]


def _variant_path(results: Results, run: str, dataset: str) -> Path:
    return results.folder / "evaluations" / run / f"{controlled_name(dataset)}.jsonl"
