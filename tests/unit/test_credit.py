"""The process reward against exact values by enumeration, and its invariants."""

from __future__ import annotations

import asyncio
import math
import random
from statistics import fmean, stdev

import pytest
from toy import CBC, CT, MRI, RIGHT, WRONG, HastyPolicy, Script, ToyPolicy, exact_value, group, problem

from cdpr.credit.continuations import Continuation, Draws
from cdpr.credit.process_reward import MOST_PER_STATE, ProcessReward, action_value, baseline
from cdpr.credit.scores import process_score, trajectory_score, weighted_rewards
from cdpr.credit.states import build_tree, entropy, frequencies, select_states, top_candidates
from cdpr.environment import Effort, Turn
from cdpr.evaluation.decision_credit import list_endings
from cdpr.llm.types import ModelFailure
from cdpr.settings import parse_settings
from cdpr.settings.variants import resolve_variant
from cdpr.training.algorithm import Alternative, Context, GroupAdvantages, score_groups
from cdpr.training.algorithms.cdpr import Cdpr
from cdpr.training.algorithms.grpo import Grpo

TEXTS = {
    ("result", "Complete Blood Count"): CBC,
    ("result", "CT Abdomen and Pelvis"): CT,
    ("unavailable", "mri brain"): MRI,
}


def process(policy=None, seed=5, **credit):
    settings, env = problem(credit=credit)
    policy = policy or ToyPolicy()
    # Two objects of the same behaviour: the continuation policy counts as frozen.
    return settings, env, ProcessReward(env, policy, ToyPolicy(), settings.credit, settings.utility, seed)


def score(made, trajectories, iteration=0):
    return asyncio.run(made.score([trajectories], iteration))[0]


def root(report):
    return next(state for state in report.states if not state.evidence)


def shares(state):
    return {sampled.action: sampled.p for sampled in state.actions}


def values(state):
    return {candidate.action: candidate.value for candidate in state.candidates}


@pytest.mark.parametrize("horizon", [0, 1, 3])
@pytest.mark.parametrize("merge", ["ordered", "set", "none"])
@pytest.mark.parametrize("k", [60, 960])
def test_values_converge_to_those_by_enumeration(case, horizon, merge, k):
    settings, env, made = process(
        continuations=k,
        samples=200,
        horizon=horizon,
        select_all=True,
        candidates=8,
        merge=merge,
        cache={"scope": "batch"},
    )
    report = score(made, group(env, ToyPolicy(), case))
    found = values(root(report))
    for action, text in TEXTS.items():
        exact = exact_value(env, ToyPolicy(), env.initial(case), settings.utility, horizon, text)
        assert found[action] == pytest.approx(exact, abs=4 * 0.5 / k**0.5)
    assert found["end", ""] == pytest.approx(0.2, abs=4 * 0.4 / 60**0.5)


@pytest.mark.parametrize(
    ("cache", "unbiased"),
    [
        ({"scope": "run"}, True),
        ({"scope": "batch"}, True),
        ({"scope": "off"}, True),
        ({"long_suffixes": "drop"}, False),
        ({"long_suffixes": "keep"}, False),
    ],
)
def test_reused_suffixes_bias_nothing_when_they_are_cut_at_the_horizon(case, cache, unbiased):
    action, found = ("result", "Complete Blood Count"), []
    for r in range(300):
        settings, env, made = process(
            seed=r, select_all=True, horizon=1, continuations=2, cache=cache | {"reuse_group": "every"}
        )
        made.policy = made.continuation_policy = HastyPolicy()
        found.append(values(root(score(made, group(env, HastyPolicy(), case, n=2, seed=r))))[action])
    exact = exact_value(env, HastyPolicy(), env.initial(case), settings.utility, 1, CBC)
    error = stdev(found) / len(found) ** 0.5
    assert error < 0.03 and (abs(fmean(found) - exact) < 4 * error) == unbiased


class Mute(ToyPolicy):
    """Every request for log-probabilities fails."""

    async def score_diagnoses(self, state, names, forced):
        raise ModelFailure("no answer")


@pytest.mark.parametrize("horizon", [1, 2])
def test_scored_verdicts_have_the_mean_of_drawn_ones_and_less_noise(case, horizon):
    action, deviation = ("result", "Complete Blood Count"), {}
    for verdicts in ("drawn", "scored"):
        estimates = []
        for seed in range(300):
            settings, env, made = process(
                seed=seed,
                verdicts=verdicts,
                horizon=horizon,
                select_all=True,
                continuations=1,
                candidates=8,
                cache={"scope": "batch"},
            )
            estimates.append(values(root(score(made, group(env, ToyPolicy(), case, n=2, seed=seed)))).get(action))
        estimates = [value for value in estimates if value is not None]
        exact = exact_value(env, ToyPolicy(), env.initial(case), settings.utility, horizon, CBC)
        deviation[verdicts] = stdev(estimates)
        assert abs(fmean(estimates) - exact) < 4 * stdev(estimates) / len(estimates) ** 0.5
    assert deviation["scored"] < 0.7 * deviation["drawn"]


def test_scored_verdicts_without_a_further_decision_are_exact(case):
    settings, env, made = process(
        verdicts="scored", horizon=0, select_all=True, continuations=1, candidates=8, samples=200
    )
    found = values(root(score(made, group(env, ToyPolicy(), case))))
    for action, text in TEXTS.items():
        assert found[action] == pytest.approx(
            exact_value(env, ToyPolicy(), env.initial(case), settings.utility, 0, text)
        )
    assert found["end", ""] == pytest.approx(0.2)


@pytest.mark.parametrize("verdicts", ["drawn", "scored"])
def test_the_value_of_a_candidate_is_the_mean_utility_of_its_listed_continuations(case, verdicts):
    _, env, made = process(verdicts=verdicts, horizon=1, select_all=True, cache={"scope": "batch"})
    credit = made.open_group(group(env, ToyPolicy(), case), 0)
    asyncio.run(credit.score())
    corrects = set()
    for state, candidates in zip(credit.report.states, credit.candidates.values(), strict=True):
        for value, candidate in zip(state.candidates, candidates, strict=True):
            if endings := list(list_endings(made, candidate)):
                assert value.value == pytest.approx(fmean(end.utility for end in endings))
                corrects |= {end.correct for end in endings}
    assert corrects == {False, True} if verdicts == "drawn" else any(0 < correct < 1 for correct in corrects)


def test_a_verdict_that_cannot_be_scored_counts_as_failed(case):
    _, env, made = process(Mute(), verdicts="scored", select_all=True)
    made.continuation_policy = Mute()
    report = score(made, group(env, ToyPolicy(), case, n=8))
    assert report.counts["failed"] > 0 and math.isfinite(sum(r or 0.0 for rewards in report.process for r in rewards))
    drawn = [c for state in report.states for c in state.candidates if c.action[0] != "end" and c.fresh]
    assert not drawn and report.counts["unvalued"] > 0
    unread = [c for state in report.states for c in state.candidates if c.action[0] == "end" and c.value is None]
    assert unread and all(c.correct == 0.0 for c in unread)


def test_reward_is_the_advantage_over_the_candidates(case):
    for rule in ("uniform", "policy_weighted", "leave_one_out"):
        _, env, made = process(select_all=True, candidates=2, baseline=rule)
        trajectories = group(env, ToyPolicy(), case, n=6)
        report = score(made, trajectories)
        for state in report.states:
            top = {c.action: c.value for c in state.candidates if c.in_top_m}
            assert len(top) == min(2, len(shares(state)))
            for i, t in state.visits:
                action = trajectories[i].steps[t].evidence
                own = float(trajectories[i].correct) if action[0] == "end" else values(state)[action]
                expected = own - (baseline(top, shares(state), action, rule) or 0.0)
                if rule == "leave_one_out" and set(top) == {action}:
                    expected = 0.0
                assert report.process[i][t] == pytest.approx(max(-1.0, min(1.0, expected)))


def test_baselines_by_hand():
    u, p = {"a": 1.0, "b": 0.0}, {"a": 0.6, "b": 0.2, "c": 0.2}
    assert baseline(u, p, "a") == 0.5
    assert baseline(u, p, "a", "policy_weighted") == pytest.approx(0.75)
    assert baseline(u, p, "a", "leave_one_out") == 0.0
    assert baseline({"a": 1.0}, p, "a", "leave_one_out") is None


def test_action_value_is_the_mean_utility():
    settings, env = problem()
    ends = [Continuation(True, Effort(available=1, cost_usd=50.0)), Continuation(False, Effort(unavailable=2))]
    first = Effort(available=1, cost_usd=100.0)
    u = [1 - 0.05 * 2 - 0.02 * 1.5, 0 - 0.05 - 0.02 - 0.10 * 2]
    assert action_value(first, ends, settings.utility, env.settings.tests) == pytest.approx(fmean(u))


def test_scores_by_hand():
    rewards = [0.4, None, -1.0, 0.2]
    credit = parse_settings({}).credit
    assert weighted_rewards(rewards, credit) == pytest.approx([0.2, 0.0, -0.5, 0.1])
    assert trajectory_score(1.0, rewards, credit) == pytest.approx(1.0 + 0.5 * -0.4)
    assert 1.0 + sum(weighted_rewards(rewards, credit)) == pytest.approx(trajectory_score(1.0, rewards, credit))
    mean = parse_settings({"credit": {"aggregate": "mean"}}).credit
    assert process_score(rewards, mean) == pytest.approx(0.5 * -0.4 / 3)
    assert process_score([None, None], credit) == 0.0


def test_a_state_whose_only_candidate_was_taken_earns_nothing(case):
    for rule in ("uniform", "policy_weighted", "leave_one_out"):
        _, env, made = process(select_all=True, baseline=rule)
        made.policy.distribution = lambda state, forced: {RIGHT: 1.0} if state.history or forced else {CBC: 1.0}
        report = score(made, group(env, made.policy, case))
        assert {r for rewards in report.process for r in rewards} == {0.0}


def test_selecting_nothing_is_grpo_to_the_bit(case):
    settings, env = problem(credit={"threshold": float("inf"), "select_disagreed": False})
    policy = ToyPolicy()
    groups = [group(env, policy, case, seed=s) for s in range(5)]
    context = Context(settings, env, policy, lambda: policy, 0)
    cdpr, grpo = ([scored.decisions for scored in asyncio.run(score_groups(made(context), groups, 0))]
                  for made in (Cdpr, Grpo))  # fmt: skip
    assert cdpr == grpo
    assert any(a for rows in cdpr for row in rows for a in row)


def test_without_process_reward_is_the_same_job_as_grpo():
    settings = parse_settings({})
    assert resolve_variant(settings, "without_process_reward") == resolve_variant(settings, "grpo")


@pytest.mark.parametrize("baseline_rule", ["uniform", "policy_weighted"])
def test_merged_and_unmerged_trees_give_the_same_rewards_for_the_same_random_numbers(case, baseline_rule):
    """With p_hat from draws of its own and no suffix reused, a state that several trajectories share is worth the
    same whether it is evaluated once or once for each."""
    found, evaluated = {}, {}
    for merge in ("ordered", "none"):
        cache = {"scope": "batch", "reuse_group": "none"}
        _, env, made = process(select_all=True, merge=merge, own_actions="apart", baseline=baseline_rule, cache=cache)
        groups = [group(env, ToyPolicy(), case, n=6, seed=seed) for seed in range(10)]
        reports = [score(made, trajectories, seed) for seed, trajectories in enumerate(groups)]
        found[merge] = [report.process for report in reports]
        evaluated[merge] = sum(len(report.states) for report in reports)
    assert found["ordered"] == found["none"] and evaluated["ordered"] < evaluated["none"]


def test_p_hat_comes_from_the_draws_alone_when_own_actions_stand_apart(case):
    _, env, made = process(select_all=True, own_actions="apart", samples=3)
    made.policy = Script(CT)
    trajectories = [group(env, Script(CBC, RIGHT), case, n=1)[0]]
    state = root(score(made, trajectories))
    assert shares(state) == {("result", "CT Abdomen and Pelvis"): 1.0} and state.entropy == 0
    assert [(c.action[1], c.in_top_m) for c in state.candidates] == [
        ("CT Abdomen and Pelvis", True),
        ("Complete Blood Count", False),
    ]


def test_order_of_coroutines_changes_nothing(case):
    def scored(order, jitter):
        _, env, made = process(ToyPolicy(jitter), cache={"capacity": 12})
        made.continuation_policy = ToyPolicy(jitter)
        groups = {s: group(env, ToyPolicy(), case.model_copy(update={"note_id": f"T-{s}"}), seed=s) for s in range(6)}
        rounds = []
        for iteration in range(3):  # the bounded cache goes through the same states too
            reports = asyncio.run(made.score([groups[s] for s in order], iteration))
            rounds.append({s: report.process for s, report in zip(order, reports, strict=True)})
        return rounds

    plain = scored(range(6), None)
    assert plain == scored(range(6), random.Random(1)) == scored(range(6), random.Random(2))
    assert plain[0] == scored([5, 3, 1, 0, 2, 4], None)[0]


def test_the_cache_saves_continuations_and_keeps_accumulating(case):
    _, env, made = process(select_all=True)
    trajectories = group(env, ToyPolicy(), case)
    first, second = score(made, trajectories), score(made, trajectories, 1)
    assert second.counts["fresh"] < first.counts["fresh"] and second.counts["cached"] > 0
    before = {key: len(entry.continuations) for key, entry in made.cache.items()}
    for iteration in range(2, 60):
        score(made, trajectories, iteration)
    grown = {key: len(made.cache[key].continuations) for key in before}
    assert any(grown[key] > before[key] for key in before)
    assert max(grown.values()) <= MOST_PER_STATE
    made.continuation_policy = made.policy  # another continuation policy: nothing old is used
    score(made, trajectories, 60)
    assert max(len(entry.continuations) for entry in made.cache.values()) <= 4


def test_eviction_costs_continuations_and_changes_no_value(case):
    found, fresh = [], []
    for capacity in (3, 8192):
        _, env, made = process(select_all=True, cache={"capacity": capacity, "grow": 0})
        trajectories = group(env, ToyPolicy(), case)
        reports = [score(made, trajectories, iteration) for iteration in (0, 0, 0)]
        assert len(made.cache) <= capacity
        found.append([report.process for report in reports])
        fresh.append(sum(report.counts["fresh"] for report in reports))
    assert found[0] == found[1] and fresh[0] > fresh[1]


def test_nested_states_share_their_continuations(case):
    """Continuation k takes reply k wherever it comes: what follows from a state is drawn once for all actions that
    lead through it."""
    _, env = problem()
    draws = Draws(env, ToyPolicy(), 0, ("x",))
    state = env.initial(case)
    first = asyncio.run(draws.rollout(state, range(50), 3))
    step = env.step(state, Turn(CBC))
    onward = [k for k, s in asyncio.run(draws.draw_steps(state, range(50))).items() if s.turn.text == CBC]
    drawn = len(draws.journal)
    second = asyncio.run(draws.rollout(state.after(step), onward, 2))
    assert len(draws.journal) == drawn and len(onward) > 5
    for k in onward:
        assert first[k] == Continuation(second[k].correct, step.effort + second[k].effort)


def test_failed_continuations_are_dropped_counted_and_bias_nothing(case):
    settings, env, _ = process()
    _, _, made = process(samples=200, continuations=2000, select_all=True, candidates=8, cache={"reuse_group": "none"})
    made.continuation_policy = ToyPolicy(failing=0.2)
    report = score(made, group(env, ToyPolicy(), case))
    assert report.counts["failed"] > 100
    for action, text in TEXTS.items():
        candidate = next(c for c in root(report).candidates if c.action == action)
        if candidate.value is None:
            assert candidate.failed == 2000
            continue
        exact = exact_value(env, ToyPolicy(), env.initial(case), settings.utility, 3, text)
        assert candidate.fresh + candidate.failed == 2000
        assert candidate.value == pytest.approx(exact, abs=0.25)  # a request stands for many continuations here


def test_without_any_continuation_an_action_has_no_value_and_no_reward(case):
    _, env, made = process(select_all=True, cache={"reuse_group": "none"})
    made.continuation_policy = ToyPolicy(failing=1.0)
    trajectories = group(env, ToyPolicy(), case)
    report = score(made, trajectories)
    requests = sum(step.evidence[0] != "end" for t in trajectories for step in t.steps)
    forced = sum(t.forced and len(t.steps) > 1 for t in trajectories)
    assert report.counts["unvalued"] >= requests - forced > 0
    unvalued = [c for state in report.states for c in state.candidates if c.value is None]
    assert unvalued and not any(c.correct or c.tests or c.cost_usd or c.infeasible for c in unvalued)
    free = sum(len(x.steps) - x.forced for x in trajectories)
    assert report.counts["unvalued"] == free - sum(r is not None for steps in report.process for r in steps)
    assert all(
        (r is None) == (step.evidence[0] != "end")
        for t, rewards in zip(trajectories, report.process, strict=True)
        if not t.forced
        for step, r in zip(t.steps, rewards, strict=True)
    )


def test_errors_of_the_program_are_not_taken_for_failures(case):
    _, env, made = process(select_all=True)

    async def broken(*_):
        raise ValueError("a bug")

    made.continuation_policy.sample = broken
    with pytest.raises(ValueError, match="a bug"):
        score(made, group(env, ToyPolicy(), case))
    assert not issubclass(ValueError, ModelFailure)


def test_a_budget_takes_disagreed_states_first_and_saves_probes(case):
    u = {"a": 0.9, "b": 0.2, "c": 0.7}
    assert select_states("abc", {"b"}, {"a", "c"}, u, 2) == ["b", "a"]
    assert select_states("abc", {"b"}, {"a", "c"}, u, None) == ["a", "b", "c"]
    _, env, free = process()
    trajectories = group(env, ToyPolicy(), case)
    everything = score(free, trajectories)
    _, _, made = process(max_states=1)
    report = score(made, trajectories)
    assert all(sum(r is not None for r in rewards) <= 1 for rewards in report.process)
    assert report.counts["probes"] < everything.counts["probes"] and any(
        state.entropy is None for state in report.states
    )
    chosen = {state.evidence for state in report.states if state.reason}
    assert chosen == {state.evidence for state in everything.states if state.reason == "disagreed"} != set()


def test_entropy_and_candidates_by_hand(case):
    _, env = problem()
    state = env.initial(case)
    texts = [CBC] * 4 + ["REQUEST_TEST: FBC"] * 2 + [RIGHT, WRONG]
    p_hat = frequencies([env.step(state, Turn(text)).evidence for text in texts])
    assert p_hat == {("result", "Complete Blood Count"): 0.75, ("end", ""): 0.25}
    assert entropy(p_hat) == pytest.approx(0.5623, abs=1e-4)
    assert top_candidates(p_hat, 1) == [("result", "Complete Blood Count")]
    among = {("result", name): p for name, p in (("Lipase", 0.2), ("CT Head", 0.3), ("Abdomen", 0.2), ("MRI", 0.3))}
    order = ["CT Head", "MRI", "Lipase", "Abdomen"]  # of equals the one that was sampled first
    assert [[name for _, name in top_candidates(among, m)] for m in range(6)] == [order[:m] for m in range(6)]


@pytest.mark.parametrize("diagnoses", ["one_action", "by_text"])
def test_diagnoses_are_one_action_or_one_for_each_disease(case, diagnoses):
    _, env, made = process(select_all=True, candidates=8, samples=100, diagnoses=diagnoses)
    found = values(root(score(made, group(env, ToyPolicy(), case))))
    ends = {action: value for action, value in found.items() if action[0] == "end"}
    if diagnoses == "by_text":
        assert ends == {("end", "acute appendicitis"): 1.0, ("end", "sepsis"): 0.0}
    else:
        assert list(ends) == [("end", "")] and 0 < ends["end", ""] < 1


def test_infinite_rewards_stop_the_step_and_name_the_case(case):
    """Clipping must not turn what is not a number into +-c."""
    settings, env = problem(utility={"lambda_cost": 1e308, "cost_unit_usd": 1e-9})
    policy = ToyPolicy()
    context = Context(settings, env, policy, lambda: policy, 0)
    with pytest.raises(FloatingPointError, match="case T-1: R_proc"):
        asyncio.run(score_groups(Cdpr(context), [group(env, policy, case, n=8)], 0))


def test_an_advantage_that_is_not_a_number_stops_the_step_and_names_the_case(case):
    settings, env = problem()
    trajectories = group(env, ToyPolicy(), case, n=2)
    fine = [[0.0] * len(trajectory.steps) for trajectory in trajectories]
    wrong = Alternative(0, (Turn(CBC),), (math.inf,), (1.0,))

    class Fixed(Grpo):
        async def score_group(self, group, iteration):
            return advantages

    algorithm = Fixed(Context(settings, env, ToyPolicy(), ToyPolicy, 0))
    advantages = GroupAdvantages(decisions=fine)
    assert asyncio.run(score_groups(algorithm, [trajectories], 0)) == [advantages]
    for bad in ({"decisions": [[math.nan], fine[1]]}, {"decisions": fine, "alternatives": [wrong]}):
        advantages = GroupAdvantages(**bad)
        with pytest.raises(FloatingPointError, match="case T-1: the advantages"):
            asyncio.run(score_groups(algorithm, [trajectories], 0))


def test_different_diseases_disagree_only_when_they_are_different_actions(case):
    for diagnoses, disagreed in (("one_action", False), ("by_text", True)):
        _, env, made = process(diagnoses=diagnoses, threshold=float("inf"))
        trajectories = [group(env, Script(text), case, n=1)[0] for text in (RIGHT, WRONG)]
        assert (root(score(made, trajectories)).reason == "disagreed") is disagreed


def test_the_papers_cache_rule_can_hardly_fire_inside_a_group(case):
    """With n = K = 4 a state where trajectories part has at most three suffixes per action: the rule to the letter
    reuses suffixes only of actions that all four took."""
    for seed in range(20):
        _, env, made = process(select_all=True, cache={"fill": "strict", "scope": "batch"})
        trajectories = group(env, ToyPolicy(), case, seed=seed)
        for state in score(made, trajectories).states:
            taken = {trajectories[i].steps[t].evidence for i, t in state.visits}
            if len(taken) > 1:
                assert not any(candidate.suffixes or candidate.cached for candidate in state.candidates)


class OnwardPolicy(HastyPolicy):
    """Blood count, CT, then on and on: nothing is left to chance."""

    def distribution(self, state, forced):
        ordered = super().distribution(state, forced)
        return {CT: 1.0} if WRONG in ordered and not forced else ordered


def test_a_suffix_that_is_cut_counts_what_it_did_until_then(case):
    settings, env, made = process(select_all=True, horizon=1, continuations=2, cache={"reuse_group": "every"})
    made.policy = made.continuation_policy = OnwardPolicy()
    report = score(made, group(env, OnwardPolicy(), case, n=2))
    candidate = root(report).candidates[0]
    exact = exact_value(env, OnwardPolicy(), env.initial(case), settings.utility, 1, CBC)
    assert (candidate.suffixes, candidate.fresh) == (2, 0) and candidate.value == pytest.approx(exact)


def test_suffixes_spare_fresh_continuations(case):
    _, env, made = process(select_all=True, cache={"scope": "batch"})
    for seed in range(5):
        report = score(made, group(env, ToyPolicy(), case, seed=seed), seed)
        examined = [c for state in report.states for c in state.candidates if c.action[0] != "end"]
        assert {c.suffixes + c.fresh for c in examined} == {4} and any(c.suffixes for c in examined)


def test_the_order_of_evidence_may_be_ignored(case):
    _, env = problem()

    both = [group(env, Script(*texts, RIGHT), case, n=1)[0] for texts in ((CBC, CT), (CT, CBC))]
    states = {merge: len(build_tree(both, merge)) for merge in ("ordered", "set", "none")}
    assert states == {"ordered": 5, "set": 4, "none": 6}


def test_every_iteration_probes_with_draws_of_its_own(case):
    """Otherwise the same states would show the same alternatives for the whole training."""

    seeds: set[int] = set()

    class Noting(ToyPolicy):
        async def sample(self, state, numbers, forced, seed):
            seeds.add(seed)
            return await super().sample(state, numbers, forced, seed)

    _, env, made = process(policy=Noting(), select_all=True, samples=8)
    trajectories, by_iteration = group(env, ToyPolicy(), case), []
    for iteration in (0, 1):
        seeds.clear()
        score(made, trajectories, iteration)
        by_iteration.append(set(seeds))
    assert all(by_iteration) and not set.intersection(*by_iteration)
