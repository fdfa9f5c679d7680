"""The two engines side by side: learning curves of the same variants, and whether they differ by more than seeds do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields

import numpy as np

from ..files import write_csv
from ..job import Job
from ..results.curves import Curves
from ..settings import Settings, labels_of, parse_settings, resolve_variant
from .learning_curves import LEARNT, curves_of, draw_learning_curves


@dataclass(frozen=True)
class Agreement:
    """One metric of one variant, averaged over the validations after the first: under verl (mean over its seeds), under
    torch, and the 95% prediction interval of as many further torch seeds. ``same_seeds`` is the mean difference between
    runs of one seed, which share their random numbers as long as their weights agree. ``within``: yes, no, or unknown
    (fewer than two torch seeds)."""

    variant: str
    metric: str
    verl: float
    torch: float
    low: float
    high: float
    same_seeds: float
    within: str


def twins(settings: Settings) -> dict[str, str]:
    """Of every variant that the engine verl trains for this figure the one that torch trains of the same settings."""
    names = list(labels_of(settings, "engines"))
    resolved = {name: resolve_variant(settings, name) for name in names}
    pairs = {}
    for name in names:
        if resolved[name].training.engine == "verl":
            data = resolved[name].model_dump()
            data["training"]["engine"] = "torch"
            data["training"].pop("verl")
            same = parse_settings(data)
            pairs.update((name, other) for other in names if resolved[other] == same)
    return pairs


def agreement(name: str, verl: Curves, torch: Curves) -> Iterator[Agreement]:
    """How the curves of a variant compare; nothing where one of the engines has no curve."""
    from scipy.stats import t

    if not verl.runs or not torch.runs:
        return
    shared = {run.rpartition("-")[2] for run in verl.runs} & {run.rpartition("-")[2] for run in torch.runs}
    for metric in LEARNT:
        ours, theirs = (_levels(curves, metric) for curves in (verl, torch))
        n, m = len(theirs), len(ours)
        mean, value = float(np.mean(list(theirs.values()))), float(np.mean(list(ours.values())))
        half = float("nan")
        if n > 1:
            half = float(t.ppf(0.975, n - 1) * np.std(list(theirs.values()), ddof=1) * np.sqrt(1 / m + 1 / n))
        within = "unknown" if n < 2 else "yes" if abs(value - mean) <= half + 1e-12 else "no"
        same = float(np.mean([ours[seed] - theirs[seed] for seed in shared])) if shared else float("nan")
        yield Agreement(name, metric, value, mean, mean - half, mean + half, same, within)


def _levels(curves: Curves, metric: str) -> dict[str, float]:
    """By seed the mean of a metric over its validations, the one before training left out."""
    table = curves.values[metric][:, 1:] if curves.values[metric].shape[1] > 1 else curves.values[metric]
    return {run.rpartition("-")[2]: float(np.nanmean(row)) for run, row in zip(curves.runs, table, strict=True)}


def plot_engines(settings: Settings, job: Job) -> None:
    """Learning curves of both engines, and the comparison as CSV. Raises as
    :func:`~cdpr.report.learning_curves.curves_of`."""
    all_curves = curves_of(settings, job, "engines", LEARNT)
    curves = {curve.method.name: curve for curve in all_curves}
    rows = [row for name, other in twins(settings).items() for row in agreement(name, curves[name], curves[other])]
    judged = [row for row in rows if row.within != "unknown"]
    inside = sum(row.within == "yes" for row in judged)
    note = f"{inside} of {len(judged)} levels of verl's curves lie within the 95% prediction interval of torch seeds"
    draw_learning_curves(settings, all_curves, job.out, note if judged else "")
    lines = [{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows]
    write_csv(job.out["csv"], [field.name for field in fields(Agreement)], lines)
