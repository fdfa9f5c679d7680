"""Evaluations as one frame with a row per case, metrics as means over it, and estimates with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..files import parse_yaml, shipped_text
from .row import EvaluationError, EvaluationRow, read_rows
from .significance import percentile_interval


class Metric(NamedTuple):
    """A metric of the tables: the mean over cases of a ``field`` of :class:`~cdpr.evaluation.row.EvaluationRow`.

    Tables print the mean times ``factor`` under ``header``, the main table under ``short``. Captions explain it by
    ``about``. ``main``: the main table has it for every data set. ``compared``: tables of comparisons show its
    differences between methods.
    """

    name: str
    field: str
    header: str
    short: str = ""
    factor: float = 1.0
    decimals: int = 2
    higher_is_better: bool = False
    about: str = ""
    main: bool = False
    compared: bool = False


def metrics_by_name(*metrics: Metric) -> Mapping[str, Metric]:
    """Return the metrics by name. Raises TypeError for a metric whose field is not in a row of evaluations, and for one
    of the main table without ``short`` and ``about``. It runs when the module is imported, so that a mistake is found
    before any job."""
    for metric in metrics:
        # Every metric needs a field; one of the main table also needs its texts.
        if metric.field not in EvaluationRow.model_fields or (metric.main and not (metric.short and metric.about)):
            raise TypeError(f"metric {metric.name}: give a `field` of EvaluationRow; where `main`, `short` and `about`")
    return {metric.name: metric for metric in metrics}


_DECLARED = parse_yaml(shipped_text(__package__, "metrics.yaml"))
METRICS = metrics_by_name(*(Metric(name, **declared) for name, declared in _DECLARED.items()))
# Metrics of the in-domain tables. AEN and AEC: average examination number, and average examination cost, per case.
# N_na: requests without a result.
IN_DOMAIN_METRICS = tuple(METRICS[name] for name in ("accuracy", "aen", "aec", "n_na", "utility"))
ACCURACY, AEN, AEC, N_NA, UTILITY = IN_DOMAIN_METRICS

_TEXTS = {"replies", "models"}  # fields of a row that are not columns of the frame


def read_evaluation(path: str | Path) -> pd.DataFrame:
    """Read the evaluation of one run on one data set, ``.../{run}/{dataset}.jsonl``, as a frame with a row per decoding
    and case, sorted by both.

    The columns are ``run``, ``dataset``, the fields of :class:`~cdpr.evaluation.row.EvaluationRow` without
    ``replies`` and ``models``, and in place of ``judging`` the fields of
    :class:`~cdpr.evaluation.row.Judging` with the prefix ``judging_``, where the rows have them. Raises
    :class:`EvaluationError` for a missing or empty file, a line that is no row, a case that appears twice under one
    decoding, or decodings that do not cover the same cases.
    """
    path, records, seen = Path(path), [], set[tuple[str, str]]()
    if not path.exists():
        raise EvaluationError(f"{path}: missing; run the stage `evaluate_agent` for it")
    for number, row in enumerate(read_rows(path), 1):
        if (row.decoding, row.note_id) in seen:
            raise EvaluationError(f"{path}:{number}: field 'note_id': {row.note_id!r} appears twice as {row.decoding}")
        seen.add((row.decoding, row.note_id))
        left_out = _TEXTS if row.judging else {*_TEXTS, "judging"}
        records.append({"run": path.parent.name, "dataset": path.stem, **row.model_dump(exclude=left_out)})
    if not records:
        raise EvaluationError(f"{path}: holds no row; delete it and run the stage `evaluate_agent` again")
    records.sort(key=itemgetter("decoding", "note_id"))
    frame = pd.json_normalize(records, sep="_")  # the fields of ``judging`` become columns `judging_...`
    cases = frame.groupby("decoding").note_id.agg(tuple)
    if cases.nunique() > 1:
        counts = ", ".join(f"{decoding} {len(ids)}" for decoding, ids in cases.items())
        raise EvaluationError(f"{path}: decodings do not cover the same cases ({counts})")
    return frame


def by_run(rows: pd.DataFrame, fields: Sequence[str]) -> dict[str, np.ndarray]:
    """Return ``fields`` of the rows of one data set and decoding as numbers: for each run, by name, an array [cases,
    fields] in the order of its rows. Raises EvaluationError when the runs were evaluated on different cases."""
    frames = {str(run): frame for run, frame in rows.groupby("run", sort=False)}
    first, *others = frames
    for other in others:
        if different := set(frames[first].note_id) ^ set(frames[other].note_id):
            raise EvaluationError(
                f"{rows.dataset.iloc[0]} ({rows.decoding.iloc[0]}): {first} and {other} were not evaluated on the same "
                f"cases (case {min(different)!r} only in one); evaluate both again, with the same pseudonym.key where "
                "cases are credentialed"
            )
    return {run: np.ascontiguousarray(frame[list(fields)].to_numpy(float)) for run, frame in frames.items()}


def metric_fields() -> list[str]:
    """Return the field of each of :data:`METRICS`, in their order."""
    return [metric.field for metric in METRICS.values()]


def estimate(name: str, by_seed: Iterable[float], draws: np.ndarray) -> dict[str, Any]:
    """Describe a metric by columns of a table row. ``by_seed`` has its value for each training seed, ``draws`` its
    bootstrap values, shape [resamples].

    The columns are ``NAME``, the mean of the seeds; ``NAME_low`` and ``NAME_high``, its 95% interval; ``NAME_seed_sd``,
    the standard deviation over seeds (None for one seed); and ``NAME_by_seed``, the values.
    """
    values = np.array(list(by_seed))
    low, high = percentile_interval(draws)
    seed_sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    columns = {name: float(values.mean()), f"{name}_low": low, f"{name}_high": high, f"{name}_seed_sd": seed_sd}
    return columns | {f"{name}_by_seed": tuple(values.tolist())}


def estimates(by_seed: np.ndarray, draws: np.ndarray) -> dict[str, Any]:
    """Describe all :data:`METRICS` by the columns of :func:`estimate`. ``by_seed`` [seeds, metrics] has their values,
    ``draws`` [resamples, metrics] their bootstrap values, which are also returned, as the column ``draws``."""
    row: dict[str, Any] = {"draws": draws}
    for column, name in enumerate(METRICS):
        row |= estimate(name, by_seed[:, column], draws[:, column])
    return row


def average(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average rows of :func:`estimates`, one per data set, without weights, as in the paper's "Average" columns.
    Bootstrap values are averaged resample by resample: in one resample all data sets have the same resampled seeds, and
    each its own resampled cases. Raises ValueError when the rows differ in their number of seeds."""
    values = np.array([[row[f"{name}_by_seed"] for name in METRICS] for row in rows])  # [data sets, metrics, seeds]
    return estimates(values.mean(axis=0).T, np.mean([row["draws"] for row in rows], axis=0))
