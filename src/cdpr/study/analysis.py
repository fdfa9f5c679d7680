"""From forms to figures: the key is opened here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from ..evaluation.significance import holm, percentile_interval
from ..files import write_text
from ..job import Job
from ..seeding import derive_seed
from ..settings import Settings
from . import statistics
from .blinding import Items, Key
from .ratings import Ratings, read_ratings
from .records import StateMeans, StudyError, StudyState, read_lines, write_lines
from .returned import PHYSICIAN
from .rubric import dimensions

_ALPHA_RESAMPLES = 500  # each is a new alpha; the interval's ends move by less than .005 with more


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Part):
    """An estimate with its 95% interval, over resampled cases; None where it is undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Comparison(_Part):
    """Ours against a baseline on a dimension; see :class:`~cdpr.study.statistics.Paired`. ``low`` and ``high`` are the
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


class Analysis(_Part):
    """What the study found. ``kind`` says who rated (empty: nobody has yet), ``runs`` are compared, ours first;
    ``scores`` by dimension and run, ``datasets`` means by data set, dimension and run; ``lead`` by dimension is ours
    above the best baseline, ``ahead`` that lead above the largest other one. ``model_rater`` is how a language model's
    ratings agree with the raters' means (Krippendorff's alpha), ``model_scores`` what it gave."""

    study: str
    kind: str = ""
    source: str
    runs: tuple[str, ...]
    left_out: dict[str, str]
    raters: tuple[str, ...] = ()
    states: int
    cases: int
    missing: int = 0
    alpha: dict[str, Interval] = {}
    scores: dict[str, dict[str, Interval]] = {}
    datasets: dict[str, dict[str, dict[str, float]]] = {}
    comparisons: tuple[Comparison, ...] = ()
    lead: dict[str, Interval] = {}
    ahead: dict[str, Interval] = {}
    level: float = statistics.LEVEL
    target: float = statistics.TARGET
    model_rater: dict[str, Interval] = {}
    model_scores: dict[str, dict[str, float]] = {}

    @property
    def ours(self) -> str:
        """The run of the first method."""
        return self.runs[0]

    def next_best(self, dimension: str) -> str:
        """The baseline with the highest mean on a dimension."""
        means = {run: at.value or 0.0 for run, at in self.scores[dimension].items() if run != self.ours}
        return max(means, key=lambda run: means[run])

    def comparison(self, dimension: str, than: str) -> Comparison:
        """Ours against a run. Raises KeyError where there is none."""
        for one in self.comparisons:
            if (one.dimension, one.than) == (dimension, than):
                return one
        raise KeyError((dimension, than))


def analyse_study(settings: Settings, job: Job) -> None:
    """Stage ``analyse_study``: read the forms that came back, open the key, write every figure of the study. Raises
    StudyError for forms that cannot be used."""
    items = Items.model_validate_json(job.inputs["cards"].read_text(encoding="utf-8"))
    key = Key.open(job.inputs["sealed"], items)
    states = read_lines(job.inputs["states"], StudyState)
    ratings = _ratings(settings, job.inputs.get("ratings"), items)
    model = read_ratings([job.inputs["model_ratings"]], _only(items, job.inputs["model_ratings"])) if (
        "model_ratings" in job.inputs) else None  # fmt: skip
    analysis = analyse(settings, states, items, key, ratings, model)
    write_text(job.out["analysis"], analysis.model_dump_json(indent=1) + "\n")
    write_lines(job.out["means"], per_state(states, items, key, ratings) if ratings else ())
    job.metrics.update({f"alpha/{name}": at.value for name, at in analysis.alpha.items() if at.value is not None})
    job.tags["raters"] = analysis.kind or "none yet"
    print(
        f"study {analysis.study}: {analysis.kind or 'no'} raters, {analysis.states} states, "
        f"{analysis.missing} ratings missing"
    )


def _ratings(settings: Settings, place: Path | None, items: Items) -> Ratings | None:
    if place is None:
        return None
    ratings = read_ratings([place], items, allow_missing=settings.study.allow_missing)
    if settings.study.ratings and ratings.kind != PHYSICIAN:
        raise StudyError(f"{place}: these are {ratings.kind} ratings; study.ratings is for physicians' alone")
    return ratings


def _only(items: Items, place: Path) -> Items:
    """The study with the one rater whose form the model filled in."""
    first = next(iter(items.forms))
    return items.model_copy(update={"forms": {first: items.forms[first]}})


def analyse(
    settings: Settings, states: Sequence[StudyState], items: Items, key: Key, ratings: Ratings | None,
    model: Ratings | None = None,
) -> Analysis:  # fmt: skip
    """Everything that tables, figures and the ledger show."""
    plan, runs = settings.study, key.compared
    cases = [(state.dataset, state.note_id) for state in states]
    head = Analysis(
        study=items.study, source=states[0].source, runs=runs, left_out=dict(key.left_out), states=len(states),
        cases=len(set(cases)), level=statistics.LEVEL, target=statistics.TARGET,
    )  # fmt: skip
    if ratings is None:
        return head
    table = Means(states, items, key, list(runs), ratings)
    weights = statistics.resampled_clusters(cases, settings.evaluation.bootstrap, derive_seed(plan.seed, "bootstrap"))
    draws = table.draws(weights)
    scores = {name: {run: _interval(table.mean(d)[r], draws[d, r]) for r, run in enumerate(table.runs)}
              for d, name in enumerate(dimensions())}  # fmt: skip
    fields = {
        "kind": ratings.kind, "raters": tuple(ratings.scores), "missing": ratings.missing, "scores": scores,
        "datasets": table.by_dataset(states), "alpha": _alphas(table, weights[:_ALPHA_RESAMPLES]),
    }  # fmt: skip
    if len(runs) > 1:
        fields |= {"comparisons": _comparisons(settings, table, draws), **_leads(table, draws)}
    if model is not None:
        fields |= _beside_model(table, model, states, items, key)
    return head.model_copy(update=fields)


class Means:
    """Per-state means over raters: ``values`` [dimensions, runs, states], NaN where nobody rated; ``single`` [raters,
    dimensions, contents] are the scores behind them."""

    def __init__(self, states: Sequence[StudyState], items: Items, key: Key, runs: list[str], ratings: Ratings):
        self.runs, self.contents = runs, list(items.contents)
        self.place = {state.digest: n for n, state in enumerate(states)}
        self.state_of = np.array([self.place[items.contents[name].state] for name in self.contents])
        at = {name: n for n, name in enumerate(self.contents)}
        self.single = np.full((len(ratings.scores), len(dimensions()), len(self.contents)), np.nan)
        for r, scores in enumerate(ratings.scores.values()):
            for name, rows in scores.items():
                for d, dimension in enumerate(dimensions()):
                    self.single[r, d, at[name]] = rows.get(dimension, np.nan)
        counted = (~np.isnan(self.single)).sum(axis=0)
        with np.errstate(invalid="ignore"):
            self.of_content = np.nansum(self.single, axis=0) / counted
        self.values = np.full((len(dimensions()), len(runs), len(states)), np.nan)
        for name, behind in key.runs.items():
            for run in behind:
                if run in runs:
                    self.values[:, runs.index(run), self.place[items.contents[name].state]] = self.of_content[
                        :, at[name]
                    ]
        self.values = np.round(self.values, statistics.DECIMALS)

    def mean(self, dimension: int) -> np.ndarray:
        """Means [runs] over states."""
        return np.nanmean(self.values[dimension], axis=1)

    def draws(self, weights: np.ndarray) -> np.ndarray:
        """Means [dimensions, runs, resamples] of resampled states."""
        there = ~np.isnan(self.values)
        return (np.where(there, self.values, 0.0) @ weights.T) / (there @ weights.T)

    def differences(self, dimension: int, run: int) -> np.ndarray:
        """Ours minus another run, of the states that have both."""
        differences = self.values[dimension, 0] - self.values[dimension, run]
        return np.round(differences[~np.isnan(differences)], statistics.DECIMALS)

    def by_dataset(self, states: Sequence[StudyState]) -> dict[str, dict[str, dict[str, float]]]:
        """Means by data set, dimension and run."""
        of = np.array([state.dataset for state in states])
        return {
            str(dataset): {
                name: {run: float(np.nanmean(self.values[d, r, of == dataset])) for r, run in enumerate(self.runs)}
                for d, name in enumerate(dimensions())
            }
            for dataset in dict.fromkeys(of.tolist())
        }


def per_state(states: Sequence[StudyState], items: Items, key: Key, ratings: Ratings) -> Iterator[StateMeans]:
    """The means of every state and run."""
    table = Means(states, items, key, list(key.compared), ratings)
    content = {
        (items.contents[name].state, run): items.contents[name] for name, runs in key.runs.items() for run in runs
    }
    for n, state in enumerate(states):
        for r, run in enumerate(table.runs):
            item, means = content[state.digest, run], table.values[:, r, n]
            yield StateMeans(
                state=state.digest, dataset=state.dataset, note_id=state.note_id, turn=state.turn, source=state.source,
                run=run, kind=item.kind, action=item.action,
                means={d: None if np.isnan(m) else float(m) for d, m in zip(dimensions(), means, strict=True)},
            )  # fmt: skip


def _alphas(table: Means, weights: np.ndarray) -> dict[str, Interval]:
    """Krippendorff's alpha per dimension, over the proposals; states of a case are drawn together."""
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
    plan, comparisons = settings.study, {}
    for r, run in enumerate(table.runs[1:], 1):
        for d, name in enumerate(dimensions()):
            seed = derive_seed(plan.seed, "permutation", run, name)
            paired = statistics.compare(table.differences(d, r), plan.permutations, seed)
            comparisons[run, name] = paired, percentile_interval(draws[d, 0] - draws[d, r])
    tests = len(comparisons)
    corrected = {}
    for kind in ("p", "p_zeros_dropped", "p_permutation"):
        for run in table.runs[1:]:
            of_run = [getattr(comparisons[run, name][0], kind) for name in dimensions()]
            corrected |= {(kind, run, name): p for name, p in zip(dimensions(), holm(of_run), strict=True)}
    everywhere = dict(zip(comparisons, holm([paired.p for paired, _ in comparisons.values()]), strict=True))
    return tuple(
        Comparison(
            dimension=name, than=run, difference=paired.difference, low=low, high=high, sd=paired.sd,
            zeros=paired.zeros, p=paired.p, holm=corrected["p", run, name], holm_all=everywhere[run, name],
            p_zeros_dropped=paired.p_zeros_dropped, holm_zeros_dropped=corrected["p_zeros_dropped", run, name],
            p_permutation=paired.p_permutation, holm_permutation=corrected["p_permutation", run, name],
            rank_biserial=paired.rank_biserial, shift=paired.shift, shift_low=paired.shift_low,
            shift_high=paired.shift_high,
            states_needed=statistics.states_needed(statistics.TARGET, paired.sd, tests)
            if paired.sd > 0 else None,
        )
        for (run, name), (paired, (low, high)) in comparisons.items()
    )  # fmt: skip


def _leads(table: Means, draws: np.ndarray) -> Mapping[str, dict[str, Interval]]:
    """Ours above the best baseline, and how far that lead is above the largest other one."""
    means = np.stack([table.mean(d) for d in range(len(dimensions()))])
    lead, drawn = means[:, 0] - means[:, 1:].max(axis=1), draws[:, 0] - draws[:, 1:].max(axis=1)
    ahead = {name: _interval(lead[d] - np.delete(lead, d).max(), drawn[d] - np.delete(drawn, d, axis=0).max(axis=0))
             for d, name in enumerate(dimensions())}  # fmt: skip
    return {"lead": {name: _interval(lead[d], drawn[d]) for d, name in enumerate(dimensions())}, "ahead": ahead}


def _beside_model(
    table: Means, model: Ratings, states: Sequence[StudyState], items: Items, key: Key
) -> Mapping[str, dict]:
    """How the language model agrees with the rounded means of the raters, and its means by method."""
    other = Means(states, items, key, table.runs, model)
    agreement = {}
    for d, name in enumerate(dimensions()):
        pair = np.stack([np.rint(table.of_content[d]), other.of_content[d]])
        agreement[name] = Interval(value=statistics.alpha(pair))
    means = {name: dict(zip(table.runs, other.mean(d).tolist(), strict=True)) for d, name in enumerate(dimensions())}
    return {"model_rater": agreement, "model_scores": means}
