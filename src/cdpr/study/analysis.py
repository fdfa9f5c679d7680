"""Analyse the completed forms. Only this module opens the key."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
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

# Holm's correction over the dimensions, by the p-values that it corrects.
_CORRECTED = {"holm": "p", "holm_zeros_dropped": "p_zeros_dropped", "holm_permutation": "p_permutation"}
_ALPHA_RESAMPLES = 500  # each is a new alpha; the interval's ends move by less than .005 with more


class Interval(Record):
    """An estimate with its 95% interval over resampled cases; None where it is undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Comparison(Record):
    """Ours against a baseline on a dimension; see :func:`~cdpr.study.statistics.compare`. ``low`` and ``high`` are the
    interval of the mean difference over cases, ``holm`` the p-value corrected over the dimensions (the paper's family),
    ``holm_all`` over all comparisons of the study, ``states_needed`` what a study of this spread would take."""

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
    """The results of a study. ``kind`` is the kind of raters (empty: nothing was rated yet); ``runs`` are compared,
    ours first; ``scores`` are by dimension and run, ``datasets`` means by data set, dimension and run; ``lead`` is, by
    dimension, our score minus the best baseline's, ``ahead`` that lead minus the largest other one. ``synthetic``:
    whether all cases are."""

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
        """Our run: that of the first method."""
        return self.runs[0]

    def next_best(self, dimension: str) -> str:
        """Return the baseline with the highest mean on a dimension."""
        means = {run: at.value or 0.0 for run, at in self.scores[dimension].items() if run != self.ours}
        return max(means, key=lambda run: means[run])

    def comparison(self, dimension: str, than: str) -> Comparison | None:
        """Return the comparison of ours with a run; None where no state has scores of both."""
        return {(one.dimension, one.than): one for one in self.comparisons}.get((dimension, than))


def analyse_study(settings: Settings, job: Job) -> None:
    """Stage ``analyse_study``: read the completed forms, open the key, write the analysis. Raises StudyError for forms
    that cannot be used."""
    items = Items.read(job.inputs["cards"])
    key = Key.open(job.inputs["sealed"], items)
    states = read_lines(job.inputs["states"], StudyState)
    ratings = None
    if path := job.inputs.get("ratings"):
        ratings = read_ratings([path], items, allow_missing=settings.study.allow_missing)
        if settings.study.ratings and ratings.kind != PHYSICIAN:
            raise StudyError(f"{path}: these are {ratings.kind} ratings; study.ratings is for physicians' alone")
    analysis = analyse(settings, states, items, key, ratings)
    write_text(job.out["analysis"], analysis.model_dump_json(indent=1) + "\n")
    write_lines(job.out["means"], Means(states, items, key, ratings).by_state() if ratings else ())
    job.metrics.update({f"alpha/{name}": at.value for name, at in analysis.alpha.items() if at.value is not None})
    job.tags["raters"] = analysis.kind or "none yet"
    print(
        f"study {analysis.study}: {analysis.kind or 'no'} raters, {analysis.states} states, "
        f"{analysis.missing} ratings missing"
    )


def analyse(
    settings: Settings, states: Sequence[StudyState], items: Items, key: Key, ratings: Ratings | None
) -> Analysis:
    """Compute everything that tables, figures and the ledger show of the study."""
    cases = [(state.dataset, state.note_id) for state in states]
    head = Analysis(
        study=items.study, source=states[0].source, runs=key.compared, left_out=key.left_out, states=len(states),
        cases=len(set(cases)), synthetic=all_synthetic(settings),
    )  # fmt: skip
    if ratings is None:
        return head
    table, seed = Means(states, items, key, ratings), derive_seed(settings.study.seed, "bootstrap")
    weights = statistics.resampled_clusters(cases, settings.evaluation.bootstrap, seed)
    draws = table.draws(weights)
    scores = {name: {run: _interval(table.mean(d)[r], draws[d, r]) for r, run in enumerate(table.runs)}
              for d, name in enumerate(dimensions())}  # fmt: skip
    fields = {
        "kind": ratings.kind, "raters": tuple(ratings.scores), "missing": ratings.missing, "scores": scores,
        "datasets": table.by_dataset(), "alpha": _alphas(table, weights[:_ALPHA_RESAMPLES]),
    }  # fmt: skip
    if len(table.runs) > 1:
        fields |= {"comparisons": _comparisons(settings, table, draws), **_leads(table, draws)}
    return head.model_copy(update=fields)


class Means:
    """Means over raters by state: ``values`` [dimensions, runs, states], NaN where there is no score; ``single``
    [raters, dimensions, contents] are the single scores, ``of_content`` [dimensions, contents] their means."""

    def __init__(self, states: Sequence[StudyState], items: Items, key: Key, ratings: Ratings):
        self.states, self.runs, self.contents = states, key.compared, items.contents
        position = {state.digest: n for n, state in enumerate(states)}
        self.state_of = np.array([position[content.state] for content in self.contents.values()])
        by_rater = ratings.scores.values()
        self.single = np.array([[[scores.get(content, {}).get(name, np.nan) for content in self.contents]
                                 for name in dimensions()] for scores in by_rater], dtype=float)  # fmt: skip
        self.of_content = _mean(np.moveaxis(self.single, 0, -1))
        self.content_of = np.zeros((len(self.runs), len(states)), dtype=int)
        for n, name in enumerate(self.contents):
            for run in key.runs[name]:
                self.content_of[self.runs.index(run), self.state_of[n]] = n
        self.values = np.round(self.of_content[:, self.content_of], statistics.DECIMALS)

    def mean(self, dimension: int) -> np.ndarray:
        """Average a dimension over states: means [runs], NaN where there is none."""
        return _mean(self.values[dimension])

    def draws(self, weights: np.ndarray) -> np.ndarray:
        """Average over resampled states: means [dimensions, runs, resamples]."""
        there = ~np.isnan(self.values)
        with np.errstate(invalid="ignore"):
            return (np.where(there, self.values, 0.0) @ weights.T) / (there @ weights.T)

    def differences(self, dimension: int, run: int) -> np.ndarray:
        """Return our scores minus another run's, at the states that have both."""
        differences = self.values[dimension, 0] - self.values[dimension, run]
        return np.round(differences[~np.isnan(differences)], statistics.DECIMALS)

    def by_dataset(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Average by data set, dimension and run; None where there is no score."""
        datasets = np.array([state.dataset for state in self.states])
        return {
            str(dataset): {
                name: {run: _defined(_mean(self.values[d, r, datasets == dataset])) for r, run in enumerate(self.runs)}
                for d, name in enumerate(dimensions())
            }
            for dataset in dict.fromkeys(datasets.tolist())
        }

    def by_state(self) -> Iterator[StateMeans]:
        """Yield the means over raters of every run at every state."""
        contents = list(self.contents.values())
        for n, state in enumerate(self.states):
            for r, run in enumerate(self.runs):
                content, means = contents[self.content_of[r, n]], self.values[:, r, n]
                yield StateMeans(
                    state=state.digest, dataset=state.dataset, note_id=state.note_id, turn=state.turn,
                    source=state.source, run=run, kind=content.kind, action=content.action,
                    means=dict(zip(dimensions(), map(_defined, means), strict=True)),
                )  # fmt: skip


def _mean(values: np.ndarray) -> np.ndarray:
    """Average over the last axis without NaN; NaN where there is nothing else."""
    with np.errstate(invalid="ignore"):
        return np.nansum(values, axis=-1) / (~np.isnan(values)).sum(axis=-1)


def _defined(value: np.ndarray) -> float | None:
    return None if np.isnan(value) else float(value)


def _alphas(table: Means, weights: np.ndarray) -> dict[str, Interval]:
    """Compute Krippendorff's alpha per dimension, over the proposals; states of a case are resampled together."""
    alphas = {}
    for d, name in enumerate(dimensions()):
        value = statistics.alpha(table.single[:, d])
        twice = (~np.isnan(table.single[:, d])).sum(axis=0) > 1
        counts, state_of = statistics.value_counts(table.single[:, d]), table.state_of[twice]
        drawn = [statistics.alpha_of_counts(np.repeat(counts, w[state_of], axis=0)) for w in weights] if value else []
        alphas[name] = _interval(value, np.array([a for a in drawn if a is not None]))
    return alphas


def _interval(value: float | None, draws: np.ndarray) -> Interval:
    if value is None or not np.isfinite(value):
        return Interval(value=None)
    draws = draws[np.isfinite(draws)]
    low, high = percentile_interval(draws) if draws.size else (None, None)
    return Interval(value=float(value), low=low, high=high)


def _comparisons(settings: Settings, table: Means, draws: np.ndarray) -> tuple[Comparison, ...]:
    from pandas import DataFrame

    rows = []
    for (r, run), (d, name) in itertools.product(list(enumerate(table.runs))[1:], enumerate(dimensions())):
        if len(differences := table.differences(d, r)):
            seed = derive_seed(settings.study.seed, "permutation", run, name)
            test = statistics.compare(differences, settings.study.permutations, seed)
            low, high = percentile_interval(draws[d, 0] - draws[d, r])
            rows.append({"dimension": name, "than": run, "low": low, "high": high, **test})
    if not rows:
        return ()
    tests = DataFrame(rows, columns=list(Comparison.model_fields))
    tests["holm_all"] = holm(tests["p"])
    for corrected, p in _CORRECTED.items():
        tests[corrected] = tests.groupby("than")[p].transform(holm)
    needed = [statistics.states_needed(statistics.TARGET, sd, len(tests)) if sd > 0 else None for sd in tests["sd"]]
    rows = tests.to_dict("records")
    return tuple(Comparison(**row | {"states_needed": n}) for row, n in zip(rows, needed, strict=True))


def _leads(table: Means, draws: np.ndarray) -> dict[str, dict[str, Interval]]:
    """Compute our lead over the best baseline, and how far it exceeds the largest lead on another dimension."""
    means = np.stack([table.mean(d) for d in range(len(dimensions()))])
    lead, drawn = means[:, 0] - means[:, 1:].max(axis=1), draws[:, 0] - draws[:, 1:].max(axis=1)
    ahead = {name: _interval(lead[d] - np.delete(lead, d).max(), drawn[d] - np.delete(drawn, d, axis=0).max(axis=0))
             for d, name in enumerate(dimensions())}  # fmt: skip
    return {"lead": {name: _interval(lead[d], drawn[d]) for d, name in enumerate(dimensions())}, "ahead": ahead}
