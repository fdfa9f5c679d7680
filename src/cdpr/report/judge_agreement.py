"""How well two judges of diagnoses agree."""

from pathlib import Path

import pandas as pd

from ..evaluation.metrics import EvaluationError
from ..evaluation.significance import agreement
from ..settings import Settings, SettingsError
from ..settings.judging import TABLES
from . import layout
from .methods import DATASETS, judge_labels, main_methods
from .results import NotMeasured, Results
from .table import Row, Sheet

# The columns of the frame of diagnoses where none was evaluated.
_COLUMNS = ("dataset", "note_id", "method", "correct", "judging_by", "judging_second", "judging_second_invalid")


def sheet(settings: Settings, folder: Path) -> Sheet:
    """Return a table per decoding of the agreement between the judges, from the results in ``folder``. Raises
    SettingsError where the settings name no second judge, and as :class:`Results` does."""
    if settings.judge.second is None:
        raise SettingsError("there is one judge: name another in judge.second (a model of workflow/models.yaml, or "
                            f"`{TABLES}`), which every evaluated diagnosis is then shown to as well")  # fmt: skip
    results = Results(settings, folder, main_methods(settings))
    tables, csv_rows = [], []
    for decoding in results.decodings:
        diagnoses, missing = _judged_diagnoses(results, decoding)
        rows = _agreement_rows(settings, decoding, diagnoses)
        tables.append(layout.table(settings, "judge_agreement.agreement", rows, decoding, missing=missing,
                                  judges=judge_labels(settings)))  # fmt: skip
        csv_rows += rows
    return layout.declared_sheet(settings, "judge_agreement", tables, csv_rows)


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
