"""Evaluations on disk -> figures: strict reading, averages per run, seeds combined, paired comparison."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from .row import EvaluationRow
from .significance import McNemar, crossed_bootstrap, mcnemar_exact, percentile_interval, wilson_interval


@dataclass(frozen=True)
class Metric:
    """A metric: the mean over cases of a ``field`` of the rows. Tables print it times ``factor`` under ``header``, the
    main table under ``short``; captions explain it by ``about``. ``main``: the main table has it for every data set;
    ``compared``: its differences between methods stand there too."""

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


def of_rows(*metrics: Metric) -> Mapping[str, Metric]:
    """The metrics by name. Raises TypeError for one that no row holds, and for one of the main table without the words
    that the table needs: when the module is imported, so that planning reports it."""
    for metric in metrics:
        if metric.field not in EvaluationRow.model_fields or (metric.main and not (metric.short and metric.about)):
            raise TypeError(f"metric {metric.name}: give a `field` of EvaluationRow; where `main`, `short` and `about`")
    return {metric.name: metric for metric in metrics}


# Section "Metrics" of the paper; AEN counts issued requests.
METRICS = of_rows(
    Metric("accuracy", "correct", "Acc. (%)", "Acc.", 100.0, higher_is_better=True, main=True, compared=True,
           about="correct diagnoses in %"),
    Metric("aen", "n_issued", "AEN", "AEN", main=True, compared=True,
           about="examinations requested per case (items of the physical examination apart)"),
    Metric("aec", "cost_usd", "AEC (USD)", "AEC", main=True, compared=True, about="cost per case in USD"),
    Metric("utility", "utility", "Utility", decimals=3, higher_is_better=True, compared=True),
    Metric("aen_available", "n_available", "available"),
    Metric("n_na", "n_na", "N_na"),
    Metric("physical", "n_physical", "physical"),
    Metric("forced", "forced", "forced %", factor=100.0),
    Metric("turns", "turns", "Turns"),
)  # fmt: skip

# Counts of replies (NaN where a server did not report them): no metrics of the paper, without intervals.
_REPLIES = ("calls", "prompt_tokens", "completion_tokens", "unmarked", "silent", "too_long", "refused", "failed", "cut",
            "cut_results", "n_invalid")  # fmt: skip


class EvaluationError(ValueError):
    """An evaluation that cannot be used; the message names file, line and field."""


@dataclass(frozen=True)
class Evaluation:
    """One run on one data set with one decoding; rows are in the order of ``note_ids``, which is sorted. ``chance`` is
    the accuracy of the most frequent diagnosis as the answer to every case; ``verdicts`` counts diagnoses by who judged
    them (:class:`~cdpr.evaluation.row.Judging`), none where tables alone judge."""

    run: str
    dataset: str
    decoding: str
    note_ids: tuple[str, ...]
    columns: Mapping[str, np.ndarray] = field(repr=False)
    chance: float = 0.0
    verdicts: Mapping[str, int] = field(default_factory=Counter)

    def metric(self, name: str) -> np.ndarray:
        """Values per case of one of :data:`METRICS`, float [cases]."""
        return self.columns[METRICS[name].field]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and cases with its 95% interval over both (one seed: over cases), and the mean of each seed."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]

    @property
    def seed_sd(self) -> float | None:
        """Standard deviation between the seeds; None for one."""
        return float(np.std(self.by_seed, ddof=1)) if len(self.by_seed) > 1 else None


@dataclass(frozen=True)
class Summary:
    """A method on one data set: its runs (one per seed) combined.

    ``correct`` counts right diagnoses per run out of ``cases``, ``chance`` is :attr:`Evaluation.chance`; ``draws``
    [resamples, metrics] are bootstrap means, from which averages over data sets get intervals too.
    """

    runs: tuple[str, ...]
    cases: int
    correct: tuple[int, ...]
    estimates: Mapping[str, Estimate]
    cost_median: float
    cost_p90: float
    chance: float
    draws: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class Comparison:
    """First method minus second on the same cases: differences with intervals (and their ``draws``, as of
    :class:`Summary`), McNemar's test per pair of seeds (the i-th of one with the i-th of the other), and the
    evaluations compared, as (run, data set). ``void`` is why it supports nothing, if it does not."""

    cases: int
    differences: Mapping[str, Estimate]
    mcnemar: tuple[McNemar, ...]
    runs: tuple[tuple[str, str], ...] = ()
    draws: np.ndarray | None = field(default=None, repr=False)
    void: str = ""

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """The differences, under the name of the figures of a :class:`Summary`."""
        return self.differences


def read_evaluation(path: str | Path) -> dict[str, Evaluation]:
    """Evaluation of one run on one data set, ``.../{run}/{dataset}.jsonl``, by decoding.

    Raises :class:`EvaluationError` for a missing or empty file, a line that is no row, a case that stands twice, or
    decodings that do not cover the same cases.
    """
    path = Path(path)
    rows: dict[str, dict[str, EvaluationRow]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError as error:
        raise EvaluationError(f"{path}: missing; run the stage `evaluate_agent` for it") from error
    for number, line in enumerate(lines, 1):
        try:
            row = EvaluationRow.model_validate_json(line)
        except ValidationError as error:
            problem = "; ".join(f"field {'.'.join(map(str, e['loc']))!r}: {e['msg']}" for e in error.errors())
            raise EvaluationError(f"{path}:{number}: {problem}") from error
        cases = rows.setdefault(row.decoding, {})
        if row.note_id in cases:
            raise EvaluationError(f"{path}:{number}: field 'note_id': {row.note_id!r} stands twice as {row.decoding}")
        cases[row.note_id] = row
    if not rows:
        raise EvaluationError(f"{path}: holds no row; delete it and run the stage `evaluate_agent` again")
    if len({frozenset(cases) for cases in rows.values()}) > 1:
        counts = ", ".join(f"{decoding} {len(cases)}" for decoding, cases in sorted(rows.items()))
        raise EvaluationError(f"{path}: decodings do not cover the same cases ({counts})")
    evaluations, fields = {}, [*(metric.field for metric in METRICS.values()), *_REPLIES]
    for decoding, cases in sorted(rows.items()):
        note_ids, run = tuple(sorted(cases)), path.parent.name
        columns = {name: np.array([getattr(cases[i], name) for i in note_ids], dtype=float) for name in fields}
        (_, most), *_ = Counter(row.gold for row in cases.values()).most_common(1)
        verdicts = Counter(row.judging.by for row in cases.values() if row.judging and row.judging.by)
        chance = most / len(cases)
        evaluations[decoding] = Evaluation(run, path.stem, decoding, note_ids, columns, chance, verdicts)
    return evaluations


def summarise(evaluations: Sequence[Evaluation], resamples: int, seed: int) -> Summary:
    """Combine the seeds of one method on one data set.

    Intervals are bootstrapped over seeds and cases; the accuracy of a single run gets Wilson's. Costs' median and
    90th percentile are over all workups. Raises EvaluationError when the runs differ in cases.
    """
    check_cases(evaluations)
    first = evaluations[0]
    table = np.stack([_table(e) for e in evaluations])
    draws = crossed_bootstrap(table, resamples, seed, first.dataset)
    estimates = _estimates(table.mean(axis=1), draws)
    correct = tuple(int(e.metric("accuracy").sum()) for e in evaluations)
    if len(evaluations) == 1:
        low, high = wilson_interval(correct[0], len(first.note_ids))
        estimates["accuracy"] = Estimate(estimates["accuracy"].mean, low, high, estimates["accuracy"].by_seed)
    costs = map(float, np.quantile(np.concatenate([e.metric("aec") for e in evaluations]), [0.5, 0.9]))
    runs, cases = tuple(e.run for e in evaluations), len(first.note_ids)
    return Summary(runs, cases, correct, estimates, *costs, first.chance, draws)


def average(parts: Sequence[Summary] | Sequence[Comparison]) -> dict[str, Estimate]:
    """Unweighted mean over data sets, as in the paper's "Average" columns; cases are resampled set by set, seeds alike.

    Raises ValueError when the methods' seeds differ in number.
    """
    by_seed = np.mean([[part.estimates[name].by_seed for name in METRICS] for part in parts], axis=0).T
    return _estimates(by_seed, np.mean([part.draws for part in parts], axis=0))


def compare(first: Sequence[Evaluation], second: Sequence[Evaluation], resamples: int, seed: int) -> Comparison:
    """Paired comparison of two methods on one data set, each with its seeds in the same order.

    Raises EvaluationError when they differ in cases, ValueError when in the number of seeds.
    """
    check_cases([*first, *second])
    pairs = list(zip(first, second, strict=True))
    table = np.stack([_table(one) - _table(two) for one, two in pairs])
    draws = crossed_bootstrap(table, resamples, seed, first[0].dataset)
    tests = tuple(mcnemar_exact(one.metric("accuracy"), two.metric("accuracy")) for one, two in pairs)
    runs = tuple(dict.fromkeys((each.run, each.dataset) for each in (*first, *second)))
    return Comparison(len(first[0].note_ids), _estimates(table.mean(axis=1), draws), tests, runs, draws)


def _table(evaluation: Evaluation) -> np.ndarray:
    """All metrics of all cases [cases, metrics]."""
    return np.stack([evaluation.metric(name) for name in METRICS], axis=1)


def _estimates(by_seed: np.ndarray, draws: np.ndarray) -> dict[str, Estimate]:
    """Estimates from means [seeds, metrics] and draws [resamples, metrics]."""
    return {
        name: Estimate(float(by_seed[:, i].mean()), *percentile_interval(draws[:, i]), tuple(by_seed[:, i].tolist()))
        for i, name in enumerate(METRICS)
    }


def check_cases(evaluations: Sequence[Evaluation]) -> None:
    """Refuse evaluations on one data set that are of other cases. Raises EvaluationError."""
    first, *others = evaluations
    for other in others:
        if other.note_ids != first.note_ids:
            odd = min(set(other.note_ids) ^ set(first.note_ids))
            raise EvaluationError(
                f"{first.dataset} ({first.decoding}): {first.run} and {other.run} were not evaluated on the same cases "
                f"(case {odd!r} only in one); evaluate both again, with the same pseudonym.key where cases are "
                "credentialed"
            )
