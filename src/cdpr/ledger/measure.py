"""What was measured, in the form that claims ask for: methods side by side on the same resampled cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from ..evaluation.metrics import METRICS, EvaluationError
from ..results.curves import Curves, diverged_at, read_curves
from ..results.methods import DATASETS, TRAINED, Method, main_methods, synthetic, trained
from ..results.paper import read_paper
from ..results.results import Hole, Results
from ..settings import Settings, shown, sweeps, variants

# Figures as the paper prints them: accuracy in %.
FACTOR = {"accuracy": 100.0}
BACKBONE = "Qwen3-4B-Instruct-2507"
_METRIC = {name: column for column, name in enumerate(METRICS)}


@dataclass(frozen=True)
class Sample:
    """Several methods on one place: ``means`` [methods] and bootstrap ``draws`` [resamples, methods] in printed units,
    from the same resampled cases. ``right`` [data sets, methods, runs] counts right diagnoses and ``cases`` [data sets]
    test cases: the average weighs data sets alike, so counts over all of them would be of another figure."""

    methods: tuple[Method, ...]
    means: np.ndarray
    draws: np.ndarray
    right: tuple[tuple[tuple[int, ...], ...], ...]
    cases: tuple[int, ...]


class Evidence:
    """Evaluations and training metrics under a results folder. Raises ProvenanceError as tables do."""

    def __init__(self, settings: Settings, results: str | Path):
        methods = {method.name: method for method in main_methods(settings)}
        swept = {name for at in sweeps(settings, "sensitivity").values() for name in at.values()}
        fed = {name for where in ("ablations", "training_efficiency") for name in shown(settings, where)}
        for name in variants(settings):
            if name in swept | fed and name not in methods:
                methods[name] = trained(settings, name)
        self.settings = settings
        self.decoding = settings.evaluation.decodings[0]
        self.results = Results(settings, results, list(methods.values()))
        self.curves = cache(self._curves)
        self.diverged_at = cache(lambda run: diverged_at(self.results.folder, run))

    def method(self, name: str) -> Method | Hole:
        """The row or variant of this name."""
        try:
            return self.results.method(name)
        except KeyError:
            return Hole(f"this configuration has no agent or variant {name!r}")

    def paper_rows(self) -> list[str]:
        """Names of the rows that stand for those of the paper's Table 1."""
        return [method.name for method in self.results.methods if method.paper]

    def diverged(self, runs: Iterable[str]) -> str:
        """Which of these runs broke off in training, and where; empty where none did."""
        found = {run: at for run in runs if (at := self.diverged_at(run)) is not None}
        return ", ".join(f"{run} diverged at step {at}" for run, at in found.items())

    def unfit(self, on: str) -> str:
        """Why figures of this place cannot be held against the paper's; empty where they can."""
        if other := self.other_cases(on):
            return other
        backbone = Path(self.settings.policy.model).name
        return "" if backbone == BACKBONE else f"backbone {backbone}; the figure is of {BACKBONE}"

    def other_cases(self, on: str) -> str:
        """Why the cases of this place are not the paper's; empty where they are. The private ones nobody else has."""
        label = "the three data sets" if on == "average" else DATASETS[on]
        if any(synthetic(self.settings, d) for d in (DATASETS if on == "average" else [on])):
            return f"synthetic cases; the figure is of {label}"
        if on in ("private", "average"):
            return "not the authors' cases: their private data set is theirs alone; the figure is of it"
        return "" if self.settings.tier == "paper" else f"tier {self.settings.tier}; the figure is of the paper's scale"

    def other_count(self, on: str, cases: int) -> str:
        """Why a printed figure cannot be compared on so many cases; empty where the paper states as many."""
        stated = _stated_cases(on)
        return "" if cases == stated else f"{cases} cases were evaluated; the figure is of {stated}"

    def sample(self, names: Sequence[str], metric: str, on: str) -> Sample | Hole:
        """The methods side by side. Trained ones are taken with the seeds that all of them have; others have one run.

        Raises EvaluationError when they were not evaluated on the same cases.
        """
        found = [self.method(name) for name in names]
        holes = [one for one in found if isinstance(one, Hole)]
        if holes:
            return holes[0]
        methods = _same_seeds([one for one in found if isinstance(one, Method)])
        parts = []
        for dataset in DATASETS if on == "average" else [on]:
            summaries = []
            for method in methods:
                summary = self.results.summary(method, dataset, self.decoding)
                if isinstance(summary, Hole):
                    return summary
                summaries.append(summary)
            self._check_cases(methods, dataset)
            parts.append(summaries)
        scale, column = FACTOR.get(metric, 1.0), _METRIC[metric]
        means = np.mean([[s.estimates[metric].mean for s in part] for part in parts], axis=0) * scale
        draws = np.mean([np.stack([s.draws[:, column] for s in part], axis=1) for part in parts], axis=0) * scale
        right = tuple(tuple(tuple(map(int, s.correct)) for s in part) for part in parts)
        return Sample(tuple(methods), means, draws, right, tuple(part[0].cases for part in parts))

    def cases(self, on: str) -> int | Hole:
        """How many test cases the untrained policy was evaluated on."""
        found = self.results.summary(self.results.method("warm_start"), on, self.decoding)
        return found if isinstance(found, Hole) else found.cases

    def training(self, names: Sequence[str]) -> list[Curves] | Hole:
        """Validation accuracy of variants over training, with the seeds that all of them have. A hole where one of
        these runs diverged or ended elsewhere than the others: its end is not that of a training."""
        return self._side_by_side(names, ("accuracy",), "validation/")

    def credit(self, name: str, metrics: tuple[str, ...]) -> Curves | Hole:
        """What the process reward of a variant did in every iteration; a hole as of :meth:`training`."""
        found = self._side_by_side([name], metrics, "credit/")
        return found if isinstance(found, Hole) else found[0]

    def _side_by_side(self, names: Sequence[str], metrics: tuple[str, ...], prefix: str) -> list[Curves] | Hole:
        found = [self.method(name) for name in names]
        holes = [one for one in found if isinstance(one, Hole)]
        if holes:
            return holes[0]
        methods = _same_seeds([one for one in found if isinstance(one, Method)])
        if broken := self.diverged(dict.fromkeys(run for method in methods for run in method.runs)):
            return Hole(f"{broken}: nothing can be said of the end of training")
        curves = [self.curves(method, metrics, prefix) for method in methods]
        missing = ", ".join(dict.fromkeys(name for curve in curves for name in curve.missing))
        if missing:
            return Hole(f"missing: {missing}", missing)
        ends = {run: self._end(method, run, metrics, prefix) for method in methods for run in method.runs}
        last = max(ends.values())
        early = ", ".join(f"{run} ends at step {end:g}" for run, end in ends.items() if end < last)
        return Hole(f"{early}, not at {last:g}: nothing can be said of the end of training") if early else curves

    def _end(self, method: Method, run: str, metrics: tuple[str, ...], prefix: str) -> float:
        """The last step at which a run was measured."""
        return float(self.curves(replace(method, runs=(run,)), metrics, prefix).axes["step"][0, -1])

    def _curves(self, method: Method, metrics: tuple[str, ...], prefix: str) -> Curves:
        return read_curves(self.results.folder, method, metrics, prefix)

    def _check_cases(self, methods: Sequence[Method], dataset: str) -> None:
        first, *others = (self.results.evaluations(method, dataset, self.decoding) for method in methods)
        for other in others:
            if isinstance(first, Hole) or isinstance(other, Hole):
                continue
            if first[0].note_ids != other[0].note_ids:
                raise EvaluationError(f"{dataset}: {first[0].run} and {other[0].run} were not evaluated on the same "
                                      "cases; evaluate both again")  # fmt: skip


def _same_seeds(methods: Sequence[Method]) -> list[Method]:
    """The methods, trained ones cut to the seeds that all of them have (variants train with the first of `seeds`)."""
    counts = [len(method.runs) for method in methods if method.group == TRAINED and method.runs]
    fewest = min(counts, default=0)
    return [replace(m, runs=m.runs[:fewest]) if m.group == TRAINED and m.runs else m for m in methods]


@cache
def _stated_cases(on: str) -> int:
    return int(read_paper().numbers[f"text:cases.{on}"].value)
