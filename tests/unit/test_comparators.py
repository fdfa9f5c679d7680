"""VinePPO, GiGPO and all-actions credit against exact advantages and hand-computed ones."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from statistics import pstdev

import numpy as np
import pytest
import torch
from toy import CBC, CT, RIGHT, WRONG, Script, ToyPolicy, exact_value, group, logprobs_alone, problem

from cdpr.environment import Turn, run_episode
from cdpr.environment.utility import TERMS
from cdpr.llm.types import ModelFailure
from cdpr.settings.variants import canonical, resolve_variant, variants
from cdpr.training.algorithm import Context, group_relative, score_groups
from cdpr.training.algorithms.all_actions import AllActions
from cdpr.training.algorithms.cdpr import Cdpr
from cdpr.training.algorithms.gigpo import Gigpo
from cdpr.training.algorithms.grpo import Grpo
from cdpr.training.algorithms.utility_grpo import UtilityGrpo
from cdpr.training.algorithms.vineppo import VinePpo
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.update import Segment, token_logprobs
from cdpr.training.torch.weights import load_model


def context(policy=None, **settings):
    made, env = problem(**settings)
    policy = policy or ToyPolicy()
    return Context(made, env, policy, lambda: policy, 0)


def credited(algorithm, ctx, groups, iteration=0):
    """What each group teaches, once the batch is finished."""
    made = algorithm(ctx)
    scored = asyncio.run(score_groups(made, groups, iteration))
    made.finish_batch(scored)
    return scored


def decisions(algorithm, ctx, groups):
    return [found.decisions for found in credited(algorithm, ctx, groups)]


def exact_advantage(ctx, trajectory, t):
    state, text = trajectory.states[t], trajectory.steps[t].turn.text
    env, weights = ctx.environment, ctx.settings.utility
    if env.must_diagnose(state):
        return float(trajectory.correct) - exact_value(env, ctx.policy, state, weights)
    return exact_value(env, ctx.policy, state, weights, text=text) - exact_value(env, ctx.policy, state, weights)


def test_monte_carlo_advantages_converge_to_the_exact_ones(case):
    errors = {}
    for k in (50, 800):
        ctx = context(training={"options": {"continuations": k}})
        trajectories = group(ctx.environment, ctx.policy, case, n=6)
        exact = [[exact_advantage(ctx, x, t) for t in range(len(x.steps))] for x in trajectories]
        for algorithm in (VinePpo, AllActions):
            [found] = decisions(algorithm, ctx, [trajectories])
            got = [a for row in found for a in row]
            want = [a for row in exact for a in row]
            if algorithm is VinePpo:  # divided by the deviation over the batch
                assert pstdev(got) == pytest.approx(1)
                scale = sum(a * b for a, b in zip(got, want, strict=True)) / sum(a * a for a in got)
                got = [a * scale for a in got]
            errors[algorithm.__name__, k] = math.sqrt(
                sum((a - b) ** 2 for a, b in zip(got, want, strict=True)) / len(got)
            )
    for algorithm in (VinePpo, AllActions):
        assert errors[algorithm.__name__, 800] < min(0.05, errors[algorithm.__name__, 50])


class Spelt(ToyPolicy):
    """Replies as token ids of their letters, as a language model's would be."""

    async def sample(self, state, numbers, forced, seed):
        prompt = tuple(ord(c) for step in state.history for c in step.turn.text)
        turns = await super().sample(state, numbers, forced, seed)
        return [Turn(turn.text, prompt, tuple(map(ord, turn.text)), (0.0,) * len(turn.text)) for turn in turns]


class Wordy(Spelt):
    """Has two names for the blood count."""

    def distribution(self, state, forced):
        named = super().distribution(state, forced)
        share = named.pop(CBC, 0.0) / 2
        return named | ({CBC: share, "REQUEST_TEST: Complete Blood Count": share} if share else {})


class Breathless(Wordy):
    """Has no room for more than a diagnosis behind the longer name of the blood count, and is right if it is forced."""

    def distribution(self, state, forced):
        return {RIGHT: 1.0} if forced else super().distribution(state, forced)

    def must_diagnose(self, state):
        return any("Complete" in step.turn.text for step in state.history)


def decision_of(trajectory, other):
    """The decision of a trajectory at which an alternative leaves it."""
    return [step.turn.prompt_ids for step in trajectory.steps].index(other.turns[0].prompt_ids)


@pytest.mark.parametrize("policy", [Spelt(), Breathless()], ids=["plain", "forced by length"])
def test_all_actions_weigh_to_the_visits_and_advantages_to_zero_at_every_state(case, policy):
    ctx = context(policy, training={"options": {"continuations": 5}})
    trajectories = group(ctx.environment, ctx.policy, case, n=8)
    [found] = credited(AllActions, ctx, [trajectories])
    sums: dict[tuple, list[float]] = {}
    visits: dict[tuple, int] = {}
    for i, trajectory in enumerate(trajectories):
        for t, state in enumerate(trajectory.states):
            if ctx.environment.must_diagnose(state, policy):
                continue
            visits[state.key] = visits.get(state.key, 0) + 1
            total = sums.setdefault(state.key, [0.0, 0.0])
            total[0] += found.weights[i][t]
            total[1] += found.weights[i][t] * found.decisions[i][t]
    for other in found.alternatives:
        state = trajectories[other.i].states[decision_of(trajectories[other.i], other)]
        sums[state.key][0] += other.weights[0]
        sums[state.key][1] += other.weights[0] * other.advantages[0]
    assert len(found.alternatives) > 3
    for key, (weight, weighted) in sums.items():
        assert weight == pytest.approx(visits[key]) and weighted == pytest.approx(0, abs=1e-9)


def test_a_forced_diagnosis_does_not_count_in_the_value_of_a_choice_at_the_same_evidence(case):
    ctx = context(Breathless(), training={"options": {"continuations": 400}})
    trajectories = group(ctx.environment, ctx.policy, case, n=8)
    visited = {
        (state.key, ctx.policy.must_diagnose(state)) for trajectory in trajectories for state in trajectory.states
    }
    assert len({key for key, _ in visited}) < len(visited)
    [found] = decisions(AllActions, ctx, [trajectories])
    for trajectory, row in zip(trajectories, found, strict=True):
        for t, advantage in enumerate(row[: len(row) - trajectory.forced]):
            assert advantage == pytest.approx(exact_advantage(ctx, trajectory, t), abs=0.1)


def test_all_actions_estimates_the_policy_gradient_in_full_size(case):
    """The mean of weight times advantage of an action is p(a | s) A(s, a), also with few samples."""
    ctx = context(Spelt(), training={"options": {"continuations": 2}})
    first, policy = ctx.environment.initial(case), ctx.policy
    value = exact_value(ctx.environment, policy, first, ctx.settings.utility)
    gradient = {text: p * (exact_value(ctx.environment, policy, first, ctx.settings.utility, text=text) - value)
                for text, p in policy.distribution(first, False).items()}  # fmt: skip
    estimates: dict[str, list[float]] = {text: [] for text in gradient}
    for seed in range(400):
        trajectories = group(ctx.environment, policy, case, n=2, seed=seed)
        [scored] = credited(AllActions, ctx, [trajectories], iteration=seed)
        sums = dict.fromkeys(gradient, 0.0)
        for trajectory, advantages, weights in zip(trajectories, scored.decisions, scored.weights, strict=True):
            sums[trajectory.steps[0].turn.text] += weights[0] * advantages[0]
        for other in scored.alternatives:
            if decision_of(trajectories[other.i], other) == 0:
                sums[other.turns[0].text] += other.weights[0] * other.advantages[0]
        for text, total in sums.items():
            estimates[text].append(total / 2)
    means = np.array([np.mean(estimates[text]) for text in gradient])
    exact = np.array(list(gradient.values()))
    slope = float(means @ exact / (exact @ exact))
    assert slope == pytest.approx(1, abs=0.08)


def test_an_alternative_is_trained_behind_the_very_words_that_it_answered(case):
    ctx = context(Wordy(), training={"options": {"continuations": 8}})
    trajectories = group(ctx.environment, ctx.policy, case, n=8)
    [found] = credited(AllActions, ctx, [trajectories])
    assert any([decision_of(trajectories[other.i], other) for other in found.alternatives])


def test_a_reply_that_does_not_come_leaves_its_sample_out(case):
    ctx = context(training={"options": {"continuations": 6}})
    trajectories = group(ctx.environment, ToyPolicy(), case)
    broken = replace(ctx, policy=ToyPolicy(failing=0.5))
    [found] = credited(AllActions, broken, [trajectories])
    assert found.counts["credit/failed"] > 0 and any(a for row in found.decisions for a in row)
    with pytest.raises(ModelFailure, match="no continuation"):
        credited(VinePpo, replace(ctx, policy=ToyPolicy(failing=1.0)), [trajectories])


def test_a_group_alone_is_normalised_as_in_its_batch_to_the_bit():
    scores = torch.randn(16, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for rule in ("group_std", "none"):
        algorithm = Grpo(context(training={"normalise": rule}))
        assert [algorithm.normalise_scores(row) for row in scores.tolist()] == group_relative(scores, rule).tolist()


def test_gigpo_compares_decisions_at_the_same_state(case):
    ctx = context(training={"algorithm": "gigpo", "normalise": "none", "options": {"weight": 2.0}})
    env = ctx.environment

    scripts = [(CBC, CT, RIGHT), (CBC, WRONG)]
    trajectories = [asyncio.run(run_episode(env, Script(*script), case, 0)) for script in scripts]
    u = ctx.settings.utility
    cbc, ct = (u.lambda_test + u.lambda_cost * price / 100 for price in (7.77, 297.26))
    returns = [1 - cbc - ct, -cbc]
    to_go = [1 - ct, 0.0]  # behind the blood count, where the two part
    outer = (returns[0] - returns[1]) / 2
    inner = (to_go[0] - to_go[1]) / 2
    [found] = decisions(Gigpo, ctx, [trajectories])
    assert found[0] == pytest.approx([outer + 2 * outer, outer + 2 * inner, outer])
    assert found[1] == pytest.approx([-outer - 2 * outer, -outer - 2 * inner])


def test_the_discount_of_gigpo_shortens_returns_to_go_alone(case):
    trajectories = [asyncio.run(run_episode(context().environment, Script(*script), case, 0))
                    for script in ((CBC, CT, RIGHT), (CBC, WRONG))]  # fmt: skip
    ctx = context(training={"algorithm": "gigpo", "normalise": "none", "options": {"discount": 0.5}})
    u = ctx.settings.utility
    cbc, ct = (u.lambda_test + u.lambda_cost * price / 100 for price in (7.77, 297.26))
    to_go = [[-cbc + 0.5 * (-ct + 0.5), -ct + 0.5, 1.0], [-cbc, 0.0]]
    outer = (1 - ct) / 2
    [scored] = decisions(Gigpo, ctx, [trajectories])
    first, second = ((to_go[0][t] - to_go[1][t]) / 2 for t in (0, 1))
    assert scored[0] == pytest.approx([outer + first, outer + second, outer])


def test_step_level_and_separate_normalisation_of_cdpr(case):
    trajectories = [group(context().environment, ToyPolicy(), case, seed=s) for s in range(4)]
    plain = decisions(Grpo, context(), trajectories)
    process = [found.record["process"] for found in credited(Cdpr, context(), trajectories)]
    step = decisions(Cdpr, context(credit={"level": "step"}), trajectories)
    for a, b, r in zip(plain, step, process, strict=True):
        for x, y, rewards in zip(a, b, r, strict=True):
            assert y == pytest.approx([v + 0.5 * (w or 0.0) for v, w in zip(x, rewards, strict=True)])
    apart = {
        beta: decisions(Cdpr, context(credit={"normalise": "apart", "beta": beta}), trajectories)
        for beta in (0.25, 0.5)
    }
    for a, quarter, half in zip(plain, apart[0.25], apart[0.5], strict=True):
        for x, y, z in zip(a, quarter, half, strict=True):
            assert z[0] - x[0] == pytest.approx(2 * (y[0] - x[0]))  # beta scales the process part, and nothing else


def sizes(credit, groups):
    """Root mean squares of the parts that step-level credit adds: over the credited decisions, and over all."""
    plain = decisions(Grpo, context(), groups)
    scored = credited(Cdpr, context(credit={"level": "step", **credit}), groups)
    added, is_credited = [], []
    for without, found in zip(plain, scored, strict=True):
        for x, y, rewards in zip(without, found.decisions, found.record["process"], strict=True):
            added += [b - a for a, b in zip(x, y, strict=True)]
            is_credited += [r is not None for r in rewards]
    parts = np.array(added)
    return np.sqrt((parts[is_credited] ** 2).mean()), np.sqrt((parts**2).mean()), np.mean(is_credited)


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_step_level_credit_has_the_size_of_beta_in_the_unit_chosen(case, beta):
    groups = [group(context().environment, ToyPolicy(), case, seed=s) for s in range(6)]
    asked = {"beta": beta, "max_states": 1}
    (raw, _, share), (over_credited, _, _), (_, over_all, _) = (
        sizes(asked | {"step_scale": scale}, groups) for scale in ("none", "credited", "all")
    )
    assert share < 0.6 and raw < 0.5 * beta
    assert over_credited == pytest.approx(beta) and over_all == pytest.approx(beta)


def test_apart_gives_either_part_a_deviation_of_its_own(case):
    """Where outcomes are equal the size is beta, and that of the whole score is 1; smaller prices change neither."""
    groups = [group(context().environment, ToyPolicy(), case, n=2, seed=s) for s in range(24)]
    for unit in (100.0, 10000.0):
        found = {
            rule: credited(Cdpr, context(credit={"normalise": rule, "beta": 0.25, "select_all": True},
                                         utility={"cost_unit_usd": unit}), groups)
            for rule in ("together", "apart")
        }  # fmt: skip
        deviation = {
            rule: [np.std([steps[0] for steps in one.decisions], ddof=1) for one in scored
                   if len({t.correct for t in one.credit.group}) == 1 and len({*map(tuple, one.decisions)}) > 1]
            for rule, scored in found.items()
        }  # fmt: skip
        assert len(deviation["apart"]) > 2
        assert deviation["together"] == pytest.approx([1.0] * len(deviation["together"]), rel=1e-3)
        assert deviation["apart"] == pytest.approx([0.25] * len(deviation["apart"]), rel=1e-3)


def test_weighted_correctness_is_the_same_as_smaller_lambdas(case):
    weights = {term.weight: getattr(context().settings.utility, term.weight) / 4 for term in TERMS}
    scaled = {**weights, "cost_unit_usd": 100.0}
    one, other = context(comparators={"correctness_weight": 4.0}), context(utility=scaled)
    trajectories = [group(one.environment, ToyPolicy(), case, seed=s) for s in range(3)]
    for algorithm in (UtilityGrpo, Gigpo):
        a, b = (decisions(algorithm, ctx, trajectories) for ctx in (one, other))
        for x, y in zip(a, b, strict=True):
            for u, v in zip(x, y, strict=True):
                assert u == pytest.approx(v, abs=1e-3)


def test_settings_of_other_algorithms_do_not_concern_a_variant():
    base = problem()[0]
    for name in variants(base):
        changed = resolve_variant(base, name)
        assert canonical(changed, base) == changed
    more = problem(comparators={"correctness_weight": 9.0})[0]
    assert resolve_variant(more, "cdpr") == resolve_variant(base, "cdpr")
    assert resolve_variant(more, "vineppo") != resolve_variant(base, "vineppo")
    vine = problem(training={"algorithm": "vineppo", "options": {"continuations": 9}})[0]
    assert resolve_variant(vine, "gigpo") == resolve_variant(base, "gigpo")  # options are those of one algorithm
    assert resolve_variant(vine, "vineppo") == resolve_variant(base, "vineppo")


def test_branches_of_a_sequence_are_worth_what_they_are_alone(tmp_path):
    settings = problem(policy={"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64}})[0]
    build_tiny_policy(tmp_path / "policy", settings.policy.tiny, ["one two three four"])
    model = load_model(tmp_path / "policy")
    ids = [tuple(range(20, 50)), tuple(range(60, 80))]
    positions = [(10, 11, 25), (5,)]
    branches = [Segment(10, (7, 8, 9), (10, 11, 12)), Segment(25, (3,), (25,))]
    with torch.no_grad():
        got = token_logprobs(model, [[Segment(0, ids[0], positions[0]), *branches], [Segment(0, ids[1], (5,))]], 0.7)
        own = logprobs_alone(model, ids[:1], positions[:1], 0.7)
        first = logprobs_alone(model, [(*ids[0][:10], 7, 8, 9)], [(10, 11, 12)], 0.7)
        second = logprobs_alone(model, [(*ids[0][:25], 3)], [(25,)], 0.7)
        last = logprobs_alone(model, ids[1:], positions[1:], 0.7)
    assert torch.allclose(got, torch.cat([own, first, second, last]), atol=1e-5)


@pytest.mark.parametrize("algorithm", [VinePpo, AllActions])
def test_every_iteration_draws_continuations_of_its_own(case, algorithm):
    ctx = context(Spelt())
    trajectories = group(ctx.environment, ctx.policy, case)
    first, again, next_iteration = (
        credited(algorithm, ctx, [trajectories], iteration)[0].decisions for iteration in (0, 0, 1)
    )
    assert first == again != next_iteration


class Undecided(Spelt):
    """Orders a blood count or is wrong at once; where a diagnosis is due it is right, or orders once more."""

    def distribution(self, state, forced):
        return {RIGHT: 0.5, CBC: 0.5} if forced else {CBC: 0.5, WRONG: 0.5}


def test_a_due_diagnosis_that_is_not_given_is_a_wrong_end(case):
    """So the blood count is worth 0.5 (1 - λ_na) less its own price, and the wrong diagnosis nothing."""
    ctx = context(Undecided(), training={"options": {"continuations": 200}}, environment={"max_turns": 2})
    trajectories = group(ctx.environment, ctx.policy, case, n=8)
    [scored] = credited(AllActions, ctx, [trajectories])
    for trajectory, advantages in zip(trajectories, scored.decisions, strict=True):
        ordered = trajectory.steps[0].turn.text == CBC
        assert advantages[0] == pytest.approx(0.2 if ordered else -0.2, abs=0.1)


def test_continuations_that_fail_leave_the_values_of_the_others(case):
    ctx = context(Spelt(failing=0.3), training={"options": {"continuations": 8}})
    trajectories = group(ctx.environment, Spelt(), case, n=6)
    [scored] = credited(AllActions, ctx, [trajectories])
    assert scored.counts["credit/failed"] > 0
    advantages = [a for row in scored.decisions for a in row] + [other.advantages[0] for other in scored.alternatives]
    assert all(map(math.isfinite, advantages)) and any(advantages)
