"""Analyses the completed forms of the study. Only this module opens the key, which names the author of each
proposal."""

import itertools
import json
from collections.abc import Iterator, Sequence
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
from .methods import all_synthetic
from .ratings import PHYSICIAN, Ratings, read_ratings
from .records import SCALE, Items, Key, Record, StudyError, StudyState, dimensions, read_lines

# P-values after Holm's correction over the dimensions, each with the name of the p-value that it corrects.
_CORRECTED = {"holm": "p", "holm_zeros_dropped": "p_zeros_dropped", "holm_permutation": "p_permutation"}
_ALPHA_RESAMPLES = 500  # fewer than for means, as an alpha is slow; with more, the interval's ends move by under .005


class Interval(Record):
    """An estimate (``value``) with the ends of its 95% interval over resampled cases. Each is None where it is
    undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


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
    - ``comparisons``: of our run with each other run on each dimension (:func:`compare_runs`).
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
    comparisons: tuple[dict[str, Any], ...] = ()
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

    def against_next_best(self, dimension: str) -> dict[str, Any] | None:
        """Return the comparison of our run with the best baseline on a dimension. None where there is no baseline, or
        no state has scores of both."""
        return self.comparison(dimension, self.next_best(dimension)) if len(self.runs) > 1 else None

    def comparison(self, dimension: str, than: str) -> dict[str, Any] | None:
        """Return the comparison of our run with the run ``than`` on a dimension. None where no state has scores of
        both."""
        return next((row for row in self.comparisons if (row["dimension"], row["than"]) == (dimension, than)), None)


def analyse_study(settings: Settings, job: Job) -> None:
    """Stage ``analyse_study``: read the completed forms, open the key with the authors, and write the analysis and the
    mean scores by state. Without forms the analysis has no scores. Raises StudyError for forms that cannot be used, for
    a key of another study, and for simulated ratings where ``study.ratings`` names those of physicians."""
    items = Items.read(job.inputs["cards"])
    key = Key.open(job.inputs["sealed"], items)
    states = read_lines(job.inputs["states"], StudyState)
    rated, lines = dict[str, Any](), ""
    if path := job.inputs.get("ratings"):
        ratings = read_ratings([path], items, allow_missing=settings.study.allow_missing)
        if settings.study.ratings and ratings.kind != PHYSICIAN:
            raise StudyError(f"{path}: these are {ratings.kind} ratings; study.ratings is for physicians' alone")
        scores, proposals = frame_scores(ratings, items, key)
        lines = "".join(_write_means(states, items, proposals))
        rated = {"kind": ratings.kind, "raters": tuple(ratings.scores), "missing": ratings.missing}
        rated |= analyse_scores(settings, states, scores, proposals)
    analysis = Analysis(
        study=items.study, source=states[0].source, runs=key.compared, left_out=key.left_out, states=len(states),
        cases=len({(state.dataset, state.note_id) for state in states}), synthetic=all_synthetic(settings), **rated,
    )  # fmt: skip
    write_text(job.out["analysis"], analysis.model_dump_json(indent=1) + "\n")
    write_text(job.out["means"], lines)
    job.metrics.update({f"alpha/{name}": a.value for name, a in analysis.alpha.items() if a.value is not None})
    job.tags["raters"] = analysis.kind or "none yet"
    raters, missing = analysis.kind or "no", analysis.missing
    print(f"study {analysis.study}: {raters} raters, {len(states)} states, {missing} ratings missing")


def frame_scores(ratings: Ratings, items: Items, key: Key) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the scores of a study as two frames with a column per dimension, NaN where there is no score. A content is
    what raters see of a proposal; runs with equal proposals at a state share one.

    - The single scores: a row per rater and content, with the columns ``content`` and ``state``.
    - Means over raters: a row per run and state, indexed by (``run``, ``state``), with the column ``content``.
    """
    rows = [{"content": name, "state": items.contents[name].state, **values}
            for given in ratings.scores.values() for name, values in given.items()]  # fmt: skip
    scores = pd.DataFrame(rows, columns=["content", "state", *dimensions()]).astype(dict.fromkeys(dimensions(), float))
    # Rounded, so that equal means which were summed in another order are ties in tests.
    means = scores.groupby("content")[list(dimensions())].mean().round(statistics.DECIMALS)
    authors = [(run, items.contents[name].state, name) for name, runs in key.runs.items() for run in runs]
    proposals = pd.DataFrame(authors, columns=["run", "state", "content"]).join(means, on="content")
    return scores, proposals.set_index(["run", "state"]).reindex(key.compared, level="run")


def _write_means(states: Sequence[StudyState], items: Items, proposals: pd.DataFrame) -> Iterator[str]:
    """Write the mean scores of each run at each state: yields a line with a JSON object for each. It has the state with
    where it is from, the run with the kind and name of its action, and ``means`` over raters by dimension, null without
    a rating."""
    for state, run in itertools.product(states, proposals.index.unique("run")):
        row = proposals.loc[run, state.digest]
        content = items.contents[row["content"]]
        means = {name: _none_if_nan(row[name]) for name in dimensions()}
        place = {"state": state.digest} | state.model_dump(include={"dataset", "note_id", "turn", "source"})
        line = place | {"run": run, "kind": content.kind, "action": content.action, "means": means}
        yield json.dumps(line, ensure_ascii=False) + "\n"


def _none_if_nan(value: float) -> float | None:
    """Turn a number into one for JSON, which has no NaN: NaN becomes None."""
    return None if np.isnan(value) else float(value)


def analyse_scores(
    settings: Settings, states: Sequence[StudyState], scores: pd.DataFrame, proposals: pd.DataFrame
) -> dict[str, Any]:
    """Compute all fields of :class:`Analysis` that depend on scores (:func:`frame_scores`); returns them by name. With
    a single run there are no comparisons."""
    digests, seed = [state.digest for state in states], derive_seed(settings.study.seed, "bootstrap")
    means = proposals[list(dimensions())].unstack("run").reindex(digests)  # rows: states; columns: (dimension, run)
    ours, *others = runs = list(proposals.index.unique("run"))
    datasets = {}
    for dataset, row in means.groupby([state.dataset for state in states], sort=False).mean().iterrows():
        datasets[dataset] = {name: {run: _none_if_nan(row[name, run]) for run in runs} for name in dimensions()}
    # How often each state is drawn in each resample, [resamples, states].
    cases = [(state.dataset, state.note_id) for state in states]
    weights = statistics.resample_clusters(cases, settings.evaluation.bootstrap, seed)
    # In the first row the means, in each other row those of a resample; NaN where no drawn state has a score.
    weights_of_rows = np.vstack([np.ones(len(states), dtype=int), weights])
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        resampled = (weights_of_rows @ means.fillna(0).to_numpy()) / (weights_of_rows @ means.notna().to_numpy())
    draws = pd.DataFrame(resampled, columns=means.columns)
    fields: dict[str, Any] = {
        "alpha": {name: _alpha(scores, name, digests, weights[:_ALPHA_RESAMPLES]) for name in dimensions()},
        "datasets": datasets,
        "scores": {name: {run: _interval(draws[name, run]) for run in runs} for name in dimensions()},
    }  # fmt: skip
    if not others:
        return fields
    # How far our run, the first, is above the best baseline on each dimension.
    best = {name: draws[name][others].max(axis=1, skipna=False) for name in dimensions()}
    leads = pd.DataFrame({name: draws[name, ours] - best[name] for name in dimensions()})
    ahead = {name: leads[name] - leads.drop(columns=name).max(axis=1, skipna=False) for name in dimensions()}
    return fields | {
        "comparisons": compare_runs(settings, means, draws, ours, others),
        "lead": {name: _interval(leads[name]) for name in dimensions()},
        "ahead": {name: _interval(ahead[name]) for name in dimensions()},
    }  # fmt: skip


def _alpha(scores: pd.DataFrame, name: str, digests: Sequence[str], weights: np.ndarray) -> Interval:
    """Compute Krippendorff's alpha on a dimension from the ``scores`` of all contents. Its interval resamples states,
    whose ``digests`` are given: ``weights`` [resamples, states] says how often each is drawn."""
    # How often each content, a row, got each score.
    rated = scores.dropna(subset=name).groupby(["state", "content"])[name]
    counts = rated.value_counts().unstack(fill_value=0).reindex(columns=list(SCALE), fill_value=0)
    state_of_row = pd.Index(digests).get_indexer(counts.index.get_level_values("state"))
    # In a resample a content is counted as often as its state is drawn.
    resampled = (np.repeat(counts.to_numpy(), times[state_of_row], axis=0) for times in weights)
    alphas = map(statistics.krippendorff_alpha, (counts.to_numpy(), *resampled))
    return _interval(pd.Series(alphas, dtype=float))


def _interval(draws: pd.Series) -> Interval:
    """Make an interval from an estimate, the first of ``draws``, and its bootstrap values behind it. Undefined values
    are left out. The ends are None without values, and all is None where the estimate is undefined."""
    estimate, defined = draws.iloc[0], draws.iloc[1:].dropna()
    if np.isnan(estimate):
        return Interval(value=None)
    low, high = percentile_interval(defined.to_numpy()) if len(defined) else (None, None)
    return Interval(value=float(estimate), low=low, high=high)


def compare_runs(
    settings: Settings, means: pd.DataFrame, draws: pd.DataFrame, ours: str, others: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Compare our run with each other run on each dimension. ``means`` has the mean scores by state, ``draws`` their
    means and resampled means, both with columns (dimension, run). Where two runs have no state in common there is no
    comparison.

    Returns a row per comparison, paired by state, with ``dimension`` and ``than``, the other run;

    - ``difference``: our mean score minus theirs over the states that have both, in points, with its 95% interval over
      cases, ``low`` to ``high``;
    - the other numbers of :func:`~cdpr.study.statistics.compare_pairs`;
    - ``holm``, ``holm_zeros_dropped``, ``holm_permutation``: the p-values ``p``, ``p_zeros_dropped`` and
      ``p_permutation`` after Holm's correction over the dimensions, which are the paper's family of tests;
    - ``holm_all``: ``p`` after Holm's correction over all comparisons of the study;
    - ``states_needed``: how many states a study needs to find a mean difference of 0.5 points, if the differences have
      the standard deviation ``sd``; None where ``sd`` is 0.
    """
    rows = []
    for run, name in itertools.product(others, dimensions()):
        differences = (means[name, ours] - means[name, run]).dropna().to_numpy()
        if not len(differences):
            continue
        interval = _interval(draws[name, ours] - draws[name, run])
        seed = derive_seed(settings.study.seed, "permutation", run, name)
        test = statistics.compare_pairs(differences, settings.study.permutations, seed)
        rows.append({"dimension": name, "than": run, "low": interval.low, "high": interval.high, **test})
    if not rows:
        return ()
    tests = pd.DataFrame(rows)
    tests["holm_all"] = holm(tests["p"])
    for corrected, raw in _CORRECTED.items():  # for each run separately, over the dimensions
        tests[corrected] = tests.groupby("than")[raw].transform(holm)
    needed = [statistics.states_needed(statistics.TARGET, sd, len(tests)) if sd > 0 else None for sd in tests["sd"]]
    tests["states_needed"] = pd.Series(needed, dtype=object)  # as objects None stays None
    return tuple(tests.to_dict("records"))
