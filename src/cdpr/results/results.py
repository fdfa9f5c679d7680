"""The frame of all results: run × data set × decoding × metric. Tables and figures are projections of it."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from ..evaluation.metrics import Comparison, Estimate, Evaluation, Summary, average, compare, read_evaluation, summarise
from ..evaluation.significance import wilson_interval
from ..settings import Settings, seeds_of_runs
from ..settings.judging import failing
from .curves import diverged_at
from .methods import AVERAGE, AVERAGED, DATASETS, TRAINED, Method, unfit
from .provenance import check_prices, check_provenance, check_training, read_record
from .table import Runs

_VERDICTS = {"table": "by tables of names", "model": "by the judge",
             "invalid": "unreadable answers of the judge, for which the tables decided"}  # fmt: skip
# Fewer examinations per case than this: the policy has stopped ordering them.
STOPPED = 0.1


@dataclass(frozen=True)
class Hole:
    """A figure that is not there; ``missing`` names the file (or rows) that the pipeline should have written, and is
    empty for what is not run on purpose."""

    reason: str
    missing: str = ""


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
        self._read = cache(read_evaluation)
        self._diverged_at = cache(partial(diverged_at, self.folder))
        self.summary = cache(self._summary)

    @property
    def averaged(self) -> bool:
        """Whether the paper's average is a place: all its data sets are among the columns."""
        return set(AVERAGED) <= set(self.datasets)

    @property
    def decodings(self) -> list[str]:
        """The decodings, the main one first."""
        return list(dict.fromkeys(self.settings.evaluation.decodings))

    def method(self, name: str) -> Method:
        """Raises KeyError for a name that no row has."""
        return {method.name: method for method in self.methods}[name]

    # Figures

    def evaluations(self, method: Method, dataset: str, decoding: str) -> list[Evaluation] | Hole:
        """One evaluation per seed, or why they cannot all be had: a mean over some of the seeds is no substitute."""
        if not method.runs:
            return Hole(method.why)
        if reason := next(filter(None, (unfit(self.settings, run, dataset) for run in method.runs)), ""):
            return Hole(reason)
        evaluations, missing = [], []
        decoding = "greedy" if method.knows_hospital else decoding
        for run in method.runs:
            path = self.path(run, dataset)
            if path.exists() and (evaluation := self._read(path).get(decoding)) is not None:
                evaluations.append(evaluation)
            else:
                rows = f" ({decoding} rows)" if path.exists() else ""
                missing.append(f"{path.relative_to(self.folder).as_posix()}{rows}")
        return Hole(f"missing: {', '.join(missing)}", ", ".join(missing)) if missing else evaluations

    def _summary(self, method: Method, dataset: str, decoding: str) -> Summary | Hole:
        evaluations, plan = self.evaluations(method, dataset, decoding), self.settings.evaluation
        return evaluations if isinstance(evaluations, Hole) else summarise(evaluations, plan.bootstrap, plan.seed)

    def estimates(self, method: Method, place: str, decoding: str) -> Mapping[str, Estimate] | Hole:
        """All metrics of a method at a place; the average is a hole when one of its data sets is."""
        parts = [self.summary(method, dataset, decoding) for dataset in data_sets(place)]
        holes = list(dict.fromkeys(part for part in parts if isinstance(part, Hole)))
        if holes:
            return Hole("; ".join(h.reason for h in holes), ", ".join(h.missing for h in holes if h.missing))
        return average(parts) if place == AVERAGE else parts[0].estimates

    def compare(self, first: Method, second: Method, place: str, decoding: str) -> Comparison | Hole:
        """First minus second on the same cases, over the seeds that both have; the one run of an agent that is not
        trained stands against every seed of the other. A hole when a run is missing or no seed is shared. Of the
        average there are differences alone: its ``cases`` are those of all data sets, and no test pools them."""
        if place == AVERAGE:
            parts = [self.compare(first, second, dataset, decoding) for dataset in AVERAGED]
            if hole := first_hole(parts):
                return hole
            runs = tuple(run for part in parts for run in part.runs)
            comparison = Comparison(sum(part.cases for part in parts), average(parts), (), runs)
        else:
            sides = [self.evaluations(method, place, decoding) for method in (first, second)]
            if hole := first_hole(sides):
                return hole
            if not (pairs := _paired(*sides)):
                return Hole(f"not compared: {first.label} and {second.label} share no seed")
            plan = self.settings.evaluation
            comparison = compare(*zip(*pairs, strict=True), plan.bootstrap, plan.seed)
        names = {run for run, _ in comparison.runs}
        compared = [replace(m, runs=tuple(run for run in m.runs if run in names)) for m in (first, second)]
        return replace(comparison, void=self.void(compared, place, decoding))

    def void(self, methods: Iterable[Method], place: str, decoding: str) -> str:
        """Why a comparison of these methods, all measured, supports nothing, whatever its intervals: one was trained
        with a single seed, one has stopped ordering examinations, or none is above chance. Empty where it may."""
        above = []
        for method in methods:
            at = self.estimates(method, place, decoding)
            if method.group == TRAINED and len(method.runs) == 1:
                return f"{method.label} was trained with one seed"
            if method.group == TRAINED and at["aen"].mean < STOPPED:
                return f"{method.label} has stopped ordering examinations (AEN {at['aen'].mean:.2f})"
            parts = [self.summary(method, dataset, decoding) for dataset in data_sets(place)]
            chance, cases = fmean(part.chance for part in parts), sum(part.cases for part in parts)
            above.append(wilson_interval(round(at["accuracy"].mean * cases), cases)[0] > chance)
        return "" if any(above) else f"none is above chance ({100 * chance:.0f}%, the most frequent diagnosis)"

    # What stands behind them

    def behind(self, place: str, method: Method) -> Runs:
        """The evaluations, as (run, data set), that a method's figures at a place are made of."""
        return tuple((run, dataset) for dataset in data_sets(place) for run in method.runs)

    def diverged(self, *runs: str) -> list[str]:
        """``cdpr-seed1 diverged at step 20`` for each of the runs that did not come to the end of its training."""
        ends = {run: self._diverged_at(run) for run in runs}
        return [f"{run} diverged at step {at}" for run, at in ends.items() if at is not None]

    def status(self, method: Method) -> str:
        """``measured``, and which of the method's runs diverged."""
        return "; ".join(["measured", *self.diverged(*method.runs)])

    def divergences(self) -> list[str]:
        """A sentence for every method of which a run diverged; its figures count all seeds."""
        notes = []
        for method in self.methods:
            if broken := self.diverged(*method.runs):
                runs = ", ".join(text.replace(" diverged at ", " at ") for text in broken)
                notes.append(f"{method.label}: training diverged ({runs}); evaluated with the weights before.")
        return notes

    def judging(self) -> list[str]:
        """Who judged the diagnoses behind these figures: one sentence for all of them, and one for every method at
        whose diagnoses the judge failed."""
        if not self.settings.judge.model:
            return []
        counts, notes = Counter[str](), []
        for method in self.methods:
            here = Counter[str]()
            for dataset, decoding in itertools.product(self.datasets, self.decodings):
                evaluations = self.evaluations(method, dataset, decoding)
                for evaluation in () if isinstance(evaluations, Hole) else evaluations:
                    here.update(evaluation.verdicts)
            if failure := failing("judge", here["invalid"], here["invalid"] + here["model"]):
                notes.append(f"{method.label}: {failure}.")
            counts += here
        total = counts.total() or 1
        shares = [f"{100 * counts[by] / total:.1f}% {text}" for by, text in _VERDICTS.items()]
        return [f"Verdicts on {counts.total():,} diagnoses: {', '.join(shares)}.", *notes] if counts else []

    def remarks(self) -> list[str]:
        """The notes below every table and figure of these results: diverged trainings, and the judges."""
        return [*self.divergences(), *self.judging()]

    def answered_as(self, method: Method) -> list[str]:
        """Other models than the one asked for, as which servers answered (``answered_as`` in run.json)."""
        evaluations = (self.path(run, dataset) for run in method.runs for dataset in self.datasets)
        places = (path.with_suffix(".run.json") for path in evaluations)
        tags = {read_record(place).tags.get("answered_as") for place in places if place.exists()}
        return sorted(tags - {None})

    def path(self, run: str, dataset: str) -> Path:
        """Where the evaluation of a run on a data set lies."""
        return self.folder / "evaluations" / run / f"{dataset}.jsonl"


def data_sets(place: str) -> Sequence[str]:
    """The data sets that a place stands for."""
    return AVERAGED if place == AVERAGE else (place,)


def first_hole(figures: Iterable[object]) -> Hole | None:
    """The first of these that is not there, if any."""
    return next((one for one in figures if isinstance(one, Hole)), None)


def _paired(first: Sequence[Evaluation], second: Sequence[Evaluation]) -> list[tuple[Evaluation, Evaluation]]:
    """Evaluations side by side: by seed where both were trained, else the one run of the one against all others."""
    one, two = (dict(zip(seeds_of_runs([e.run for e in side]), side, strict=False)) for side in (first, second))
    if one and two:
        return [(one[seed], two[seed]) for seed in one if seed in two]
    most = max(len(first), len(second))
    spread = [list(side) * (most if len(side) == 1 else 1) for side in (first, second)]
    return list(zip(*spread, strict=True))
