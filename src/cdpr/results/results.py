"""What was measured, asked for by method, data set and decoding; a gap is a labelled hole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..evaluation.metrics import Comparison, Estimate, Evaluation, Summary, average, compare, read_evaluation, summarise
from ..settings import Settings
from .curves import diverged_at
from .methods import DATASETS, Method, synthetic
from .provenance import check_prices, check_provenance, check_training


@dataclass(frozen=True)
class Hole:
    """A figure that is not there; ``missing`` names the file (or rows) that the pipeline should have written, and is
    empty for what is not run on purpose."""

    reason: str
    missing: str = ""


class Results:
    """Evaluations under a results folder. Raises ProvenanceError when they do not belong together."""

    def __init__(self, settings: Settings, results: str | Path, methods: Sequence[Method]):
        self.settings, self.folder, self.methods = settings, Path(results), list(methods)
        paths = [self._path(run, d) for m in self.methods for run in m.runs for d in DATASETS]
        check_provenance(settings, sorted({path for path in paths if path.exists()}))
        check_training(settings, self.folder, dict.fromkeys(run for m in self.methods for run in m.runs))
        check_prices(self.folder, DATASETS)
        self._read = cache(read_evaluation)
        self.summary = cache(self._summary)

    def evaluations(self, method: Method, dataset: str, decoding: str) -> list[Evaluation] | Hole:
        """One evaluation per seed, or why they cannot all be had: a mean over some of the seeds is no substitute."""
        if not method.runs:
            return Hole(method.why)
        if not method.decodes and not synthetic(self.settings, dataset):
            return Hole("not run: real cases have no known model")
        found, missing = [], []
        for run in method.runs:
            path = self._path(run, dataset)
            wanted = decoding if method.decodes else "greedy"
            evaluation = self._read(path).get(wanted) if path.exists() else None
            if evaluation is None:
                shown = path.relative_to(self.folder).as_posix()
                missing.append(shown if not path.exists() else f"{shown} ({wanted} rows)")
            else:
                found.append(evaluation)
        text = ", ".join(missing)
        return Hole(f"missing: {text}", text) if missing else found

    def _summary(self, method: Method, dataset: str, decoding: str) -> Summary | Hole:
        found = self.evaluations(method, dataset, decoding)
        if isinstance(found, Hole):
            return found
        plan = self.settings.evaluation
        return summarise(found, plan.bootstrap, plan.seed)

    def average(self, method: Method, decoding: str) -> dict[str, Estimate] | Hole:
        """Over the three data sets; a hole when one of them is."""
        parts = [self.summary(method, dataset, decoding) for dataset in DATASETS]
        holes = list(dict.fromkeys(part for part in parts if isinstance(part, Hole)))
        if holes:
            return Hole("; ".join(h.reason for h in holes), ", ".join(h.missing for h in holes if h.missing))
        return average(parts)

    def compare(self, first: Method, second: Method, dataset: str, decoding: str) -> Comparison | Hole:
        """Paired comparison, first minus second."""
        one, two = (self.evaluations(method, dataset, decoding) for method in (first, second))
        for hole in (one, two):
            if isinstance(hole, Hole):
                return hole
        return compare(one, two, self.settings.evaluation.bootstrap, self.settings.evaluation.seed)

    def status(self, method: Method) -> str:
        """``measured``, and which of the method's runs diverged."""
        return "; ".join(["measured", *(f"{run} diverged at step {at}" for run, at in self._diverged(method).items())])

    def divergences(self) -> list[str]:
        """A sentence for every method of which a run diverged; its figures count all seeds."""
        told = []
        for method in self.methods:
            if broken := self._diverged(method):
                runs = ", ".join(f"{run} at step {at}" for run, at in broken.items())
                told.append(f"{method.label}: training diverged ({runs}); evaluated with the weights before.")
        return told

    def _diverged(self, method: Method) -> dict[str, int]:
        return {run: at for run in method.runs if (at := diverged_at(self.folder, run)) is not None}

    def method(self, name: str) -> Method:
        """Raises KeyError for a name that no row has."""
        return {method.name: method for method in self.methods}[name]

    def _path(self, run: str, dataset: str) -> Path:
        return self.folder / "evaluations" / run / f"{dataset}.jsonl"
