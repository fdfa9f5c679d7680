"""The cells that claims compare: means of methods on the same resampled cases, and training curves. What is missing
raises NotMeasured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...evaluation.metrics import METRICS, by_run
from ...evaluation.significance import percentile_interval
from ...settings import Settings, labels_of, sweeps, variants
from ..curves import Curves, read_curves
from ..methods import DATASETS, TRAINED, Method, is_synthetic, main_methods, variant_method
from ..results import NotMeasured, Results, datasets_behind
from ..table import Row
from .verdict import Effect

# Figures as the paper prints them: accuracy in %.
FACTOR = {name: metric.factor for name, metric in METRICS.items()}
BACKBONE = "Qwen3-4B-Instruct-2507"


@dataclass(frozen=True)
class Cells:
    """Cells of one column of the main table: ``means`` [methods] and bootstrap ``draws`` [resamples, methods] of a
    metric in printed units, from the same resampled cases. ``right`` counts right diagnoses by method and run, and
    ``cases`` [data sets] test cases. For the average ``right`` is empty: it gives data sets equal weight."""

    metric: str
    methods: tuple[Method, ...]
    means: np.ndarray
    draws: np.ndarray
    right: str
    cases: tuple[int, ...]

    @property
    def runs(self) -> tuple[str, ...]:
        """All runs of all methods, each once."""
        return tuple(dict.fromkeys(run for method in self.methods for run in method.runs))

    def statistic(self, name: str, times: float = 1.0) -> Effect:
        """``mean`` of the first method; ``difference`` (from ``times`` the second), ``ratio`` or ``reduction`` (in %)
        of the first two."""

        def of(cells: np.ndarray) -> np.ndarray:
            first, second = cells[..., 0], cells[..., -1]
            if name in ("mean", "difference"):
                return first - times * second if name == "difference" else first
            share = np.divide(first, second, out=np.full(np.shape(second), np.inf), where=np.asarray(second) != 0)
            return share if name == "ratio" else 100 * (1 - share)

        return Effect(float(of(self.means)), *percentile_interval(of(self.draws)))

    def text(self) -> str:
        """``CDPR 53.07 against GRPO 47.33``."""
        decimals = 3 if self.metric == "utility" else 2
        pairs = zip(self.methods, self.means, strict=True)
        return " against ".join(f"{method.label} {value:.{decimals}f}" for method, value in pairs)

    def evidence(self, statistic: str) -> dict[str, Any]:
        """Unit, counts and runs of a statistic, as fields of a verdict."""
        unit = {"accuracy": "%" if statistic == "mean" else "points", "aec": "USD"}.get(self.metric, "")
        n = self.cases[0] if len(self.cases) == 1 else "+".join(map(str, self.cases))
        return {"k": self.right if self.metric == "accuracy" else "", "n": n, "runs": self.runs,
                "unit": {"ratio": "ratio", "reduction": "%"}.get(statistic, unit)}  # fmt: skip


class Evidence:
    """Evaluations and training metrics under a results folder. Raises ProvenanceError as tables do."""

    def __init__(self, settings: Settings, results: str | Path):
        methods = main_methods(settings)
        names = {*labels_of(settings, "ablations"), *labels_of(settings, "training_efficiency")}
        names = names.union(*(points.values() for points in sweeps(settings, "sensitivity").values()))
        names -= {method.name for method in methods}
        methods += [variant_method(settings, name) for name in variants(settings) if name in names]
        self.settings = settings
        self.decoding = settings.evaluation.decodings[0]
        self.results = Results(settings, results, methods)
        self._curves = cache(partial(read_curves, self.results.folder))

    def method(self, name: str) -> Method:
        """The row or variant of this name."""
        try:
            return self.results.method(name)
        except KeyError:
            raise NotMeasured(f"this configuration has no agent or variant {name!r}") from None

    def unfit(self, place: str) -> str:
        """Say why figures of a place cannot be compared with the paper's; empty where they can."""
        if other := self.other_cases(place):
            return other
        backbone = Path(self.settings.policy.model).name
        if backbone != BACKBONE:
            return f"backbone {backbone}; the figure is of {BACKBONE}"
        # They know the names of few diseases and call other names of others wrong (docs/deviations.md, D18).
        tables = self.settings.judge.model is None
        return "tables of names judge; the figure is of a language model's verdicts" if tables else ""

    def other_cases(self, place: str) -> str:
        """Say why the cases of a place are not the paper's; empty where they are. Only the authors have the private
        cases."""
        label = "the three data sets" if place == "average" else DATASETS[place]
        if any(is_synthetic(self.settings, d) for d in datasets_behind(place)):
            return f"synthetic cases; the figure is of {label}"
        if place in ("private", "average"):
            return "not the authors' cases: their private data set is theirs alone; the figure is of it"
        return "" if self.settings.tier == "paper" else f"tier {self.settings.tier}; the figure is of the paper's scale"

    def summary(self, method: Method, dataset: str) -> Row:
        """A method on a data set, with the decoding of the tables."""
        row = self.results.summary(method, dataset, self.decoding)
        if "reason" in row:
            raise NotMeasured(row["reason"])
        return row

    def cells(self, names: Sequence[str], metric: str, place: str) -> Cells:
        """Return the means of a metric for the methods ``names`` at a place, and their bootstrap draws from the same
        resampled cases. Trained methods have the seeds that all of them have; others have one run. Raises
        EvaluationError when they were not evaluated on the same cases."""
        methods, datasets = self._same_seeds(names), datasets_behind(place)
        summaries = [[self.summary(method, dataset) for method in methods] for dataset in datasets]
        self._check_same_cases(methods, datasets)
        scale, column = FACTOR.get(metric, 1.0), list(METRICS).index(metric)
        means = np.mean([[row[metric] for row in rows] for rows in summaries], axis=0) * scale
        draws = np.mean([self._draws(methods, dataset, column) for dataset in datasets], axis=0) * scale
        right = " : ".join(row["k"] for row in summaries[0]) if len(summaries) == 1 else ""
        return Cells(metric, tuple(methods), means, draws, right, tuple(rows[0]["n"] for rows in summaries))

    def _check_same_cases(self, methods: Sequence[Method], datasets: Sequence[str]) -> None:
        """Raise EvaluationError where the first runs of the methods were evaluated on different cases of a data set."""
        first_runs = [replace(method, runs=method.runs[:1]) for method in methods]
        for dataset in datasets:
            rows = pd.concat([self.results.rows(method, dataset, self.decoding) for method in first_runs])
            by_run(rows, ["correct"])  # raises

    def _draws(self, methods: Sequence[Method], dataset: str, column: int) -> np.ndarray:
        """Return the bootstrap draws [resamples, methods] of one metric on a data set."""
        columns = [self.results.draws(method, dataset, self.decoding)[:, column] for method in methods]
        return np.stack(columns, axis=1)

    def curves(self, names: Sequence[str], *metrics: str, prefix: str = "validation/") -> list[Curves]:
        """Metrics of variants over training, with the seeds that all of them have. Not measured where one of these
        runs diverged or ended earlier than the others: its last value is not that of a whole training."""
        methods = self._same_seeds(names)
        single = {run: replace(method, runs=(run,)) for method in methods for run in method.runs}
        if broken := self.results.divergences(single):
            raise NotMeasured(f"{', '.join(broken)}: nothing can be said of the end of training")
        curves = [self._curves(method, metrics, prefix) for method in methods]
        if missing := dict.fromkeys(name for curve in curves for name in curve.missing):
            raise NotMeasured(f"missing: {', '.join(missing)}")
        ends = {run: self._curves(method, metrics, prefix).values["step"][0, -1] for run, method in single.items()}
        last = max(ends.values())
        if early := [f"{run} ends at step {end:g}" for run, end in ends.items() if end < last]:
            raise NotMeasured(f"{', '.join(early)}, not at {last:g}: nothing can be said of the end of training")
        return curves

    def _same_seeds(self, names: Sequence[str]) -> list[Method]:
        """The methods, trained ones cut to the seeds that all of them have (variants train with the first few)."""
        methods = [self.method(name) for name in names]
        fewest = min((len(m.runs) for m in methods if m.group == TRAINED and m.runs), default=0)
        return [replace(m, runs=m.runs[:fewest]) if m.group == TRAINED and m.runs else m for m in methods]
