"""Tables that check the experiment: how much of the accuracy comes from leaked diagnoses, how well two judges agree,
and before training whether there is something to learn and a difference could be shown."""

import json
from pathlib import Path

import pandas as pd

from ..evaluation import preflight
from ..evaluation.metrics import ACCURACY, AEC, METRICS, EvaluationError, by_run, metric_fields
from ..evaluation.significance import agreement
from ..settings import TABLES, Settings, SettingsError, controlled_name
from .methods import DATASETS, Method, backbone, domain, judge_labels, list_methods, main_methods, notices
from .provenance import check_provenance
from .results import NotMeasured, Results, evaluations_of
from .table import Row, Sheet, number

# Leak control: every agent on each benchmark, and on a variant of it without leaked diagnoses

# The metrics of the table.
_COMPARED = (ACCURACY, AEC)


def sheet_leak_control(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of every agent on each benchmark and on its leak-controlled variant, from the results
    in ``folder``. Raises as :class:`Results` does."""
    results = Results(settings, folder, list_methods(settings, "leak_control"))
    # `Results` has checked the evaluations on the benchmarks; these are on the variants.
    paths = {results.path(run, controlled_name(dataset))
             for method in results.methods for run in method.runs for dataset in DATASETS}  # fmt: skip
    check_provenance(settings, sorted(path for path in paths if path.exists()))
    changes = [text for dataset in DATASETS if (text := _describe_changes(results, dataset))]
    sheet = Sheet(settings, "leak_control", remarks=results.notes(), taken_out=changes, notices=notices(settings))
    for decoding in results.decodings:
        rows = [_compare_with_variant(results, method, dataset, decoding)
                for method in results.methods for dataset in DATASETS]  # fmt: skip
        sheet.rows += rows
        # The CSV is by method and then by data set, the table by data set and then by method.
        by_dataset = sorted(rows, key=lambda row: list(DATASETS).index(row["dataset"]))
        sheet.add("levels", [row | {"heading": DATASETS[row["dataset"]]} for row in by_dataset], decoding)
    return sheet


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
    for metric in _COMPARED:
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
    changes += [f"cases dropped: {rule} ({cases})" for rule, cases in report["dropped"].items()]
    share = number(100 * report["kept"] / report["read"], 1) if report["read"] else "0.0"
    return (f"{DATASETS[dataset]}: {report['kept']} of {report['read']} cases ({share}%); "
            f"{'; '.join(changes) or 'no leak was found'}.")  # fmt: skip


# Two judges

# The columns of the frame of diagnoses where none was evaluated.
_COLUMNS = ("dataset", "note_id", "method", "correct", "judging_by", "judging_second", "judging_second_invalid")


def sheet_judge_agreement(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of the agreement between the judges, from the results in ``folder``. Raises
    SettingsError where the settings name no second judge, and as :class:`Results` does."""
    if settings.judge.second is None:
        raise SettingsError("there is one judge: name another in judge.second (a model of workflow/models.yaml, or "
                            f"`{TABLES}`), which every evaluated diagnosis is then shown to as well")  # fmt: skip
    results = Results(settings, folder, main_methods(settings))
    sheet = Sheet(settings, "judge_agreement", judges=judge_labels(settings))
    for decoding in results.decodings:
        diagnoses, missing = _judged_diagnoses(results, decoding)
        rows = _agreement_rows(settings, decoding, diagnoses)
        sheet.add("agreement", rows, decoding, missing=missing)
        sheet.rows += rows
    return sheet


def _judged_diagnoses(results: Results, decoding: str) -> tuple[pd.DataFrame, list[str]]:
    """Return the evaluated diagnoses of all methods as a frame with a row per diagnosis, and a sentence about each
    evaluation that is missing.

    Beside the columns of :func:`~cdpr.evaluation.metrics.read_evaluation` there are

    - ``method``: its name;
    - ``right_by``: who calls it right, as the column of such diagnoses in the counts of ``agreement``: 0 both judges, 1
      the first alone, 2 the second alone, 3 none; NaN where there was no diagnosis to judge;
    - ``invalid``: whether a judging model gave an answer that is no verdict, so that the tables of names decided.

    Raises EvaluationError for evaluations without a second judge.
    """
    frames, missing = [], []
    for method in results.methods:
        for dataset, label in DATASETS.items() if method.runs else ():  # a method without runs misses no evaluation
            try:
                rows = results.rows(method, dataset, decoding)
            except NotMeasured as error:
                missing.append(f"{method.label}, {label}: {error.reason}")
                continue
            if "judging_second" not in rows or rows.judging_several.isna().any():
                path = results.path(method.runs[0], dataset)
                raise EvaluationError(f"{path}: no second judge has seen its diagnoses; evaluate it again")
            frames.append(rows.assign(method=method.name))
    diagnoses = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS)
    first, second = diagnoses.correct.astype(bool), diagnoses.judging_second.eq(True)
    diagnoses["right_by"] = (2 * ~first + ~second).where(diagnoses.judging_second.notna())
    diagnoses["invalid"] = (diagnoses.judging_by == "invalid") | diagnoses.judging_second_invalid.astype(bool)
    return diagnoses, missing


def _agreement_rows(settings: Settings, decoding: str, diagnoses: pd.DataFrame) -> list[Row]:
    """Return the rows of the table of agreement, for each data set and over all of them, a row per subset of the
    diagnoses. A row has Cohen's kappa with its interval, and counts of the diagnoses on which the judges differ, or on
    which one gave no verdict. The subsets are

    - ``all diagnoses``;
    - ``not found by tables``, where the first judge is a language model: those that the tables of names did not find
      right, since only those are shown to the model;
    - ``both gave a verdict``, where an answer of a model was no verdict: those without such an answer. On the others
      the tables of names decided in the model's place, and agree with themselves.
    """
    diagnoses = diagnoses[diagnoses.right_by.notna()]
    subsets = {"all diagnoses": diagnoses}
    if settings.judge.model:
        subsets["not found by tables"] = diagnoses[diagnoses.judging_by != "table"]
    if diagnoses.invalid.any():
        subsets["both gave a verdict"] = diagnoses[~diagnoses.invalid]
    rows = []
    for dataset in (*DATASETS, "all"):
        for among, subset in subsets.items():
            selected = subset if dataset == "all" else subset[subset.dataset == dataset]
            if selected.empty:
                continue
            case = [selected.dataset, selected.note_id]  # a name of a case is unique within its data set
            # A row per case: how many of its diagnoses each of the judges calls right.
            counts = pd.crosstab(case, selected.right_by).reindex(columns=range(4), fill_value=0)
            row = agreement(counts.to_numpy(), settings.evaluation.bootstrap, settings.evaluation.seed, dataset)
            rows.append(row | {
                "tier": settings.tier, "decoding": decoding, "among": among, "cases": len(counts),
                "dataset": dataset, "dataset_text": DATASETS.get(dataset, "All"),
                "kappa_text": "undefined" if row["kappa"] is None else None,
                "flips": f"{row['only_first']} : {row['only_second']}",
                "invalid": int((selected.judging_by == "invalid").sum()),
                "second_invalid": int(selected.judging_second_invalid.sum()),
                "several": int(selected.judging_several.sum()),
            })  # fmt: skip
    return rows


# The check before training


def sheet_headroom(settings: Settings, folder: Path) -> Sheet:
    """Return the tables made from ``preflight.json`` in ``folder``, the results folder. They have a row per data set
    and decoding. The CSV has fractions, US dollars and units of utility."""
    checked = json.loads((folder / "preflight.json").read_bytes())
    sheet = Sheet(settings, "headroom")
    for row in checked["rows"]:
        label = DATASETS[row["dataset"]]
        sheet.rows.append(row | {"dataset_text": label, "heading": f"{label} ({domain(row['dataset'])})"})
    # The first table, with the answer, has the main decoding alone; the second, with the numbers behind it, has all.
    first_decoding = sheet.rows[0]["decoding"]
    obstacles = [f"{text}." for of_dataset in checked["obstacles"].values() for text in of_dataset]
    sheet.add(
        "answer", [row for row in sheet.rows if row["decoding"] == first_decoding], first=first_decoding,
        verdict=checked["verdict"], start=checked["start"], share=preflight.CASE_SHARE, sd=preflight.SEED_SD,
        obstacles=obstacles,
    )  # fmt: skip
    sheet.add(
        "gain", sheet.rows, backbone=backbone(settings), weaknesses=[f"{text}." for text in checked["weaknesses"]],
        unavailable=[f"{DATASETS[dataset]}: not available: {why}." for dataset, why in checked["unavailable"].items()],
    )  # fmt: skip
    return sheet
