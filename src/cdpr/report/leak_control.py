"""Every agent on each benchmark and on its leak-controlled variant: its gain from leaks."""

import json
from pathlib import Path
from typing import Any

from ..evaluation.metrics import METRICS, EvaluationError, by_run, metric_fields
from ..settings import Settings
from ..settings.datasets import controlled_name
from . import comparisons, layout
from .methods import DATASETS, Method, leak_methods
from .provenance import check_provenance
from .results import NotMeasured, Results, evaluations_of
from .sources import notices
from .table import Row, Sheet, number

SHOWN = (comparisons.ACCURACY, comparisons.AEC)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Make a table per decoding of every agent on each benchmark and on its variant. Raises as :class:`Results`
    does."""
    results = Results(settings, folder, leak_methods(settings))
    variants = [results.path(run, controlled_name(d)) for m in results.methods for run in m.runs for d in DATASETS]
    check_provenance(settings, sorted({path for path in variants if path.exists()}))
    taken_out = [note for dataset, label in DATASETS.items() for note in _taken_out(results, dataset, label)]
    words: dict[str, Any] = {"remarks": results.notes(), "taken_out": taken_out, "notices": notices(settings)}
    parts, every_line = [], []
    for decoding in results.decodings:
        pairs = [(method, dataset) for method in results.methods for dataset in DATASETS]
        lines = [_line(results, method, dataset, decoding) for method, dataset in pairs]
        rows = [line | {"heading": label} for d, label in DATASETS.items() for line in lines if line["dataset"] == d]
        parts.append(layout.part(settings, "leak_control.levels", rows, decoding, **words))
        every_line += lines
    return layout.declared_sheet(settings, "leak_control", parts, every_line)


write_leak_control = comparisons.writer(sheet)


def _line(results: Results, method: Method, dataset: str, decoding: str) -> Row:
    """Compare one agent on a benchmark and its variant, seed by seed on the cases in both: its means, and variant minus
    benchmark (accuracy as a share, shown in %); or the reason why there is no such figure.

    Raises EvaluationError when the variant holds a case that the benchmark does not.
    """
    line, places = results.summary(method, dataset, decoding), (dataset, controlled_name(dataset))
    try:
        rows, less = (results.rows(method, place, decoding) for place in places)
    except NotMeasured as error:
        head = {name: line[name] for name in ("tier", "decoding", "method", "label", "dataset")}
        return head | {"status": error.reason, "seeds": len(method.runs), "reason": error.reason}
    whole = rows[rows.note_id.isin(set(less.note_id))]
    if strange := set(less.note_id) - set(rows.note_id):
        raise EvaluationError(f"{method.runs[0]} on {dataset}: {len(strange)} cases of the leak-controlled variant are "
                              "not in the benchmark; evaluate both again")  # fmt: skip
    before, after = (by_run(side, metric_fields()) for side in (whole, less))
    change = results.difference([(after[run], before[run]) for run in method.runs], dataset)
    runs = [evaluations_of(method, place) for place in places]
    line = line | {"cases": change["cases"], "discordant": change["discordant"], "runs": (*runs[1], *runs[0])}
    for metric in SHOWN:
        name, column = metric.name, list(METRICS).index(metric.name)
        for key, side, behind in zip((name, f"{name}_controlled"), (before, after), runs, strict=True):
            mean = sum(values[:, column].mean() for values in side.values()) / len(side)
            line |= {key: float(mean), f"{key}_runs": behind}
        line |= {f"{name}_change{end}": change[f"{name}{end}"] for end in ("", "_low", "_high")}
    return line


def _taken_out(results: Results, dataset: str, label: str) -> list[str]:
    """Describe in a sentence what `remove_leaks` reports of a data set."""
    path = results.folder / "cases" / f"{controlled_name(dataset)}.report.json"
    if not path.exists():
        return []
    attrition = json.loads(path.read_text(encoding="utf-8"))
    changes = [f"{row['leak']} ({row['action']} in {row['cases']})" for row in attrition["leaks"]]
    changes += [f"cases dropped: {step['rule']} ({step['dropped']})" for step in attrition["funnel"]]
    share = number(100 * attrition["kept"] / attrition["read"], 1) if attrition["read"] else "0.0"
    cases = f"{label}: {attrition['kept']} of {attrition['read']} cases ({share}%)"
    return [f"{cases}; {'; '.join(changes) or 'no leak was found'}."]
