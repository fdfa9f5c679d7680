"""How well process rewards estimate the true advantage, by the settings of the estimator and its price in tokens."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from scipy.stats import rankdata
from tqdm import tqdm

from ..agents.policy import PolicyAgent
from ..cases import CaseRecord, iterate_records
from ..environment import Policy
from ..environment.opening import open_environment
from ..files import write_text
from ..job import Job
from ..llm import ModelSpec
from ..seeding import derive_seed
from ..settings import Settings
from .estimators import SEED, VINE_CONTINUATIONS, Estimators, Replicate, Workups, sample_groups, sweeps, with_truth


def measure_credit_quality(settings: Settings, job: Job) -> None:
    """Stage ``credit_quality``: write the measures of every setting on validation cases, print those of the default.

    Raises ValueError when there is no validation case.
    """
    path = job.inputs["cases"]
    cases = list(islice(iterate_records(path, "validation"), settings.analysis.cases))
    if not cases:
        raise ValueError(f"{path}: no case of split 'validation'")
    spec = ModelSpec.of_folder(job.inputs["policy"], settings.policy)
    policy = PolicyAgent.build(settings, spec, settings.training.temperature)
    gc.disable()  # collection would trace a million replies again and again, a third of the time
    try:
        quality = asyncio.run(assess(settings, policy, cases))
    finally:
        gc.enable()
    write_text(job.out["quality"], json.dumps(quality, indent=1) + "\n")
    default = next(row for row in quality["rows"] if row["default"])
    main = {name: default[name] for name in ("bias", "variance", "rmse", "rank_correlation", "right_signs")}
    job.metrics.update(main)
    print(f"{quality['decisions']} decisions: " + "  ".join(f"{name} {value:.3f}" for name, value in main.items()))


async def assess(settings: Settings, policy: Policy, cases: Sequence[CaseRecord]) -> dict[str, Any]:
    """Measures of every setting, one flat row each under ``rows``, and their sample sizes. ``policy`` also acts."""
    environment = open_environment(settings, credentialed=any(case.credentialed for case in cases))
    plan = settings.analysis
    groups = await sample_groups(settings, environment, policy, cases)
    workups = await with_truth(settings, environment, policy, groups)
    seeds = [derive_seed(SEED, "replicate", r) for r in range(plan.replicates)]
    replicates = []
    for seed in tqdm(seeds, desc="estimates", unit="replicate"):
        replicates.append(await Estimators(settings, environment, policy, workups, seed).replicate())
        gc.collect()
    return {
        "decisions": len(workups.decisions),
        "diagnoses": int(workups.ends.sum()),
        "states": len({groups[g][i].states[t].key for g, i, t in workups.decisions}),
        "truth_rms": float((workups.advantage**2).mean() ** 0.5),
        "truth_error_mean": float(workups.error.mean()),
        "truth_error_max": float(workups.error.max()),
        "known_signs": int((np.abs(workups.advantage) > 2 * workups.error).sum()),
        "cases": len(cases),
        "truth": plan.truth,
        "replicates": plan.replicates,
        "seed": SEED,
        "replicate_seeds": seeds,
        "rows": list(_rows(settings, replicates, workups)),
    }


def _rows(settings: Settings, replicates: Sequence[Replicate], workups: Workups) -> Iterator[dict[str, Any]]:
    """One row per estimator, key and value; the default occurs once in each sweep."""
    points = [("cdpr", key, value, credit) for (key, value), credit in sweeps(settings.credit).items()]
    points += [("vineppo", "continuations", count, count) for count in VINE_CONTINUATIONS]
    for estimator, key, value, setting in points:
        estimates = [replicate[setting] for replicate in replicates]
        tokens = sum(estimate.tokens for estimate in estimates) / len(estimates) / len(workups.decisions)
        yield {
            "estimator": estimator,
            "sweep": key,
            "value": value,
            "default": estimator == "cdpr" and value == attrgetter(key)(settings.credit),
            **measures(np.array([estimate.values for estimate in estimates]), workups),
            "tokens_per_decision": tokens,
        }


def measures(estimates: np.ndarray, workups: Workups) -> dict[str, float]:
    """Measures of ``estimates`` (replicates x decisions), in units of utility except for shares.

    Replicates share their workups: the randomness of the workups is part of the bias of a decision and of ``rmse``, not
    of ``variance``. ``bias`` is a mean over decisions, in which errors of opposite sign cancel, ``bias_error`` its
    standard error over cases; ``bias_rms`` the root mean square of the bias of single decisions, without the noise of
    estimates and truth.
    """
    deviation = estimates - workups.advantage
    bias, square = deviation.mean(axis=0), float((deviation**2).mean())
    variance = float(estimates.var(axis=0, ddof=1).mean())
    known = np.abs(workups.advantage) > 2 * workups.error
    return {
        "bias": float(bias.mean()),
        "bias_error": clustered_error(bias, [g for g, _, _ in workups.decisions]),
        "bias_examinations": _mean(bias[~workups.ends]),
        "bias_diagnoses": _mean(bias[workups.ends]),
        "bias_rms": max(0.0, square - variance - float((workups.error**2).mean())) ** 0.5,
        "variance": variance,
        "rmse": square**0.5,
        "rank_correlation": float(np.mean([rank_correlation(row, workups.advantage) for row in estimates])),
        "right_signs": _mean((np.sign(estimates) == np.sign(workups.advantage))[:, known]),
    }


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation; 0 where one side is constant."""
    ranks = rankdata(x), rankdata(y)
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def clustered_error(values: np.ndarray, clusters: Sequence[int]) -> float:
    """Standard error of a mean whose values depend on each other within clusters; 0 of one cluster."""
    sums = np.bincount(clusters, weights=values - values.mean())
    count = len(set(clusters))
    return float(np.sqrt((sums**2).sum() * count / (count - 1)) / len(values)) if count > 1 else 0.0


def _mean(values: np.ndarray) -> float:
    """The mean; 0 of nothing."""
    return float(values.mean()) if values.size else 0.0
