"""Every agent on each benchmark and on a variant of it without leaked diagnoses (the leak-controlled variant): how much
of its accuracy comes from leaks."""

import json
from pathlib import Path

from ..evaluation.metrics import METRICS, EvaluationError, by_run, metric_fields
from ..settings import Settings
from ..settings.datasets import controlled_name
from . import comparisons, layout
from .methods import DATASETS, Method, leak_methods, notices
from .provenance import check_provenance
from .results import NotMeasured, Results, evaluations_of
from .table import Row, Sheet, number

# The metrics of the table.
SHOWN = (comparisons.ACCURACY, comparisons.AEC)


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of every agent on each benchmark and on its leak-controlled variant, from the results
    in ``folder``. Raises as :class:`Results` does."""
    results = Results(settings, folder, leak_methods(settings))
    # `Results` has checked the evaluations on the benchmarks; these are on the variants.
    paths = {results.path(run, controlled_name(dataset))
             for method in results.methods for run in method.runs for dataset in DATASETS}  # fmt: skip
    check_provenance(settings, sorted(path for path in paths if path.exists()))
    changes = [text for dataset in DATASETS if (text := _describe_changes(results, dataset))]
    tables, csv_rows = [], []
    for decoding in results.decodings:
        rows = [_compare_with_variant(results, method, dataset, decoding)
                for method in results.methods for dataset in DATASETS]  # fmt: skip
        csv_rows += rows
        # The CSV is by method and then by data set, the table by data set and then by method.
        by_dataset = sorted(rows, key=lambda row: list(DATASETS).index(row["dataset"]))
        shown = [row | {"heading": DATASETS[row["dataset"]]} for row in by_dataset]
        tables.append(layout.table(settings, "leak_control.levels", shown, decoding, remarks=results.notes(),
                                 taken_out=changes, notices=notices(settings)))  # fmt: skip
    return layout.declared_sheet(settings, "leak_control", tables, csv_rows)


def _compare_with_variant(results: Results, method: Method, dataset: str, decoding: str) -> Row:
    """Return the results of an agent on a benchmark and on its leak-controlled variant as a row; or the ``reason`` why
    there are none.

    Means are over the cases that both have. ``accuracy`` and ``aec`` (USD) are those on the benchmark, ``*_controlled``
    those on the variant, and ``*_change`` variant minus benchmark, paired by seed. Accuracies are fractions. Raises
    EvaluationError where the variant has a case that the benchmark lacks.
    """
    row, variant = results.summary(method, dataset, decoding), controlled_name(dataset)
    try:
        whole, controlled = (results.rows(method, name, decoding) for name in (dataset, variant))
    except NotMeasured as error:
        head = {name: row[name] for name in ("tier", "decoding", "method", "label", "dataset")}  # without results
        return head | {"status": error.reason, "seeds": len(method.runs), "reason": error.reason}
    if unknown := set(controlled.note_id) - set(whole.note_id):
        raise EvaluationError(f"{method.runs[0]} on {dataset}: {len(unknown)} cases of the leak-controlled variant are "
                              "not in the benchmark; evaluate both again")  # fmt: skip
    shared = whole[whole.note_id.isin(set(controlled.note_id))]
    # On the benchmark (before) and on the variant (after leaks were removed): by run, an array [cases, metrics].
    before, after = (by_run(frame, metric_fields()) for frame in (shared, controlled))
    change = results.difference([(after[run], before[run]) for run in method.runs], dataset)
    runs_before, runs_after = evaluations_of(method, dataset), evaluations_of(method, variant)
    row = row | {"cases": change["cases"], "discordant": change["discordant"], "runs": (*runs_after, *runs_before)}
    for metric in SHOWN:
        name, column = metric.name, list(METRICS).index(metric.name)
        for key, values_by_run, runs in ((name, before, runs_before), (f"{name}_controlled", after, runs_after)):
            means = [values[:, column].mean() for values in values_by_run.values()]  # over cases, one per run
            row |= {key: float(sum(means) / len(means)), f"{key}_runs": runs}
        row |= {f"{name}_change{end}": change[f"{name}{end}"] for end in ("", "_low", "_high")}
    return row


def _describe_changes(results: Results, dataset: str) -> str:
    """Return a sentence on how many cases of a data set its leak-controlled variant has, and what was removed for which
    leak. Empty where the variant was not made."""
    path = results.folder / "cases" / f"{controlled_name(dataset)}.report.json"
    if not path.exists():
        return ""
    report = json.loads(path.read_text(encoding="utf-8"))
    changes = [f"{row['leak']} ({row['action']} in {row['cases']})" for row in report["leaks"]]
    changes += [f"cases dropped: {step['rule']} ({step['dropped']})" for step in report["funnel"]]
    share = number(100 * report["kept"] / report["read"], 1) if report["read"] else "0.0"
    return (f"{DATASETS[dataset]}: {report['kept']} of {report['read']} cases ({share}%); "
            f"{'; '.join(changes) or 'no leak was found'}.")  # fmt: skip
