"""Analyse the completed forms. Only this module opens the key."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from ..evaluation.significance import holm, percentile_interval
from ..files import write_text
from ..job import Job
from ..seeding import derive_seed
from ..settings import Settings
from . import statistics
from .blinding import Items, Key
from .methods import all_synthetic
from .ratings import PHYSICIAN, Ratings, read_ratings
from .records import Record, StateMeans, StudyError, StudyState, read_lines, write_lines
from .rubric import dimensions

# Names of the p-values after Holm's correction over the dimensions, and before it.
_CORRECTED = {"holm": "p", "holm_zeros_dropped": "p_zeros_dropped", "holm_permutation": "p_permutation"}
_ALPHA_RESAMPLES = 500  # each is a new alpha; the interval's ends move by less than .005 with more


class Interval(Record):
    """An estimate with the ends of its 95% interval over resampled cases; None where it is undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Comparison(Record):
    """Our run against the run ``than`` on one dimension, paired by state.

    ``low`` and ``high`` are the 95% interval of the mean difference over cases. ``holm...`` are the p-values corrected
    over the dimensions, which are the paper's family; ``holm_all`` is ``p`` corrected over all comparisons of the
    study. ``states_needed`` is the number of states that could show a difference of 0.5 points at this spread. All
    others are as of :func:`~cdpr.study.statistics.compare_pairs`.
    """

    dimension: str
    than: str
    difference: float
    low: float
    high: float
    sd: float
    zeros: int
    p: float
    holm: float
    holm_all: float
    p_zeros_dropped: float
    holm_zeros_dropped: float
    p_permutation: float
    holm_permutation: float
    rank_biserial: float
    shift: float
    shift_low: float
    shift_high: float
    states_needed: int | None


class Analysis(Record):
    """The results of a study.

    ``kind`` is the kind of raters, empty where nothing was rated yet; ``synthetic``: all cases are. ``runs`` are
    compared, ours first; ``source`` is the run whose states were sampled. ``alpha`` is Krippendorff's by dimension.
    ``scores`` are mean scores by dimension and run, ``datasets`` by data set, dimension and run. ``lead`` is, by
    dimension, our score minus that of the best baseline; ``ahead`` is that lead minus the largest lead on any other
    dimension.
    """

    study: str
    kind: str = ""
    synthetic: bool = False
    source: str
    runs: tuple[str, ...]
    left_out: dict[str, str]
    raters: tuple[str, ...] = ()
    states: int
    cases: int
    missing: int = 0
    alpha: dict[str, Interval] = Field(default_factory=dict)
    scores: dict[str, dict[str, Interval]] = Field(default_factory=dict)
    datasets: dict[str, dict[str, dict[str, float | None]]] = Field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    lead: dict[str, Interval] = Field(default_factory=dict)
    ahead: dict[str, Interval] = Field(default_factory=dict)
    level: float = statistics.LEVEL
    target: float = statistics.TARGET

    @property
    def ours(self) -> str:
        """The run of our method."""
        return self.runs[0]

    def next_best(self, dimension: str) -> str:
        """Return the baseline with the highest mean on a dimension; an undefined mean counts as 0."""
        scores = self.scores[dimension]
        return max(self.runs[1:], key=lambda run: scores[run].value or 0.0)

    def comparison(self, dimension: str, than: str) -> Comparison | None:
        """Return our comparison with the run ``than``; None where no state has scores of both."""
        return next((c for c in self.comparisons if (c.dimension, c.than) == (dimension, than)), None)


def analyse_study(settings: Settings, job: Job) -> None:
    """Stage ``analyse_study``: read the completed forms, open the key, and write the analysis and the scores by state.
    Raises StudyError for forms that cannot be used."""
    items = Items.read(job.inputs["cards"])
    key = Key.open(job.inputs["sealed"], items)
    states = read_lines(job.inputs["states"], StudyState)
    cases = {(state.dataset, state.note_id) for state in states}
    analysis = Analysis(
        study=items.study, source=states[0].source, runs=key.compared, left_out=key.left_out, states=len(states),
        cases=len(cases), synthetic=all_synthetic(settings),
    )  # fmt: skip
    means: Iterable[StateMeans] = ()
    if path := job.inputs.get("ratings"):
        ratings = read_ratings([path], items, allow_missing=settings.study.allow_missing)
        if settings.study.ratings and ratings.kind != PHYSICIAN:
            raise StudyError(f"{path}: these are {ratings.kind} ratings; study.ratings is for physicians' alone")
        table = ScoreTable(states, items, key, ratings)
        results = {"kind": ratings.kind, "raters": tuple(ratings.scores), "missing": ratings.missing}
        analysis, means = analysis.model_copy(update=results | analyse_scores(settings, table)), table.by_state()
    write_text(job.out["analysis"], analysis.model_dump_json(indent=1) + "\n")
    write_lines(job.out["means"], means)
    job.metrics.update({f"alpha/{name}": at.value for name, at in analysis.alpha.items() if at.value is not None})
    job.tags["raters"] = analysis.kind or "none yet"
    raters, missing = analysis.kind or "no", analysis.missing
    print(f"study {analysis.study}: {raters} raters, {analysis.states} states, {missing} ratings missing")


class ScoreTable:
    """The scores of a study as arrays, with authors; NaN where there is no score.

    ``ratings`` [raters, dimensions, contents] are the single scores. ``means`` [dimensions, runs, states] are means
    over raters. ``content_of`` [runs, states] is the number of the content that a run proposed at a state, and
    ``state_of`` [contents] the number of the state of a content.
    """

    def __init__(self, states: Sequence[StudyState], items: Items, key: Key, ratings: Ratings):
        self.states, self.runs, self.contents = states, key.compared, list(items.contents.values())
        number_of = {state.digest: n for n, state in enumerate(states)}
        self.state_of = np.array([number_of[content.state] for content in self.contents])
        self.content_of = np.zeros((len(self.runs), len(states)), dtype=int)
        for n, name in enumerate(items.contents):
            for run in key.runs[name]:
                self.content_of[self.runs.index(run), self.state_of[n]] = n
        frames = [pd.DataFrame(s).reindex(dimensions(), columns=items.contents) for s in ratings.scores.values()]
        self.ratings = np.stack([frame.to_numpy(float) for frame in frames])
        mean_ratings = _mean(np.moveaxis(self.ratings, 0, -1))
        self.means = np.round(mean_ratings[:, self.content_of], statistics.DECIMALS)

    def resampled_means(self, weights: np.ndarray) -> np.ndarray:
        """Average over resampled states: means [dimensions, runs, resamples] with ``weights`` [resamples, states]."""
        is_rated = ~np.isnan(self.means)
        with np.errstate(invalid="ignore"):
            return (np.where(is_rated, self.means, 0.0) @ weights.T) / (is_rated @ weights.T)

    def differences(self, dimension: int, run: int) -> np.ndarray:
        """Return our mean scores minus those of a run, at the states that have both."""
        differences = self.means[dimension, 0] - self.means[dimension, run]
        return np.round(differences[~np.isnan(differences)], statistics.DECIMALS)

    def by_dataset(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Average over the states of each data set: means by data set, dimension and run; None where undefined."""
        datasets = np.array([state.dataset for state in self.states])
        means: dict[str, dict[str, dict[str, float | None]]] = {}
        for dataset in dict.fromkeys(state.dataset for state in self.states):
            states = datasets == dataset
            means[dataset] = {
                name: {run: _none_if_nan(_mean(self.means[d, r, states])) for r, run in enumerate(self.runs)}
                for d, name in enumerate(dimensions())
            }
        return means

    def by_state(self) -> Iterator[StateMeans]:
        """Yield the mean scores of each run at each state."""
        for n, state in enumerate(self.states):
            for r, run in enumerate(self.runs):
                content = self.contents[self.content_of[r, n]]
                yield StateMeans(
                    state=state.digest, dataset=state.dataset, note_id=state.note_id, turn=state.turn,
                    source=state.source, run=run, kind=content.kind, action=content.action,
                    means=dict(zip(dimensions(), map(_none_if_nan, self.means[:, r, n]), strict=True)),
                )  # fmt: skip


def _mean(values: np.ndarray) -> np.ndarray:
    """Average over the last axis without NaN; NaN where there is nothing else."""
    with np.errstate(invalid="ignore"):
        return np.nansum(values, axis=-1) / (~np.isnan(values)).sum(axis=-1)


def _none_if_nan(value: np.ndarray) -> float | None:
    """Turn a number into one for JSON, which has no NaN."""
    return None if np.isnan(value) else float(value)


def analyse_scores(settings: Settings, table: ScoreTable) -> dict[str, Any]:
    """Compute all fields of :class:`Analysis` that depend on scores, by name."""
    cases = [(state.dataset, state.note_id) for state in table.states]
    seed = derive_seed(settings.study.seed, "bootstrap")
    weights = statistics.resample_clusters(cases, settings.evaluation.bootstrap, seed)
    means = np.stack([_mean(of_dimension) for of_dimension in table.means])  # [dimensions, runs]
    draws = table.resampled_means(weights)
    fields: dict[str, Any] = {"alpha": _alphas(table, weights[:_ALPHA_RESAMPLES]), "datasets": table.by_dataset()}
    fields["scores"] = {
        name: {run: _interval(means[d, r], draws[d, r]) for r, run in enumerate(table.runs)}
        for d, name in enumerate(dimensions())
    }
    if len(table.runs) == 1:
        return fields
    lead, drawn_lead = means[:, 0] - means[:, 1:].max(axis=1), draws[:, 0] - draws[:, 1:].max(axis=1)
    fields |= {"comparisons": _comparisons(settings, table, draws), "lead": {}, "ahead": {}}
    for d, name in enumerate(dimensions()):
        fields["lead"][name] = _interval(lead[d], drawn_lead[d])
        largest_other, drawn_other = np.delete(lead, d).max(), np.delete(drawn_lead, d, axis=0).max(axis=0)
        fields["ahead"][name] = _interval(lead[d] - largest_other, drawn_lead[d] - drawn_other)
    return fields


def _alphas(table: ScoreTable, weights: np.ndarray) -> dict[str, Interval]:
    """Compute Krippendorff's alpha of each dimension over the contents. Its interval resamples states with ``weights``
    [resamples, states]."""
    alphas = {}
    for d, name in enumerate(dimensions()):
        ratings = table.ratings[:, d]
        value = statistics.krippendorff_alpha(ratings)
        counts = statistics.count_scores(ratings)
        state_of = table.state_of[(~np.isnan(ratings)).sum(axis=0) > 1]  # of the rows of counts
        draws = []
        if value is not None:
            draws = [statistics.alpha_of_counts(np.repeat(counts, w[state_of], axis=0)) for w in weights]
        alphas[name] = _interval(value, np.array([a for a in draws if a is not None]))
    return alphas


def _interval(value: float | None, draws: np.ndarray) -> Interval:
    """Make an interval from an estimate and its bootstrap ``draws`` [resamples]; undefined draws are left out."""
    if value is None or not np.isfinite(value):
        return Interval(value=None)
    draws = draws[np.isfinite(draws)]
    low, high = percentile_interval(draws) if draws.size else (None, None)
    return Interval(value=float(value), low=low, high=high)


def _comparisons(settings: Settings, table: ScoreTable, draws: np.ndarray) -> tuple[Comparison, ...]:
    """Compare our run with each other run on each dimension; ``draws`` [dimensions, runs, resamples] are resampled
    means. Pairs of runs without a state in common are left out."""
    rows = []
    for r, run in list(enumerate(table.runs))[1:]:
        for d, name in enumerate(dimensions()):
            differences = table.differences(d, r)
            if len(differences):
                low, high = percentile_interval(draws[d, 0] - draws[d, r])
                seed = derive_seed(settings.study.seed, "permutation", run, name)
                test = statistics.compare_pairs(differences, settings.study.permutations, seed)
                rows.append({"dimension": name, "than": run, "low": low, "high": high, **test})
    if not rows:
        return ()
    tests = pd.DataFrame(rows)
    tests["holm_all"] = holm(tests["p"])
    for corrected, p in _CORRECTED.items():
        tests[corrected] = tests.groupby("than")[p].transform(holm)
    comparisons = []
    for test in tests.to_dict("records"):
        needed = statistics.states_needed(statistics.TARGET, test["sd"], len(tests)) if test["sd"] > 0 else None
        comparisons.append(Comparison(**test, states_needed=needed))
    return tuple(comparisons)
