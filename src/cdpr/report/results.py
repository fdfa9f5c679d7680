"""Results of methods as rows: means with intervals, differences between two methods, and the reasons of missing
ones."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ..evaluation.metrics import METRICS, average, by_run, estimates, metric_fields, read_evaluation
from ..evaluation.significance import crossed_bootstrap, mcnemar_exact, wilson_interval
from ..settings import Settings, seeds_of_runs
from ..settings.judging import failing
from .curves import diverged_at
from .methods import AVERAGE, AVERAGED, DATASETS, TRAINED, Method, unfit
from .provenance import check_prices, check_provenance, check_training, read_record
from .table import EMPTY, Row, Runs

_VERDICTS = {"table": "by tables of names", "model": "by the judge",
             "invalid": "unreadable answers of the judge, for which the tables decided"}  # fmt: skip
# Fewer examinations per case than this: the policy has stopped ordering them.
STOPPED = 0.1


class NotMeasured(Exception):
    """A figure that is missing, with its ``reason``; ``missing`` names the file (or rows) that the pipeline should have
    written, and is empty for what is not run on purpose."""

    def __init__(self, reason: str, missing: str = ""):
        super().__init__(reason)
        self.reason, self.missing = reason, missing


class Results:
    """Evaluations under a results folder. ``methods`` are the rows that a table or figure shows, ``datasets`` its
    columns and their labels (left out: the benchmarks); a place is a data set or ``average``. Raises ProvenanceError
    when they are of another tier, utility or set of cases than the settings or each other; methods raise
    EvaluationError for a broken evaluation, CurveError for a broken metrics file."""

    def __init__(
        self, settings: Settings, results: str | Path, methods: Sequence[Method],
        datasets: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.settings, self.folder, self.methods = settings, Path(results), list(methods)
        self.datasets = DATASETS if datasets is None else datasets
        paths = [self.path(run, d) for m in self.methods for run in m.runs for d in self.datasets]
        check_provenance(settings, sorted({path for path in paths if path.exists()}))
        check_training(settings, self.folder, dict.fromkeys(run for m in self.methods for run in m.runs))
        check_prices(self.folder, self.datasets)
        self.read = cache(read_evaluation)
        self._diverged_at = cache(partial(diverged_at, self.folder))
        self._on = cache(self._measured)
        self.summary: Callable[[Method, str, str], Any] = cache(lambda *row: MappingProxyType(self._summary(*row)))

    @property
    def averaged(self) -> bool:
        """Whether the paper's average is a place: all its data sets are among the columns."""
        return set(AVERAGED) <= set(self.datasets)

    @property
    def decodings(self) -> list[str]:
        """The decodings, the main one first."""
        return list(dict.fromkeys(self.settings.evaluation.decodings))

    def method(self, name: str) -> Method:
        """Return the method of a name. Raises KeyError for a name that no row has."""
        return {method.name: method for method in self.methods}[name]

    # Figures

    def rows(self, method: Method, dataset: str, decoding: str) -> pd.DataFrame:
        """Return a row per run of a method and case, as of :func:`~cdpr.evaluation.metrics.read_evaluation`. Raises
        NotMeasured where not all runs are there: a mean over some of the seeds is no substitute."""
        if not method.runs:
            raise NotMeasured(method.why)
        if reason := next(filter(None, (unfit(self.settings, run, dataset) for run in method.runs)), ""):
            raise NotMeasured(reason)
        decoding = "greedy" if method.knows_hospital else decoding
        frames, missing = [], []
        for run in method.runs:
            path = self.path(run, dataset)
            name = path.relative_to(self.folder).as_posix()
            if not path.exists():
                missing.append(name)
                continue
            frame = self.read(path)
            frame = frame[frame.decoding == decoding]
            frames.append(frame)
            if frame.empty:
                missing.append(f"{name} ({decoding} rows)")
        if missing:
            raise NotMeasured(f"missing: {', '.join(missing)}", ", ".join(missing))
        return pd.concat(frames, ignore_index=True)

    def resampled(self, values: np.ndarray, dataset: str) -> np.ndarray:
        """Resample values [seeds, cases, figures] with the plan of the settings."""
        return crossed_bootstrap(values, self.settings.evaluation.bootstrap, self.settings.evaluation.seed, dataset)

    def _summary(self, method: Method, place: str, decoding: str) -> Row:
        """Make the row of a method at a place: its origin, its ``status`` and, where it was measured, its number of
        ``seeds``, all metrics as columns of :func:`~cdpr.evaluation.metrics.estimate`, and the ``runs`` behind them. On
        one data set also: right diagnoses by run (``k``: ``583+590``) of ``n`` cases, median and 90th percentile of the
        costs of all episodes, and ``chance``, the accuracy of the most frequent diagnosis as the answer to every case.
        Else ``reason`` says why not, and ``missing`` names the missing files. The accuracy of a single run has Wilson's
        interval."""
        row: Row = {
            "tier": self.settings.tier, "cost_unit_usd": str(self.settings.utility.cost_unit_usd),
            "decoding": "greedy" if method.knows_hospital else decoding, "group": method.group, "method": method.name,
            "label": method.label, "dataset": place, "dataset_text": self.datasets.get(place),
            "learned": method.learned,
        }  # fmt: skip
        try:
            row |= self._average(method, decoding) if place == AVERAGE else self._on(method, place, decoding)
        except NotMeasured as error:
            return row | {"status": error.reason, "reason": error.reason, "missing": error.missing}
        status = "; ".join(["measured", *self.diverged(*method.runs)])
        del row["draws"]  # a row holds plain values alone
        return row | {"status": status, "seeds": len(method.runs), "runs": self.behind(place, method),
                      "seeds_text": ", ".join(map(str, seeds_of_runs(method.runs))) or EMPTY}  # fmt: skip

    def _average(self, method: Method, decoding: str) -> Row:
        parts = [self.summary(method, dataset, decoding) for dataset in AVERAGED]
        holes = {part["reason"]: part["missing"] for part in parts if "reason" in part}
        if holes:
            raise NotMeasured("; ".join(holes), ", ".join(filter(None, holes.values())))
        return average([self._on(method, dataset, decoding) for dataset in AVERAGED])

    def draws(self, method: Method, dataset: str, decoding: str) -> np.ndarray:
        """Return bootstrap means [resamples, metrics] of a method on a data set; those of methods on the same cases
        resample them alike. Raises NotMeasured."""
        return self._on(method, dataset, decoding)["draws"]

    def _measured(self, method: Method, dataset: str, decoding: str) -> Row:
        rows = self.rows(method, dataset, decoding)
        values = np.stack([*by_run(rows, metric_fields()).values()])
        row = estimates(values.mean(axis=1), self.resampled(values, dataset))
        correct, cases = rows.groupby("run", sort=False).correct.sum().tolist(), values.shape[1]
        if len(correct) == 1:
            row["accuracy_low"], row["accuracy_high"] = wilson_interval(correct[0], cases)
        median, p90 = map(float, np.quantile(rows.cost_usd, [0.5, 0.9]))
        k, trials = "+".join(map(str, correct)), f"{len(correct)}×{cases}" if len(correct) > 1 else str(cases)
        chance = int(rows.gold[:cases].value_counts().iloc[0]) / cases
        return row | {"k": k, "k_text": f"{k} / {trials}", "n": cases, "cost_median": median, "cost_p90": p90,
                      "chance": chance}  # fmt: skip

    def change(self, first: Method, second: Method, place: str, decoding: str) -> Row:
        """Compute first minus second on the same cases, over the seeds that both have; the one run of an agent that is
        not trained is compared with every seed of the other. The differences are columns of
        :func:`~cdpr.evaluation.metrics.estimate`; ``tests`` are McNemar's per pair of seeds, ``runs`` the evaluations
        compared, and ``void`` is why the comparison supports nothing, if it does not. ``reason`` says that a run is
        missing or that no seed is shared. Of the average there are no tests: its ``cases`` are those of all data
        sets."""
        row: Row = {"label": first.label, "second": second.label, "dataset": DATASETS.get(place), "tests": ()}
        try:
            row |= self._average_change(first, second, decoding) if place == AVERAGE else (
                self._change_on(first, second, place, decoding))  # fmt: skip
        except NotMeasured as error:
            return row | {"reason": error.reason, "missing": error.missing}
        names = {run for run, _ in row["runs"]}
        compared = [replace(m, runs=tuple(run for run in m.runs if run in names)) for m in (first, second)]
        del row["draws"]
        return row | {"void": self.void(compared, place, decoding)}

    def _average_change(self, first: Method, second: Method, decoding: str) -> Row:
        parts = [self._change_on(first, second, dataset, decoding) for dataset in AVERAGED]
        runs = tuple(run for part in parts for run in part["runs"])
        return average(parts) | {"cases": sum(part["cases"] for part in parts), "runs": runs}

    def _change_on(self, first: Method, second: Method, dataset: str, decoding: str) -> Row:
        sides = [self.rows(method, dataset, decoding) for method in (first, second)]
        if not (pairs := paired(first.runs, second.runs)):
            raise NotMeasured(f"not compared: {first.label} and {second.label} share no seed")
        compared = tuple(dict.fromkeys(run for side in zip(*pairs, strict=True) for run in side))
        values = by_run((rows := pd.concat(sides))[rows.run.isin(compared)], metric_fields())
        return self.difference([(values[one], values[two]) for one, two in pairs], dataset) | {
            "runs": tuple((run, dataset) for run in compared)}  # fmt: skip

    def difference(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]], dataset: str) -> Row:
        """Compute the differences of all metrics between pairs of runs, each [cases, metrics]."""
        table, right = np.stack([one - two for one, two in pairs]), list(METRICS).index("accuracy")
        tests = tuple(mcnemar_exact(one[:, right], two[:, right]) for one, two in pairs)
        return estimates(table.mean(axis=1), self.resampled(table, dataset)) | {
            "cases": table.shape[1], "tests": tests,
            "discordant": ", ".join(f"{test.only_first}:{test.only_second}" for test in tests),
        }  # fmt: skip

    def void(self, methods: Iterable[Method], place: str, decoding: str) -> str:
        """Say why a comparison of these methods, all measured, supports nothing, whatever its intervals: one was
        trained with a single seed, one has stopped ordering examinations, or none is above chance. Empty where it
        may."""
        above = []
        for method in methods:
            summary = self.summary(method, place, decoding)
            if method.group == TRAINED and len(method.runs) == 1:
                return f"{method.label} was trained with one seed"
            if method.group == TRAINED and summary["aen"] < STOPPED:
                return f"{method.label} has stopped ordering examinations (AEN {summary['aen']:.2f})"
            parts = [self.summary(method, dataset, decoding) for dataset in data_sets(place)]
            chance, cases = fmean(part["chance"] for part in parts), sum(part["n"] for part in parts)
            above.append(wilson_interval(round(summary["accuracy"] * cases), cases)[0] > chance)
        return "" if any(above) else f"none is above chance ({100 * chance:.0f}%, the most frequent diagnosis)"

    # Origin of the figures

    def behind(self, place: str, method: Method) -> Runs:
        """Return the evaluations, as (run, data set), behind a method's figures at a place."""
        return tuple((run, dataset) for dataset in data_sets(place) for run in method.runs)

    def diverged(self, *runs: str) -> list[str]:
        """Say ``cdpr-seed1 diverged at step 20`` for each of the runs that did not reach the end of its training."""
        ends = {run: self._diverged_at(run) for run in runs}
        return [f"{run} diverged at step {step}" for run, step in ends.items() if step is not None]

    def divergences(self) -> list[str]:
        """Write a sentence for every method of which a run diverged; its figures count all seeds."""
        notes = []
        for method in self.methods:
            if broken := self.diverged(*method.runs):
                runs = ", ".join(text.replace(" diverged at ", " at ") for text in broken)
                notes.append(f"{method.label}: training diverged ({runs}); evaluated with the weights before.")
        return notes

    def judging(self) -> list[str]:
        """Name the judges of the diagnoses behind these figures: one sentence for all of them, and one for every method
        at whose diagnoses the judge failed."""
        if not self.settings.judge.model:
            return []
        counts, notes = Counter[str](), []
        for method in self.methods:
            here = Counter[str]()
            for dataset, decoding in itertools.product(self.datasets, self.decodings):
                here.update(self.verdicts(method, dataset, decoding))
            if failure := failing("judge", here["invalid"], here["invalid"] + here["model"]):
                notes.append(f"{method.label}: {failure}.")
            counts += here
        total = counts.total() or 1
        shares = [f"{100 * counts[by] / total:.1f}% {text}" for by, text in _VERDICTS.items()]
        return [f"Verdicts on {counts.total():,} diagnoses: {', '.join(shares)}.", *notes] if counts else []

    def verdicts(self, method: Method, dataset: str, decoding: str) -> dict[str, int]:
        """Count diagnoses by judge (:class:`~cdpr.evaluation.row.Judging`)."""
        try:
            rows = self.rows(method, dataset, decoding)
        except NotMeasured:
            return {}
        return rows.judging_by.value_counts().to_dict() if "judging_by" in rows else {}

    def remarks(self) -> list[str]:
        """List the notes below every table and figure of these results: diverged trainings, and the judges."""
        return [*self.divergences(), *self.judging()]

    def answered_as(self, method: Method) -> list[str]:
        """List the models, other than the requested one, as which servers answered (``answered_as`` in run.json)."""
        evaluations = (self.path(run, dataset) for run in method.runs for dataset in self.datasets)
        places = (path.with_suffix(".run.json") for path in evaluations)
        tags = {read_record(place).tags.get("answered_as", "") for place in places if place.exists()}
        return sorted(tags - {""})

    def path(self, run: str, dataset: str) -> Path:
        """Return the file with the evaluation of a run on a data set."""
        return self.folder / "evaluations" / run / f"{dataset}.jsonl"


def data_sets(place: str) -> Sequence[str]:
    """Return the data sets of a place."""
    return AVERAGED if place == AVERAGE else (place,)


def paired(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
    """Pair runs: by seed where both were trained, else the single run of one with all runs of the other."""
    one, two = (dict(zip(seeds_of_runs(side), side, strict=False)) for side in (first, second))
    if one and two:
        return [(one[seed], two[seed]) for seed in one if seed in two]
    most = max(len(first), len(second))
    spread = [list(side) * (most if len(side) == 1 else 1) for side in (first, second)]
    return list(zip(*spread, strict=True))
