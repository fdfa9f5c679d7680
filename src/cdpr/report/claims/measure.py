"""What was measured, in the form that claims ask for: methods side by side on the same resampled cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from ...evaluation.metrics import METRICS, EvaluationError
from ...settings import Settings, shown, sweeps, variants
from ..curves import Curves, read_curves
from ..methods import DATASETS, TRAINED, Method, main_methods, synthetic, trained
from ..results import Hole, Results

# Figures as the paper prints them: accuracy in %.
FACTOR = {"accuracy": 100.0}
_METRIC = {name: column for column, name in enumerate(METRICS)}


@dataclass(frozen=True)
class Sample:
    """Several methods on one place: ``means`` [methods] and bootstrap ``draws`` [resamples, methods] in printed units,
    from the same resampled cases. ``right`` counts right diagnoses per run, ``cases`` the test cases."""

    methods: tuple[Method, ...]
    means: np.ndarray
    draws: np.ndarray
    right: tuple[tuple[int, ...], ...]
    cases: int


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

    def method(self, name: str) -> Method | Hole:
        """The row or variant of this name."""
        try:
            return self.results.method(name)
        except KeyError:
            return Hole(f"this configuration has no agent or variant {name!r}")

    def paper_rows(self) -> list[str]:
        """Names of the rows that stand for those of the paper's Table 1."""
        return [method.name for method in self.results.methods if method.paper]

    def unfit(self, on: str) -> str:
        """Why figures of this place cannot be held against the paper's; empty where they can."""
        label = "the three data sets" if on == "average" else DATASETS[on]
        made_up = [d for d in (DATASETS if on == "average" else [on]) if synthetic(self.settings, d)]
        if made_up:
            return f"synthetic cases; the figure is of {label} with Qwen3-4B"
        if self.settings.tier != "paper":
            return f"tier {self.settings.tier}; the figure is of the paper's scale"
        return "the tiny policy; the figure is of Qwen3-4B" if self.settings.policy.model == "tiny" else ""

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
        right = [tuple(np.sum([part[i].correct for part in parts], axis=0).tolist()) for i in range(len(methods))]
        return Sample(tuple(methods), means, draws, tuple(right), sum(part[0].cases for part in parts))

    def cases(self, on: str) -> int | Hole:
        """How many test cases the untrained policy was evaluated on."""
        found = self.results.summary(self.results.method("warm_start"), on, self.decoding)
        return found if isinstance(found, Hole) else found.cases

    def training(self, names: Sequence[str]) -> list[Curves] | Hole:
        """Validation accuracy of variants over training, with the seeds that all of them have."""
        found = [self.method(name) for name in names]
        holes = [one for one in found if isinstance(one, Hole)]
        if holes:
            return holes[0]
        curves = [self.curves(method) for method in _same_seeds([one for one in found if isinstance(one, Method)])]
        missing = ", ".join(dict.fromkeys(name for curve in curves for name in curve.missing))
        return Hole(f"missing: {missing}", missing) if missing else curves

    def _curves(self, method: Method) -> Curves:
        return read_curves(self.results.folder, method, ("accuracy",))

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
