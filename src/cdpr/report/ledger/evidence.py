"""The results that claims are judged by: metrics of methods on the same resampled cases, and training curves.

Functions raise NotMeasured where a result is missing.
"""

from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from ...evaluation.metrics import METRICS
from ...settings import Settings, labels_of, sweeps, variants
from ..curves import Curves, read_curves
from ..methods import AVERAGE, DATASETS, is_synthetic, main_methods, unique_runs, variant_method, with_common_seeds
from ..results import NotMeasured, Results, datasets_behind
from .verdict import Comparison, Effect

# The language model that the paper trains.
BACKBONE = "Qwen3-4B-Instruct-2507"


class Evidence(Results):
    """The evaluations of all methods that claims are about, with the main ``decoding``, and their training curves.

    In the methods, ``on`` is the name of a data set, or ``average``. Raises ProvenanceError where results do not belong
    together.
    """

    def __init__(self, settings: Settings, results: str | Path):
        # Claims are about the rows of the main table, and about the variants of three other tables and figures.
        names = {*labels_of(settings, "ablations"), *labels_of(settings, "training_efficiency")}
        names.update(*(points.values() for points in sweeps(settings, "sensitivity").values()))
        further = [variant_method(settings, name) for name in variants(settings) if name in names]
        super().__init__(settings, results, list(dict.fromkeys([*main_methods(settings), *further])))
        self.decoding = settings.evaluation.decodings[0]
        self._read_curves = cache(partial(read_curves, self.folder))

    def why_not_comparable(self, on: str) -> str:
        """Say why our results on a data set cannot be compared with the paper's numbers: other cases, another scale,
        another backbone model, or no language model as judge. Empty where they can."""
        backbone = Path(self.settings.policy.model).name
        if reason := self.why_other_cases(on):
            return reason
        if backbone != BACKBONE:
            return f"backbone {backbone}; the figure is of {BACKBONE}"
        # Without a model, tables of names judge. They know the names of few diseases, and call a diagnosis with another
        # name wrong (docs/deviations.md, D18).
        by_model = self.settings.judge.model is not None
        return "" if by_model else "tables of names judge; the figure is of a language model's verdicts"

    def why_other_cases(self, on: str) -> str:
        """Say why our cases of a data set are not those of the paper; empty where they are. Only the authors have the
        cases of the data set ``private``."""
        if any(is_synthetic(self.settings, dataset) for dataset in datasets_behind(on)):
            return f"synthetic cases; the figure is of {'the three data sets' if on == AVERAGE else DATASETS[on]}"
        if on in ("private", AVERAGE):
            return "not the authors' cases: their private data set is theirs alone; the figure is of it"
        return "" if self.settings.tier == "paper" else f"tier {self.settings.tier}; the figure is of the paper's scale"

    def compare(self, names: Sequence[str], metric: str, on: str, statistic: str = "difference") -> Comparison:
        """Compare a metric of one or two methods on the same resampled cases, in the units of the printed tables
        (accuracy in %). All trained methods count with the same number of seeds.

        The ``statistic`` is the ``mean`` of a single method; or of the first and second method their ``difference``,
        their ``ratio``, or the ``reduction`` from the second to the first in %. The comparison's ``k`` are the numbers
        of right diagnoses by run, ``583+590 : 540`` for a method with two runs and one with a single run; it is empty
        for other metrics than the accuracy. For the average over data sets it is empty too, since each counts the same
        whatever its number of cases, and ``n`` has the numbers of all data sets (``1000+400+200``). Raises NotMeasured,
        and EvaluationError where the methods were evaluated on different cases.
        """
        methods = with_common_seeds([self.method(name) for name in names])
        rows = {dataset: [self.estimates(method, dataset, self.decoding) for method in methods]
                for dataset in datasets_behind(on)}  # fmt: skip
        all_metrics = self.samples(methods, on, self.decoding)  # [1 + resamples, methods, metrics]
        samples = all_metrics[:, :, list(METRICS).index(metric)] * METRICS[metric].factor
        first, second = samples[:, 0], samples[:, -1]  # the same where there is one method
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(second == 0, np.inf, first / second)
        # By statistic its values, and its unit; means and differences have that of the metric.
        unit = {"accuracy": "points", "aec": "USD"}.get(metric, "")
        values, unit = {
            "mean": (first, unit.replace("points", "%")), "difference": (first - second, unit),
            "ratio": (ratio, "ratio"), "reduction": (100 * (1 - ratio), "%"),
        }[statistic]  # fmt: skip
        decimals = METRICS[metric].decimals
        means = [f"{method.label} {mean:.{decimals}f}" for method, mean in zip(methods, samples[0], strict=True)]
        counts = [of_dataset[0]["n"] for of_dataset in rows.values()]  # of cases, which are the same for all methods
        right = " : ".join(row["k"] for row in rows.get(on, ())) if metric == "accuracy" else ""
        return Comparison(
            Effect.of_samples(values), " against ".join(means), unit, right,
            counts[0] if on in rows else "+".join(map(str, counts)), unique_runs(methods),
            self.why_void(methods, on, self.decoding), samples=samples,
        )  # fmt: skip

    def curves(self, names: Sequence[str], *metrics: str, prefix: str = "validation/") -> list[Curves]:
        """Return the curves of ``metrics`` over the training of each of the variants ``names``, with the seeds that all
        of them have. In the metrics files the names of metrics begin with ``prefix``.

        Raises NotMeasured where a run diverged, has no metrics, or ended before the others, since its last value is not
        that of a whole training.
        """
        methods = with_common_seeds([self.method(name) for name in names])
        if diverged := self.divergences(unique_runs(methods)):
            raise NotMeasured(f"{', '.join(diverged)}: nothing can be said of the end of training")
        curves = [self._read_curves(method, metrics, prefix) for method in methods]
        if missing := dict.fromkeys(name for curve in curves for name in curve.missing):
            raise NotMeasured(f"missing: {', '.join(missing)}")
        last_steps = {run: step for curve in curves for run, step in curve.last_steps.items()}
        last = max(last_steps.values())
        if early := [f"{run} ends at step {step:g}" for run, step in last_steps.items() if step < last]:
            raise NotMeasured(f"{', '.join(early)}, not at {last:g}: nothing can be said of the end of training")
        return curves
