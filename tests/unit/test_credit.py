"""The process reward on a small enumerable problem: a policy whose action probabilities are known."""

from __future__ import annotations

import asyncio
import random

import pytest

from cdpr.credit.process_reward import ProcessReward
from cdpr.credit.uncertainty import entropy, frequencies, top_candidates
from cdpr.credit.utility import utility
from cdpr.environment import DiagnosticEnvironment, Effort, State, Turn, run_episode
from cdpr.settings import parse_settings
from cdpr.settings.variants import resolve_variant
from cdpr.training.algorithms.base import Context
from cdpr.training.algorithms.cdpr import Cdpr
from cdpr.training.algorithms.grpo import Grpo

RIGHT, WRONG = "FINAL_DIAGNOSIS: Acute appendicitis", "FINAL_DIAGNOSIS: Sepsis"


class ToyPolicy:
    """Orders a blood count, a CT, or diagnoses; the more it knows the more often it is right."""

    def distribution(self, state: State, forced: bool) -> dict[str, float]:
        p = 0.2 + 0.2 * ("Complete Blood Count" in state.obtained) + 0.5 * ("CT Abdomen and Pelvis" in state.obtained)
        if forced or len(state.history) >= 4:
            return {RIGHT: p, WRONG: 1 - p}
        return {
            "REQUEST_TEST: CBC": 0.4,
            "REQUEST_TEST: CT Abdomen and Pelvis": 0.2,
            "REQUEST_TEST: MRI Brain": 0.1,
            RIGHT: 0.3 * p,
            WRONG: 0.3 * (1 - p),
        }

    async def act(self, state, forced, seed):
        return (await self.sample(state, 1, forced, seed))[0]

    async def sample(self, state, n, forced, seed):
        options = self.distribution(state, forced)
        rng = random.Random(seed)
        return [Turn(text) for text in rng.choices(list(options), list(options.values()), k=n)]


def exact_value(env, policy, state, weights, horizon, turn=None) -> float:
    """Q(s, a) (with ``turn``) or V(s) by enumeration."""
    tests = env.settings.tests
    forced = horizon == 0 or env.must_diagnose(state)
    options = {turn.text: 1.0} if turn else policy.distribution(state, forced)
    total = 0.0
    for text, p in options.items():
        step = env.step(state, Turn(text))
        if step.observation.kind == "end":
            total += p * env.judge.judge(step.action.text, state.case.diagnosis_results)
            continue
        child = State(state.case, (*state.history, step))
        left = horizon if turn else horizon - 1
        total += p * (utility(0, Effort.of([step]), weights, tests) + exact_value(env, policy, child, weights, left))
    return total


def setup(case, **credit):
    settings = parse_settings({"credit": credit, "utility": {"cost_unit_usd": 100.0}})
    env = DiagnosticEnvironment(settings.environment)
    policy = ToyPolicy()
    return settings, env, policy, ProcessReward(env, policy, policy, settings.credit, settings.utility, seed=5)


def group(env, policy, case, n=4, seed=0):
    async def run():
        return await asyncio.gather(*(run_episode(env, policy, case, 100 * seed + i) for i in range(n)))

    return asyncio.run(run())


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("scope", ["run", "batch", "off"])
def test_values_converge_to_those_by_enumeration(case, horizon, scope):
    # The group's own suffixes end by themselves and would not be horizon-bounded draws at H = 1.
    cache = {"scope": scope, "reuse_group": False}
    settings, env, policy, process = setup(
        case, continuations=1500, samples=400, horizon=horizon, select_all=True, candidates=8, cache=cache
    )
    report = asyncio.run(process.score_group(group(env, policy, case), 0))
    checked = 0
    for state in report.states:
        if state.key[1]:
            continue
        for candidate in state.candidates:
            if candidate.action[0] == "end":
                assert candidate.value == pytest.approx(0.2, abs=0.12)
                continue
            name = candidate.action[1]
            turn = Turn(f"REQUEST_TEST: {name}")
            exact = exact_value(env, policy, env.initial(case), settings.utility, horizon, turn)
            assert candidate.value == pytest.approx(exact, abs=4 * 0.5 / 1500**0.5)
            checked += 1
    assert checked >= 3


def test_reward_is_the_advantage_over_the_mean_of_the_candidates(case):
    _, env, policy, process = setup(case, select_all=True, candidates=2)
    trajectories = group(env, policy, case, n=6)
    report = asyncio.run(process.score_group(trajectories, 0))
    for state in report.states:
        values = {c.action: c.value for c in state.candidates}
        in_top = [c.value for c in state.candidates if c.in_top_m]
        assert len(in_top) == min(2, len(state.probability))
        for i, t in state.visits:
            step = trajectories[i].steps[t]
            value = float(trajectories[i].correct) if step.evidence[0] == "end" else values[step.evidence]
            expected = max(-1.0, min(1.0, value - sum(in_top) / len(in_top)))
            assert report.process[i][t] == pytest.approx(expected)


def test_a_state_whose_only_candidate_was_taken_earns_nothing(case):
    _, env, policy, process = setup(case, select_all=True)
    policy.distribution = lambda state, forced: {RIGHT: 1.0} if state.history or forced else {"REQUEST_TEST: CBC": 1.0}
    report = asyncio.run(process.score_group(group(env, policy, case), 0))
    assert {r for rewards in report.process for r in rewards} == {0.0}


def test_selecting_nothing_is_grpo_to_the_bit(case):
    settings, env, policy, _ = setup(case, threshold=float("inf"), cache={"scope": "off"})
    groups = [group(env, policy, case, seed=s) for s in range(5)]
    context = Context(settings, env, policy, lambda: policy, 0)
    cdpr = asyncio.run(Cdpr(context).score(groups, 0))
    grpo = asyncio.run(Grpo().score(groups, 0))
    assert cdpr.trajectory == grpo.trajectory and cdpr.step is None


def test_without_process_reward_is_the_same_job_as_grpo():
    settings = parse_settings({})
    assert resolve_variant(settings, "without_process_reward") == resolve_variant(settings, "grpo")


def test_order_of_evaluation_changes_nothing(case):
    def scored(order):
        _, env, policy, process = setup(case)
        groups = [
            [t for t in group(env, policy, case.model_copy(update={"note_id": f"T-{s}"}), seed=s)] for s in range(6)
        ]

        async def run():
            found = await asyncio.gather(*(process.score_group(groups[s], 3) for s in order))
            return {s: report.process for s, report in zip(order, found, strict=True)}

        return asyncio.run(run())

    assert scored([0, 1, 2, 3, 4, 5]) == scored([5, 3, 1, 0, 2, 4])


def test_the_cache_saves_continuations_over_iterations_and_stays_bounded(case):
    _, env, policy, process = setup(case, select_all=True, cache={"capacity": 3})
    first = asyncio.run(process.score_group(group(env, policy, case), 0))
    second = asyncio.run(process.score_group(group(env, policy, case), 0))
    assert second.fresh < first.fresh and second.cached > 0
    assert len(process.cache.entries) <= 3


def test_entropy_and_candidates_by_hand(case):
    _, env, _policy, _ = setup(case)
    state = env.initial(case)
    texts = ["REQUEST_TEST: CBC"] * 4 + ["REQUEST_TEST: FBC"] * 2 + [RIGHT, WRONG]
    p_hat = frequencies([env.step(state, Turn(text)) for text in texts])
    assert p_hat == {("result", "Complete Blood Count"): 0.75, ("end", ""): 0.25}
    assert entropy(p_hat) == pytest.approx(0.5623, abs=1e-4)
    assert entropy(p_hat, "2") == pytest.approx(0.8113, abs=1e-4)
    assert top_candidates(p_hat, 1) == [("result", "Complete Blood Count")]
