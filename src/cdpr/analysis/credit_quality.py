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
from .estimators import VINE_CONTINUATIONS, Estimators, Replicate, sweeps
from .measures import measures
from .workups import Workups, sample_groups, with_truth


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
    gc.disable()  # it would trace a million replies again and again, a third of the time
    try:
        quality = asyncio.run(assess(settings, policy, cases))
    finally:
        gc.enable()
    write_text(job.out["quality"], json.dumps(quality, indent=1) + "\n")
    default = next(row for row in quality["rows"] if row["default"])
    shown = {name: default[name] for name in ("bias", "variance", "rmse", "rank_correlation", "right_signs")}
    job.metrics.update(shown)
    print(f"{quality['decisions']} decisions: " + "  ".join(f"{name} {value:.3f}" for name, value in shown.items()))


async def assess(settings: Settings, policy: Policy, cases: Sequence[CaseRecord]) -> dict[str, Any]:
    """Measures of every setting, one flat row each under ``rows``, and what they rest on. ``policy`` also acts."""
    environment = open_environment(settings, credentialed=any(case.credentialed for case in cases))
    plan = settings.analysis
    groups = await sample_groups(settings, environment, policy, cases)
    workups = await with_truth(settings, environment, policy, groups)
    seeds = [derive_seed(plan.seed, "replicate", r) for r in range(plan.replicates)]
    found = []
    for seed in tqdm(seeds, desc="estimates", unit="replicate"):
        found.append(await Estimators(settings, environment, policy, workups, seed).replicate())
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
        "seed": plan.seed,
        "replicate_seeds": seeds,
        "rows": list(_rows(settings, found, workups)),
    }


def _rows(settings: Settings, found: Sequence[Replicate], workups: Workups) -> Iterator[dict[str, Any]]:
    """One row per estimator, key and value; the default stands once in each sweep."""
    named = [("cdpr", key, value, credit) for (key, value), credit in sweeps(settings.credit).items()]
    named += [("vineppo", "continuations", count, count) for count in VINE_CONTINUATIONS]
    for estimator, key, value, setting in named:
        estimates = [replicated[setting] for replicated in found]
        tokens = sum(estimate.tokens for estimate in estimates) / len(estimates) / len(workups.decisions)
        yield {
            "estimator": estimator,
            "sweep": key,
            "value": value,
            "default": estimator == "cdpr" and value == attrgetter(key)(settings.credit),
            **measures(np.array([estimate.values for estimate in estimates]), workups),
            "tokens_per_decision": tokens,
        }
