"""Analyses the completed forms of the study. Only this module opens the key, which names the author of each
proposal."""

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

# P-values after Holm's correction over the dimensions, each with the name of the p-value that it corrects.
_CORRECTED = {"holm": "p", "holm_zeros_dropped": "p_zeros_dropped", "holm_permutation": "p_permutation"}
_ALPHA_RESAMPLES = 500  # fewer than for means, as an alpha is slow; with more, the interval's ends move by under .005


class Interval(Record):
    """An estimate (``value``) with the ends of its 95% interval over resampled cases. Each is None where it is
    undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Comparison(Record):
    """The comparison of our run with the run ``than`` on one dimension, paired by state.

    - ``difference``: our mean score minus theirs, in points, with its 95% interval over cases, ``low`` to ``high``.
    - ``holm``, ``holm_zeros_dropped``, ``holm_permutation``: the p-values ``p``, ``p_zeros_dropped`` and
      ``p_permutation`` after Holm's correction over the dimensions, which are the paper's family of tests.
    - ``holm_all``: ``p`` after Holm's correction over all comparisons of the study.
    - ``states_needed``: how many states a study needs to find a mean difference of 0.5 points, if the differences have
      the standard deviation ``sd``; None where ``sd`` is 0.
    - The other fields are explained at :func:`~cdpr.study.statistics.compare_pairs`, which computes them.
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

    - ``kind``: the kind of raters, empty where nothing was rated yet; ``raters``: their names.
    - ``synthetic``: whether all cases come from the synthetic hospital.
    - ``runs``: the compared runs, ours first; ``left_out``: the reason for each method that is not compared.
    - ``states``, ``cases``: how many there are; ``source``: the run whose episodes the states were sampled from.
    - ``missing``: the number of missing ratings.
    - ``alpha``: Krippendorff's alpha by dimension.
    - ``scores``: mean scores by dimension and run; ``datasets``: means without intervals, by data set, dimension and
      run.
    - ``comparisons``: of our run with each other run on each dimension.
    - ``lead``: by dimension, our mean score minus that of the best baseline.
    - ``ahead``: by dimension, our lead there minus our largest lead on another dimension.
    - ``level``: the significance level; ``target``: the difference in points that a study should be able to find.
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
        """The name of the run of our method."""
        return self.runs[0]

    def next_best(self, dimension: str) -> str:
        """Return the run of the baseline with the highest mean score on a dimension. An undefined mean counts as 0."""
        scores = self.scores[dimension]
        return max(self.runs[1:], key=lambda run: scores[run].value or 0.0)

    def comparison(self, dimension: str, than: str) -> Comparison | None:
        """Return the comparison of our run with the run ``than`` on a dimension. None where no state has scores of
        both."""
        return next((c for c in self.comparisons if (c.dimension, c.than) == (dimension, than)), None)


def analyse_study(settings: Settings, job: Job) -> None:
    """Stage ``analyse_study``: read the completed forms, open the key with the authors, and write the analysis and the
    mean scores by state. Without forms the analysis has no scores. Raises StudyError for forms that cannot be used, for
    a key of another study, and for simulated ratings where ``study.ratings`` names those of physicians."""
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
        about_raters = {"kind": ratings.kind, "raters": tuple(ratings.scores), "missing": ratings.missing}
        analysis = analysis.model_copy(update=about_raters | analyse_scores(settings, table))
        means = table.by_state()
    write_text(job.out["analysis"], analysis.model_dump_json(indent=1) + "\n")
    write_lines(job.out["means"], means)
    job.metrics.update({f"alpha/{name}": alpha.value for name, alpha in analysis.alpha.items()
                        if alpha.value is not None})  # fmt: skip
    job.tags["raters"] = analysis.kind or "none yet"
    raters, missing = analysis.kind or "no", analysis.missing
    print(f"study {analysis.study}: {raters} raters, {analysis.states} states, {missing} ratings missing")


class ScoreTable:
    """The scores of a study as arrays, together with the authors; NaN where there is no score.

    A content is what raters see of a proposal; runs with equal proposals share one.

    - ``ratings`` [raters, dimensions, contents]: the single scores.
    - ``means`` [dimensions, runs, states]: means over raters of what each run proposed at each state.
    - ``content_of`` [runs, states]: the index of the content that a run proposed at a state.
    - ``state_of`` [contents]: the index of the state at which a content was proposed.
    """

    def __init__(self, states: Sequence[StudyState], items: Items, key: Key, ratings: Ratings):
        """Find the state and the authors of each content, and average its scores over the raters."""
        self.states, self.runs, self.contents = states, key.compared, list(items.contents.values())
        state_index = {state.digest: index for index, state in enumerate(states)}
        self.state_of = np.array([state_index[content.state] for content in self.contents])
        # Every run has a content at every state (`blind` checks it), so every entry is set.
        self.content_of = np.zeros((len(self.runs), len(states)), dtype=int)
        for content_index, name in enumerate(items.contents):
            for run in key.runs[name]:
                self.content_of[self.runs.index(run), self.state_of[content_index]] = content_index
        frames = []
        for scores in ratings.scores.values():
            # A row per dimension, a column per content; NaN where the rater gave no score.
            frames.append(pd.DataFrame(scores).reindex(dimensions(), columns=items.contents))
        self.ratings = np.stack([frame.to_numpy(float) for frame in frames])
        mean_ratings = _mean(self.ratings, axis=0)  # [dimensions, contents]
        self.means = np.round(mean_ratings[:, self.content_of], statistics.DECIMALS)

    def resampled_means(self, weights: np.ndarray) -> np.ndarray:
        """Average the mean scores over resampled states. ``weights`` [resamples, states] says how often each state is
        drawn. Returns means [dimensions, runs, resamples]; NaN where no drawn state has a score."""
        is_rated = ~np.isnan(self.means)
        sums = np.where(is_rated, self.means, 0.0) @ weights.T  # of the scores of all drawn states
        counts = is_rated @ weights.T  # of drawn states that have a score
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
            return sums / counts

    def differences(self, dimension: int, run: int) -> np.ndarray:
        """Return our mean scores minus those of another run on one dimension, [states], for the states that have both.
        ``dimension`` and ``run`` are indices."""
        differences = self.means[dimension, 0] - self.means[dimension, run]
        return np.round(differences[~np.isnan(differences)], statistics.DECIMALS)

    def named(self, values: Iterable[Iterable[Any]]) -> dict[str, dict[str, Any]]:
        """Turn an array [dimensions, runs] into a dictionary by the names of dimension and run."""
        rows = zip(dimensions(), values, strict=True)
        return {dimension: dict(zip(self.runs, row, strict=True)) for dimension, row in rows}

    def by_dataset(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Average over the states of each data set: returns means by data set, dimension and run; None where
        undefined."""
        datasets = np.array([state.dataset for state in self.states])
        means_on = {name: self.means.compress(datasets == name, axis=2) for name in dict.fromkeys(datasets.tolist())}
        return {name: self.named(map(_none_if_nan, row) for row in _mean(means)) for name, means in means_on.items()}

    def by_state(self) -> Iterator[StateMeans]:
        """Yield the mean scores of each run at each state, one record for each."""
        for state_index, state in enumerate(self.states):
            for run_index, run in enumerate(self.runs):
                content = self.contents[self.content_of[run_index, state_index]]
                scores = map(_none_if_nan, self.means[:, run_index, state_index])
                yield StateMeans(
                    state=state.digest, dataset=state.dataset, note_id=state.note_id, turn=state.turn,
                    source=state.source, run=run, kind=content.kind, action=content.action,
                    means=dict(zip(dimensions(), scores, strict=True)),
                )  # fmt: skip


def _mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Average over an axis, leaving out NaN. The mean of NaN alone is NaN, without the warning of ``np.nanmean``."""
    with np.errstate(invalid="ignore"):
        return np.nansum(values, axis=axis) / (~np.isnan(values)).sum(axis=axis)


def _none_if_nan(value: np.ndarray) -> float | None:
    """Turn a number into one for JSON, which has no NaN: NaN becomes None."""
    return None if np.isnan(value) else float(value)


def analyse_scores(settings: Settings, table: ScoreTable) -> dict[str, Any]:
    """Compute all fields of :class:`Analysis` that depend on scores; returns them by name. With a single run there are
    no comparisons."""
    cases = [(state.dataset, state.note_id) for state in table.states]
    seed = derive_seed(settings.study.seed, "bootstrap")
    # How often each state is drawn in each resample, [resamples, states].
    weights = statistics.resample_clusters(cases, settings.evaluation.bootstrap, seed)
    means = _mean(table.means)  # [dimensions, runs]
    draws = table.resampled_means(weights)  # [dimensions, runs, resamples]
    scores = table.named(map(_interval, of_runs, drawn) for of_runs, drawn in zip(means, draws, strict=True))
    fields = {"alpha": _alphas(table, weights[:_ALPHA_RESAMPLES]), "datasets": table.by_dataset(), "scores": scores}
    if len(table.runs) == 1:
        return fields
    # How far our run, the first, is above the best baseline on each dimension: as measured, and in each resample.
    leads = means[:, 0] - means[:, 1:].max(axis=1)
    drawn_leads = draws[:, 0] - draws[:, 1:].max(axis=1)
    lead, ahead = {}, {}
    for index, name in enumerate(dimensions()):
        largest_other = np.delete(leads, index).max()
        drawn_largest_other = np.delete(drawn_leads, index, axis=0).max(axis=0)
        lead[name] = _interval(leads[index], drawn_leads[index])
        ahead[name] = _interval(leads[index] - largest_other, drawn_leads[index] - drawn_largest_other)
    return fields | {"comparisons": _comparisons(settings, table, draws), "lead": lead, "ahead": ahead}


def _alphas(table: ScoreTable, weights: np.ndarray) -> dict[str, Interval]:
    """Compute Krippendorff's alpha of each dimension, by its name, from the ratings of all contents. Its interval
    resamples states: ``weights`` [resamples, states] says how often each state is drawn."""
    alphas = {}
    for index, name in enumerate(dimensions()):
        ratings = table.ratings[:, index]  # [raters, contents]
        value = statistics.krippendorff_alpha(ratings)
        counts = statistics.count_scores(ratings)  # a row per content that was rated at least twice
        is_counted = (~np.isnan(ratings)).sum(axis=0) > 1
        state_of_row = table.state_of[is_counted]
        # In a resample a content is counted as often as its state is drawn.
        resampled = (np.repeat(counts, times_drawn[state_of_row], axis=0) for times_drawn in weights)
        draws = map(statistics.alpha_of_counts, resampled)
        alphas[name] = _interval(value, np.array([alpha for alpha in draws if alpha is not None]))
    return alphas


def _interval(value: float | None, draws: np.ndarray) -> Interval:
    """Make an interval from an estimate and its bootstrap ``draws`` [resamples]. Undefined draws are left out. The ends
    are None without draws, and all is None where the estimate is undefined."""
    if value is None or not np.isfinite(value):
        return Interval(value=None)
    defined = draws[np.isfinite(draws)]
    low, high = percentile_interval(defined) if defined.size else (None, None)
    return Interval(value=float(value), low=low, high=high)


def _comparisons(settings: Settings, table: ScoreTable, draws: np.ndarray) -> tuple[Comparison, ...]:
    """Compare our run with each other run on each dimension. ``draws`` [dimensions, runs, resamples] are resampled
    means. Where two runs have no state in common there is no comparison."""
    rows = []
    for run_index, run in enumerate(table.runs[1:], start=1):  # run 0 is ours
        for index, name in enumerate(dimensions()):
            differences = table.differences(index, run_index)
            if not len(differences):
                continue
            low, high = percentile_interval(draws[index, 0] - draws[index, run_index])
            seed = derive_seed(settings.study.seed, "permutation", run, name)
            test = statistics.compare_pairs(differences, settings.study.permutations, seed)
            rows.append({"dimension": name, "than": run, "low": low, "high": high, **test})
    if not rows:
        return ()
    tests = pd.DataFrame(rows)
    tests["holm_all"] = holm(tests["p"])
    for corrected, raw in _CORRECTED.items():  # for each run separately, over the dimensions
        tests[corrected] = tests.groupby("than")[raw].transform(holm)
    comparisons = []
    for test in tests.to_dict("records"):
        needed = statistics.states_needed(statistics.TARGET, test["sd"], len(tests)) if test["sd"] > 0 else None
        comparisons.append(Comparison(**test, states_needed=needed))
    return tuple(comparisons)
