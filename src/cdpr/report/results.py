"""Means of methods with confidence intervals, differences between two methods, and why a result is missing, from the
evaluation files of a results folder; and all results as two tidy frames for a notebook."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from ..environment import TERMS, Effort
from ..evaluation.metrics import METRICS, Metric, average, by_run, estimates, metric_fields, read_evaluation
from ..evaluation.row import COUNTS
from ..evaluation.significance import crossed_bootstrap, holm, mcnemar_exact, wilson_interval
from ..files import replacing
from ..job import Job
from ..records import RunRecord
from ..settings import Settings, seeds_of_runs, unreadable_warning
from .curves import diverged_at, read_training
from .methods import AVERAGE, AVERAGED, DATASETS, TRAINED, Method, page_methods, why_unfit
from .provenance import check_prices, check_provenance, check_training
from .table import EMPTY, Row, Runs, interval, number

# A trained policy that orders fewer examinations than this per case, on average, has stopped ordering them.
LEAST_EXAMINATIONS = 0.1


class NotMeasured(Exception):
    """A result that is missing. ``reason`` says why. ``missing`` names the files (or rows of a file) that the pipeline
    has not written yet; it is empty where it will write none."""

    def __init__(self, reason: str, missing: str = ""):
        super().__init__(reason)
        self.reason, self.missing = reason, missing


class Results:
    """The evaluations in a results folder, summarised for tables and figures.

    ``methods`` are the agents and trained variants to show, and ``datasets`` maps the names of test sets to their
    labels (None: all benchmarks). An argument ``dataset`` is such a name or ``average``, the mean over the three data
    sets of the paper; ``decoding`` is how actions were chosen, ``greedy`` or ``sampled``.

    Raises ProvenanceError where evaluations do not belong together: they were made with another tier (scale of the
    experiment), utility or price list than the settings, or on other cases than each other. Methods raise
    EvaluationError for a broken evaluation file, and TableError for a broken file of training metrics.
    """

    def __init__(
        self, settings: Settings, results: str | Path, methods: Sequence[Method],
        datasets: Mapping[str, str] | None = None,
    ):  # fmt: skip
        self.settings, self.folder, self.methods = settings, Path(results), list(methods)
        self.datasets = DATASETS if datasets is None else datasets
        runs = dict.fromkeys(run for method in self.methods for run in method.runs)
        paths = {self.path(run, dataset) for run in runs for dataset in self.datasets}
        check_provenance(settings, sorted(path for path in paths if path.exists()))
        check_training(settings, self.folder, runs)
        check_prices(self.folder, self.datasets)
        # Several tables show the same means: each file is read once, and each bootstrap is drawn once.
        self.read_evaluation = cache(read_evaluation)
        self.estimates = cache(self._compute_estimates)
        self._diverged_at = cache(partial(diverged_at, self.folder))

    @property
    def decodings(self) -> list[str]:
        """The names of the decodings, each once, the main one first."""
        return list(dict.fromkeys(self.settings.evaluation.decodings))

    def method(self, name: str) -> Method:
        """Return the method of this name, an agent or trained variant. Raises NotMeasured for an unknown name."""
        methods = {method.name: method for method in self.methods}
        if name not in methods:
            raise NotMeasured(f"this configuration has no agent or variant {name!r}")
        return methods[name]

    def path(self, run: str, dataset: str) -> Path:
        """Return the path of the file with the evaluation of a run (``cdpr-seed0``) on a data set. It may not exist."""
        return self.folder / "evaluations" / run / f"{dataset}.jsonl"

    def rows(self, method: Method, dataset: str, decoding: str) -> pd.DataFrame:
        """Return the evaluated cases of a method: a row per run (training seed) and case, with the columns of
        :func:`~cdpr.evaluation.metrics.read_evaluation`.

        Raises NotMeasured where the method is not run on the data set, or where one of its runs was not evaluated: a
        mean over some of the seeds is not the mean over all.
        """
        if not method.runs:
            raise NotMeasured(method.why)
        for run in method.runs:
            if reason := why_unfit(self.settings, run, dataset):
                raise NotMeasured(reason)
        decoding = method.decoding(decoding)
        frames, missing = [], []
        for run in method.runs:
            path = self.path(run, dataset)
            name = path.relative_to(self.folder).as_posix()
            if not path.exists():
                missing.append(name)
                continue
            frame = self.read_evaluation(path)
            decoded = frame[frame.decoding == decoding]
            frames.append(decoded)
            if decoded.empty:  # the file was written for other decodings
                missing.append(f"{name} ({decoding} rows)")
        if missing:
            raise NotMeasured(f"missing: {', '.join(missing)}", ", ".join(missing))
        return pd.concat(frames, ignore_index=True)

    # Means

    def summary(self, method: Method, dataset: str, decoding: str) -> Row:
        """Return the results of a method on a data set as the row of a table.

        Every row has the names of the method, data set and decoding. The row of a method that was measured has also

        - every metric with its interval, as the columns of :func:`~cdpr.evaluation.metrics.estimate`, and for a single
          data set the columns of :meth:`_estimates_on`;
        - ``status`` (``measured``, then the runs whose training diverged), ``seeds`` (their number) and ``runs``.

        Where it was not measured, ``reason`` says why, and ``missing`` names the missing files.
        """
        row: Row = {
            "tier": self.settings.tier, "cost_unit_usd": str(self.settings.utility.cost_unit_usd),
            "decoding": method.decoding(decoding), "group": method.group, "method": method.name,
            "label": method.label, "dataset": dataset, "dataset_text": self.datasets.get(dataset),
            "learned": method.learned,
        }  # fmt: skip
        try:
            row |= self.estimates(method, dataset, decoding)
        except NotMeasured as error:
            return row | {"status": error.reason, "reason": error.reason, "missing": error.missing}
        del row["draws"]  # a row holds what a table shows
        seeds = ", ".join(map(str, seeds_of_runs(method.runs)))
        status = "; ".join(["measured", *self.divergences(method.runs)])
        return row | {"status": status, "seeds": len(method.runs), "seeds_text": seeds or EMPTY,
                      "runs": evaluations_of(method, dataset)}  # fmt: skip

    def samples(self, methods: Sequence[Method], dataset: str, decoding: str) -> np.ndarray:
        """Return all metrics of some methods on a data set, an array [1 + resamples, methods, metrics]: first the
        means, then bootstrap means. A resample has the same cases for all methods, so its values can be subtracted or
        divided.

        Raises NotMeasured, and EvaluationError where the methods were evaluated on different cases.
        """
        rows = [self.estimates(method, dataset, decoding) for method in methods]
        # Check that the methods have the same cases: `by_run` raises where they differ. One run of each method will do,
        # since the same check of all its runs was made when its estimates were computed.
        first_runs = [replace(method, runs=method.runs[:1]) for method in methods]
        for single in datasets_behind(dataset):
            by_run(pd.concat([self.rows(method, single, decoding) for method in first_runs]), ["correct"])
        means_and_draws = [np.vstack([[row[name] for name in METRICS], row["draws"]]) for row in rows]
        return np.stack(means_and_draws, axis=1)

    def _compute_estimates(self, method: Method, dataset: str, decoding: str) -> Row:
        """Return every metric of a method with its interval and bootstrap ``draws``, on one data set or on average, as
        columns of a row. Raises NotMeasured; the average names all data sets that it lacks.
        """
        if dataset != AVERAGE:
            return self._estimates_on(method, dataset, decoding)
        summaries = [self.summary(method, single, decoding) for single in AVERAGED]
        missing_by_reason = {row["reason"]: row["missing"] for row in summaries if "reason" in row}  # each reason once
        if missing_by_reason:
            raise NotMeasured("; ".join(missing_by_reason), ", ".join(filter(None, missing_by_reason.values())))
        return average([self.estimates(method, single, decoding) for single in AVERAGED])

    def _estimates_on(self, method: Method, dataset: str, decoding: str) -> Row:
        """Return every metric of a method on one data set, with interval and bootstrap ``draws``, as columns of a row.
        The accuracy of a single run has Wilson's interval.

        Further columns are

        - ``k``, the numbers of right diagnoses by run (``583+590``), and ``n``, the number of cases; ``k_text`` has
          both, as tables show them;
        - ``cost_median`` and ``cost_p90``, quantiles of the cost per episode in USD;
        - ``chance``, the accuracy of giving the most frequent diagnosis for every case.

        Raises NotMeasured.
        """
        rows = self.rows(method, dataset, decoding)
        values = np.stack(list(by_run(rows, metric_fields()).values()))  # [runs, cases, metrics]
        row = estimates(values.mean(axis=1), self.resample(values, dataset))
        runs, cases, _ = values.shape
        right = rows.groupby("run", sort=False).correct.sum().tolist()
        if runs == 1:
            row["accuracy_low"], row["accuracy_high"] = wilson_interval(right[0], cases)
        row["n"] = cases
        row["k"] = "+".join(map(str, right))
        row["k_text"] = f"{row['k']} / {runs}×{cases}" if runs > 1 else f"{row['k']} / {cases}"
        row["cost_median"], row["cost_p90"] = map(float, np.quantile(rows.cost_usd, [0.5, 0.9]))
        # The first rows are those of the first run, which has every case once; the first count is the largest.
        row["chance"] = int(rows.gold[:cases].value_counts().iloc[0]) / cases
        return row

    def resample(self, values: np.ndarray, dataset: str) -> np.ndarray:
        """Return the bootstrap means [resamples, metrics] of ``values`` [seeds, cases, metrics] on a data set. Seeds
        and cases are resampled (:func:`~cdpr.evaluation.significance.crossed_bootstrap`)."""
        return crossed_bootstrap(values, self.settings.evaluation.bootstrap, self.settings.evaluation.seed, dataset)

    # Differences

    def change(self, first: Method, second: Method, dataset: str, decoding: str) -> Row:
        """Return the differences between two methods, ``first`` minus ``second``, on the same cases, as the row of a
        table.

        Runs are paired by training seed, over the seeds that both have; the one run of an untrained agent is paired
        with every run of the other. The row has

        - every metric's difference with its interval, as columns of :func:`~cdpr.evaluation.metrics.estimate`;
        - ``cases``, the number of cases, summed over data sets for the average;
        - ``tests``, a McNemar test per pair of runs (empty for the average), and the compared ``runs``;
        - ``void``, why the comparison supports no conclusion (:meth:`why_void`; empty where it can).

        Where a run is missing or no seed is shared, it has ``reason`` and ``missing`` instead.
        """
        row: Row = {"method": first.name, "label": first.label, "second": second.label,
                    "dataset": DATASETS.get(dataset), "tests": ()}  # fmt: skip
        try:
            row |= self._differences(first, second, dataset, decoding)
        except NotMeasured as error:
            return row | {"reason": error.reason, "missing": error.missing}
        del row["draws"]
        # The two methods with only those of their runs that were compared.
        compared = {run for run, _ in row["runs"]}
        methods = [replace(m, runs=tuple(run for run in m.runs if run in compared)) for m in (first, second)]
        return row | {"void": self.why_void(methods, dataset, decoding)}

    def compare_pairs(self, pairs: Iterable[tuple[Method, Method, str]], decoding: str) -> list[Row]:
        """Return a row of differences (:meth:`change`) for each of the ``pairs`` (first method, second method, data
        set).

        Added are the p-values of the row's McNemar tests, one per training seed: ``p`` as text; after Holm's correction
        over the tests of all rows, ``holm`` as numbers and ``p_holm`` as text. Every metric has a ``..._mark``
        (:func:`outcome_of`), by which the HTML page colours it.
        """
        rows = [self.change(first, second, dataset, decoding) for first, second, dataset in pairs]
        # The adjusted p-values of all tests, row by row.
        adjusted = iter(holm([test.p_value for row in rows for test in row["tests"]]))
        for row in rows:
            row["holm"] = [next(adjusted) for _ in row["tests"]]
            row["p"] = ", ".join(format_p(test.p_value) for test in row["tests"])
            row["p_holm"] = ", ".join(format_p(p) for p in row["holm"])
            if "reason" not in row:
                row |= {f"{metric.name}_mark": outcome_of(row, metric) for metric in METRICS.values()}
        return rows

    def _differences(self, first: Method, second: Method, dataset: str, decoding: str) -> Row:
        """Return the differences between two methods as in :meth:`change`, with their bootstrap ``draws``, and without
        ``void``. Raises NotMeasured."""
        if dataset == AVERAGE:
            by_dataset = [self._differences(first, second, single, decoding) for single in AVERAGED]
            runs = tuple(run for row in by_dataset for run in row["runs"])
            return average(by_dataset) | {"cases": sum(row["cases"] for row in by_dataset), "runs": runs}
        rows = pd.concat([self.rows(method, dataset, decoding) for method in (first, second)])
        pairs = pair_runs(first.runs, second.runs)
        if not pairs:
            raise NotMeasured(f"not compared: {first.label} and {second.label} share no seed")
        first_runs, second_runs = zip(*pairs, strict=True)
        compared = list(dict.fromkeys(first_runs + second_runs))
        values = by_run(rows[rows.run.isin(compared)], metric_fields())
        differences = self.difference([(values[run], values[other]) for run, other in pairs], dataset)
        return differences | {"runs": tuple((run, dataset) for run in compared)}

    def difference(self, pairs: Sequence[tuple[np.ndarray, np.ndarray]], dataset: str) -> Row:
        """Return the differences between paired runs, first minus second, on a data set, as columns of a row. ``pairs``
        has for each pair the metrics of the first run and of the second, two arrays [cases, metrics].

        The columns are

        - every metric's mean difference with its interval and bootstrap ``draws``
          (:func:`~cdpr.evaluation.metrics.estimates`);
        - ``cases``, their number;
        - ``tests``, a McNemar test per pair, and ``discordant``, the numbers of cases that only the first and only the
          second run got right, by pair (``12:7, 9:11``).
        """
        values = np.stack([first - second for first, second in pairs])  # [pairs, cases, metrics]
        accuracy = list(METRICS).index("accuracy")
        tests = tuple(mcnemar_exact(first[:, accuracy], second[:, accuracy]) for first, second in pairs)
        discordant = ", ".join(f"{test.only_first}:{test.only_second}" for test in tests)
        return estimates(values.mean(axis=1), self.resample(values, dataset)) | {
            "cases": values.shape[1], "tests": tests, "discordant": discordant}  # fmt: skip

    def why_void(self, methods: Iterable[Method], dataset: str, decoding: str) -> str:
        """Say why a comparison of these methods supports no conclusion, whatever its intervals; empty where it can
        support one. The reasons, in the order in which they are tried for each method, are that it was trained with a
        single seed, or has stopped ordering examinations; and last, that no method is clearly more accurate than giving
        the most frequent diagnosis for every case. Raises KeyError where a method is not measured."""
        above_chance = False
        for method in methods:
            summary = self.summary(method, dataset, decoding)
            if method.group == TRAINED and len(method.runs) == 1:
                return f"{method.label} was trained with one seed"
            if method.group == TRAINED and summary["aen"] < LEAST_EXAMINATIONS:
                return f"{method.label} has stopped ordering examinations (AEN {summary['aen']:.2f})"
            by_dataset = [self.summary(method, single, decoding) for single in datasets_behind(dataset)]
            chance, cases = fmean(row["chance"] for row in by_dataset), sum(row["n"] for row in by_dataset)
            lowest_accuracy, _ = wilson_interval(round(summary["accuracy"] * cases), cases)  # end of the 95% interval
            above_chance = above_chance or lowest_accuracy > chance
        return "" if above_chance else f"none is above chance ({100 * chance:.0f}%, the most frequent diagnosis)"

    # Notes

    def notes(self) -> list[str]:
        """Return the sentences printed below every table and figure: which trainings diverged, and who judged the
        diagnoses."""
        return [*self.divergence_notes(), *self.judging_notes()]

    def divergences(self, runs: Iterable[str]) -> list[str]:
        """Return a text ``cdpr-seed1 diverged at step 20`` for each of the runs whose training stopped early because it
        diverged."""
        steps = {run: self._diverged_at(run) for run in runs}
        return [f"{run} diverged at step {step}" for run, step in steps.items() if step is not None]

    def divergence_notes(self) -> list[str]:
        """Return a sentence for every method with runs that diverged. Such a run counts in its results, evaluated with
        the last weights before."""
        texts = [(method.label, ", ".join(self.divergences(method.runs))) for method in self.methods]
        return [f"{label}: training diverged ({text.replace(' diverged at ', ' at ')}); evaluated with the weights "
                "before." for label, text in texts if text]  # fmt: skip

    def judging_notes(self) -> list[str]:
        """Return who judged the diagnoses: a sentence with the shares over all methods, then one for each method at
        whose diagnoses the judging model often failed. An empty list where no model judges, or nothing was measured."""
        if not self.settings.judge.model:
            return []
        total, notes = Counter[str](), []
        for method in self.methods:
            counts = Counter[str]()  # of the method's diagnoses by who judged them: `table`, `model` or `invalid`
            # Each decoding once: for reference policies all are one.
            decodings = dict.fromkeys(map(method.decoding, self.decodings))
            for dataset, decoding in itertools.product(self.datasets, decodings):
                with suppress(NotMeasured):
                    rows = self.rows(method, dataset, decoding)
                    counts.update(rows.get("judging_by", pd.Series(dtype=str)).value_counts().to_dict())
            # The model was asked about all diagnoses but those that the tables settled.
            if failure := unreadable_warning("judge", counts["invalid"], counts["invalid"] + counts["model"]):
                notes.append(f"{method.label}: {failure}.")
            total += counts
        if not total:
            return []
        table, model, invalid = (f"{100 * total[by] / total.total():.1f}%" for by in ("table", "model", "invalid"))
        return [f"Verdicts on {total.total():,} diagnoses: {table} by tables of names, {model} by the judge, {invalid} "
                "unreadable answers of the judge, for which the tables decided.", *notes]  # fmt: skip

    def answering_models(self, method: Method) -> list[str]:
        """Return the sorted names of the models under which servers answered a method's requests, where they are not
        the requested model. Read from the tag ``answered_as`` of each ``run.json``."""
        evaluations = itertools.product(method.runs, self.datasets)
        records = [self.path(run, dataset).with_suffix(".run.json") for run, dataset in evaluations]
        names = {RunRecord.read(record).tags.get("answered_as", "") for record in records if record.exists()}
        return sorted(names - {""})


def datasets_behind(dataset: str) -> Sequence[str]:
    """Return the data sets whose results a column shows: the paper's three for ``average``, else the data set
    itself."""
    return AVERAGED if dataset == AVERAGE else (dataset,)


def evaluations_of(method: Method, dataset: str) -> Runs:
    """Return the evaluations behind a method's results on a data set or on average, as pairs (run, data set)."""
    return tuple((run, single) for single in datasets_behind(dataset) for run in method.runs)


def pair_runs(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
    """Pair the runs of two methods: by seed where both were trained with seeds; else the single run of one with every
    run of the other.

    ``["a-seed0", "a-seed1"]`` and ``["b-seed1", "b-seed2"]`` give ``[("a-seed1", "b-seed1")]``. Raises ValueError where
    both have several runs and one of them has no seeds.
    """
    # The runs by seed; empty where they have none, as the run of an agent.
    first_by_seed = dict(zip(seeds_of_runs(first), first, strict=False))
    second_by_seed = dict(zip(seeds_of_runs(second), second, strict=False))
    if first_by_seed and second_by_seed:
        return [(run, second_by_seed[seed]) for seed, run in first_by_seed.items() if seed in second_by_seed]
    if min(len(first), len(second)) > 1:
        raise ValueError(f"several runs without seeds cannot be paired: {', '.join([*first, *second])}")
    return list(itertools.product(first, second))


# What is said of differences


def describe_changes(changes: Sequence[Row], metrics: Sequence[Metric]) -> list[str]:
    """Return a sentence about each measured difference (:func:`describe_change`). Where the rows are of several data
    sets, each sentence begins with its data set."""
    has_several = len({change["dataset"] for change in changes}) > 1
    return [(f"{change['dataset']}: " if has_several else "") + describe_change(change, metrics)
            for change in changes if "reason" not in change]  # fmt: skip


def describe_change(change: Row, metrics: Sequence[Metric]) -> str:
    """Describe a row of differences (:meth:`Results.change`) in a sentence: on which metrics the first method is
    clearly better, clearly worse, or neither (open). For example ``CDPR against GRPO is better on AEC; open on Acc.``
    Where the comparison supports no conclusion (``void``), the sentence says why."""
    against = f"{change['label']} against {change['second']}"
    if change["void"]:
        return f"{against}: open; {change['void']}."
    metrics_by_outcome: dict[str, list[str]] = {"better": [], "worse": [], "open": []}
    for metric in metrics:
        name = metric.header.partition(" (")[0].rstrip(".")  # "Acc." of "Acc. (%)", without the full stop
        metrics_by_outcome[outcome_of(change, metric) or "open"].append(name)
    parts = [f"{outcome} on {', '.join(names)}" for outcome, names in metrics_by_outcome.items() if names]
    # "CDPR against GRPO is better on AEC", but "CDPR against GRPO: open on AEC".
    link = " is" if metrics_by_outcome["better"] or metrics_by_outcome["worse"] else ":"
    return f"{against}{link} {'; '.join(parts)}."


def outcome_of(change: Row, metric: Metric) -> str:
    """Return ``better`` or ``worse``, for the first of the two methods in a row of differences, where the interval of
    the metric excludes zero; empty where it does not, or where the comparison supports no conclusion (``void``)."""
    low, high = change[f"{metric.name}_low"], change[f"{metric.name}_high"]
    if change["void"] or low <= 0 <= high:
        return ""
    is_higher = low > 0
    return "better" if is_higher == metric.higher_is_better else "worse"


def difference_text(change: Row, metric: Metric) -> str:
    """Return the metric's difference in a row of differences as text, with its interval: ``+30.00 [21.00, 39.00]``."""
    mean, low, high = (metric.factor * change[f"{metric.name}{end}"] for end in ("", "_low", "_high"))
    return interval(mean, low, high, metric.decimals, signed=True)


def format_p(p: float) -> str:
    """Format a p-value with three decimals: ``0.125``; below 0.001 it is ``<0.001``."""
    return "<0.001" if p < 0.001 else number(p, 3)


# All results as two frames: `evaluations.parquet` and `trainings.parquet`. docs/reference/frames.md lists their columns
# with units. They hold no text of a case; where cases are credentialed, the names of cases are pseudonyms.


def write_frames(settings: Settings, job: Job) -> None:
    """Write every evaluation and every training of the results page to the Parquet files ``evaluations`` and
    ``trainings``. Columns in front say which method each row is of: ``method`` (its name), ``label``, ``group`` and
    ``seed`` (missing for agents). Raises as :class:`Results`, and TableError for a broken file of training metrics."""
    results = Results(settings, job.inputs["results"], page_methods(settings))
    # A trained run has one seed, the run of an agent none.
    every = pd.DataFrame([{"method": method.name, "label": method.label, "group": method.group,
                           "seed": next(iter(seeds_of_runs([run])), None), "run": run}
                          for method in results.methods for run in method.runs])  # fmt: skip
    # A run that several variants share counts for the first of them.
    about = every.astype({"seed": "Int64"}).drop_duplicates("run")
    frames = {
        "evaluations": [evaluation_frame(results, run) for run in about.run],
        "trainings": [read_training(results.folder, run) for run in about.run],
    }
    no_rows = pd.DataFrame({"run": pd.Series(dtype=str)})
    for name, of_runs in frames.items():
        filled = [frame for frame in of_runs if len(frame)]
        whole = about.merge(pd.concat(filled or [no_rows], ignore_index=True), how="right")
        with replacing(job.out[name]) as partial:
            whole.to_parquet(partial, index=False)
        job.metrics[f"rows/{name}"] = len(whole)
    print(", ".join(f"{job.metrics[f'rows/{name}']:,} rows of {name}" for name in frames))


def evaluation_frame(results: Results, run: str) -> pd.DataFrame:
    """Return the evaluations of a run on all data sets: a row per data set, decoding and case, without the texts of
    diagnoses, and with each term of the utility in a column of its own (``utility_cost``). It is empty where the run
    was not evaluated."""
    paths = [results.path(run, dataset) for dataset in results.datasets]
    frames = [results.read_evaluation(path) for path in paths if path.exists()]
    if not frames:
        return pd.DataFrame()
    frame = pd.concat(frames, ignore_index=True).rename(columns={"note_id": "case"})
    frame = frame.drop(columns=["diagnosis", "gold", "obtained"])
    # `Effort` holds the counts of one episode; here each count is a column, so that a term of the utility is computed
    # for all rows at once.
    effort = Effort(**{name: frame[f"n_{name}"] for name in COUNTS}, cost_usd=frame.cost_usd)
    for term in TERMS:
        value = term.value(effort, results.settings.utility, results.settings.environment.tests)
        frame[f"utility_{term.symbol.lower()}"] = value
    return frame
