"""Truth by brute force against enumeration, and estimators against the truth."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from toy import ToyPolicy, exact_value, problem

from cdpr.evaluation.decision_credit import (
    SWEEPS,
    CachedPolicy,
    assess,
    credit_every_state,
    estimate,
    list_advantages,
    list_estimators,
    measure_errors,
    measure_truth,
    sample_groups,
)
from cdpr.job import Job
from cdpr.report.credit_quality import plot_credit_quality


class CountingPolicy(ToyPolicy):
    """Its replies have tokens, one a letter; it counts the replies."""

    replies = 0

    async def sample(self, state, numbers, forced, seed):
        self.replies += len(numbers)
        turns = await super().sample(state, numbers, forced, seed)
        return [replace(turn, token_ids=tuple(map(ord, turn.text))) for turn in turns]


def worked_up(case, truth=2000, **credit):
    settings, env = problem(analysis={"truth": truth, "replicates": 2}, credit=credit, training={"group_size": 12})

    async def run():
        groups = await sample_groups(settings, env, ToyPolicy(), [case])
        return groups, await measure_truth(settings, env, ToyPolicy(), groups)

    return settings, env, *asyncio.run(run())


def exact_advantages(settings, env, groups, truth):
    found = []
    for g, i, t in zip(truth.group, truth.episode, truth.turn, strict=True):
        trajectory = groups[g][i]
        state, text = trajectory.states[t], trajectory.steps[t].turn.text
        q, v = (exact_value(env, ToyPolicy(), state, settings.utility, text=said) for said in (text, None))
        found.append(q - v)
    return np.array(found)


def test_truth_agrees_with_enumeration(case):
    settings, env, groups, truth = worked_up(case)
    exact = exact_advantages(settings, env, groups, truth)
    assert len(exact) >= 12 and truth.ends.sum() >= 3 and np.ptp(exact) > 0.3
    assert (np.abs(truth.advantage - exact) <= 4 * truth.error + 1e-12).all()
    assert 0.001 < truth.error.mean() < 0.02


def test_forced_decisions_are_none(case):
    _, _, groups, truth = worked_up(case, truth=2)
    chosen = [len(trajectory.steps) - trajectory.forced for group in groups for trajectory in group]
    assert len(truth) == sum(chosen)


def test_estimators_converge_to_the_truth_where_they_should(case):
    settings, env, groups, truth = worked_up(
        case, samples=1000, continuations=1000, horizon=8, candidates=9, baseline="policy_weighted"
    )
    exact = exact_advantages(settings, env, groups, truth)
    for setting in (credit_every_state(settings.credit), 1000):
        values, _ = asyncio.run(estimate(settings, env, ToyPolicy(), groups, 3, setting))
        assert list_advantages(truth, values) == pytest.approx(exact, abs=0.08)


def test_measures_by_hand():
    truth = np.array([0.4, -0.2, 0.1, 0.0])
    workups = pd.DataFrame(
        {"group": [0, 0, 1, 1], "advantage": truth, "error": 0.08, "ends": [False, False, True, True]}
    )
    exact = measure_errors(np.array([truth, truth]), workups)
    assert exact == pytest.approx({**dict.fromkeys(exact, 0.0), "rank_correlation": 1.0, "right_signs": 1.0}, abs=1e-12)
    shift = np.array([0.3, 0.1, -0.1, -0.1])
    noisy = measure_errors(np.array([truth + shift + 0.1, truth + shift - 0.1]), workups)
    assert noisy["bias"] == pytest.approx(0.05)
    assert noisy["bias_error"] == pytest.approx(0.15)  # of two cases whose mean biases are 0.2 and -0.1
    assert (noisy["bias_examinations"], noisy["bias_diagnoses"]) == pytest.approx((0.2, -0.1))
    assert noisy["variance"] == pytest.approx(0.02)
    assert noisy["rmse"] == pytest.approx(0.2)  # sqrt(0.03 + 0.01)
    assert noisy["bias_rms"] == pytest.approx((0.04 - 0.02 - 0.0064) ** 0.5)
    assert noisy["right_signs"] == 0.75  # of 0.4 and -0.2, twice; -0.2 + 0.1 + 0.1 = 0 has no sign
    assert measure_errors(np.zeros((2, 4)), workups)["rank_correlation"] == 0.0


def test_replies_from_memory_change_nothing_but_the_work(case):
    settings, env, groups, _ = worked_up(case, truth=2)
    bare, counted = CountingPolicy(), CountingPolicy()
    cached = CachedPolicy(counted)
    estimators = list_estimators(settings.credit).items()
    for credit in dict.fromkeys(setting for (name, *_), setting in estimators if name == "cdpr"):
        first, second = (asyncio.run(estimate(settings, env, p, groups, 3, credit)) for p in (bare, cached))
        assert first == second and second[1] > 0
    assert counted.replies < bare.replies / 3


async def truth_of(settings, env, cases):
    groups = await sample_groups(settings, env, CountingPolicy(), cases)
    return groups, await measure_truth(settings, env, CountingPolicy(), groups)


def test_the_whole_table(case, tmp_path):
    settings, env = problem(analysis={"truth": 16, "replicates": 2}, credit={"samples": 3})
    cases = [case, case.model_copy(update={"note_id": "T-2"})]
    quality = asyncio.run(assess(settings, CountingPolicy(), cases))
    assert json.dumps(asyncio.run(assess(settings, CountingPolicy(), cases))) == json.dumps(quality)
    rows = {(row["estimator"], row["sweep"], row["value"]): row for row in quality["rows"]}
    assert {("cdpr", key, value) for key, values in SWEEPS["cdpr"].items() for value in values} <= set(rows)
    assert {("vineppo", "continuations", k) for k in SWEEPS["vineppo"]["continuations"]} <= set(rows)
    defaults = [row for row in rows.values() if row["default"]]
    assert {row["value"] for row in defaults} == {3, 4, "uniform", "branching"} and len(
        {row["rmse"] for row in defaults}
    ) == 1
    assert quality["replicate_seeds"][0] != quality["replicate_seeds"][1]
    groups, truth = asyncio.run(truth_of(settings, env, cases))
    credit = credit_every_state(settings.credit)
    tokens = [asyncio.run(estimate(settings, env, CountingPolicy(), groups, seed, credit))[1]
              for seed in quality["replicate_seeds"]]  # fmt: skip
    assert defaults[0]["tokens_per_decision"] == sum(tokens) / 2 / len(truth)
    (tmp_path / "quality.json").write_text(json.dumps(quality))
    out = {kind: tmp_path / f"figure.{kind}" for kind in ("png", "pdf")}
    plot_credit_quality(settings, Job("plot_credit_quality", "0" * 16, {"quality": tmp_path / "quality.json"}, out))
    assert all(path.stat().st_size > 1000 for path in out.values())
