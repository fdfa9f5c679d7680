"""Which states are probed and selected, and what is logged of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from toy import CBC, CT, MRI, RIGHT, WRONG, Script, ToyPolicy, group, problem

from cdpr.credit.process_reward import ProcessReward
from cdpr.credit.scores import summarise, summarise_episodes, trajectory_score
from cdpr.credit.states import LEAST_DIFFERENCE, entropy_selected, materially_differ, states_to_probe
from cdpr.settings import parse_settings


def scored(case, n=4, seed=0, **credit):
    settings, env = problem(credit=credit)
    trajectories = group(env, ToyPolicy(), case, n=n, seed=seed)
    made = ProcessReward(env, ToyPolicy(), ToyPolicy(), settings.credit, settings.utility, 5)
    [report] = asyncio.run(made.score([trajectories], 0))
    return trajectories, report


@pytest.mark.parametrize("samples", [3, 8])
@pytest.mark.parametrize("own_actions", ["counted", "apart"])
def test_every_state_is_probed_until_there_are_n_s_samples(case, own_actions, samples):
    _, report = scored(case, n=6, samples=samples, own_actions=own_actions)
    own = [len(state.visits) if own_actions == "counted" else 0 for state in report.states]
    assert max(len(state.visits) for state in report.states) == 6
    assert report.counts["probes"] == sum(max(0, samples - n) for n in own)


def test_the_threshold_itself_is_selected():
    credit = parse_settings({"credit": {"threshold": 0.5}}).credit
    assert entropy_selected({"a": 0.5, "b": 0.499, "c": 0.7}, credit) == {"a", "c"}


def test_only_trajectories_with_enough_disagreed_states_are_not_probed_further():
    one, other, disagreed = [("a",), ("b",), ("c",)], [("a",), ("d",)], {("a",), ("b",)}
    assert states_to_probe([one, other], disagreed, None) == {*one, *other}
    assert states_to_probe([one, other], disagreed, 3) == {*one, *other}
    assert states_to_probe([one, other], disagreed, 2) == {("a",), ("b",), ("d",)}
    assert states_to_probe([one], disagreed, 2) == {("a",), ("b",)}


FREE = "REQUEST_TEST: Abdominal exam"


@pytest.mark.parametrize(
    ("one", "other", "signal", "difference"),
    [
        ((CBC, RIGHT), (RIGHT,), "issued", 1),
        ((CT, RIGHT), (CBC, RIGHT), "cost_usd", 297.26 - 7.77),
        ((MRI, RIGHT), (CBC, RIGHT), "infeasible", 1),
        (("what?", RIGHT), (FREE, RIGHT), "infeasible", 1),
    ],
)
def test_suffixes_differ_by_each_signal_alone_from_its_bound_on(case, one, other, signal, difference):
    _, env = problem()
    ends = [(group(env, Script(*texts), case, n=1)[0], 0) for texts in (one, other)]
    never = dict.fromkeys(LEAST_DIFFERENCE, float("inf"))
    for pair in (ends, ends[::-1]):
        assert materially_differ(*pair, never | {signal: difference})
        assert not materially_differ(*pair, never | {signal: difference + 0.01})


@pytest.mark.parametrize(
    ("one", "other", "signal"),
    [((CBC, RIGHT), (CT, RIGHT), "issued"), ((CBC, RIGHT), (CBC, RIGHT), "cost_usd"),
     ((MRI, RIGHT), ("what?", RIGHT), "infeasible")],
)  # fmt: skip
def test_suffixes_that_count_the_same_do_not_differ(case, one, other, signal):
    _, env = problem()
    never = dict.fromkeys(LEAST_DIFFERENCE, float("inf"))
    ends = [(group(env, Script(*texts), case, n=1)[0], 0) for texts in (one, other)]
    assert not materially_differ(*ends, never | {signal: 0.5})


def test_suffixes_differ_by_their_outcome_and_not_by_what_came_before(case):
    _, env = problem()
    never = dict.fromkeys(LEAST_DIFFERENCE, float("inf"))
    right, wrong, dear = (
        group(env, Script(*texts), case, n=1)[0] for texts in ((CBC, RIGHT), (CBC, WRONG), (CT, CBC, RIGHT))
    )
    assert materially_differ((right, 0), (wrong, 0), never)
    assert not materially_differ((right, 0), (dear, 1))


def test_what_is_logged_of_a_batch_is_what_was_found(case):
    settings = parse_settings({})
    batch = [scored(case, seed=seed) for seed in range(6)]
    reports = [report for _, report in batch]
    logged = summarise(reports, settings.credit)
    states = [state for report in reports for state in report.states]
    assert logged["credit/selected_share"] == np.mean([state.reason != "" for state in states])
    disagreed = np.mean([state.reason == "disagreed" for state in states])
    assert 0 < logged["credit/disagreed_share"] == disagreed < logged["credit/selected_share"] < 1
    evaluated = [c for state in states for c in state.candidates]
    for kind, found in (("suffixes", "suffixes"), ("cached", "cached"), ("fresh", "fresh")):
        assert logged[f"credit/{kind}"] <= sum(getattr(c, found) for c in evaluated)  # actions share their pools
    assert logged["credit/suffixes"] > 0 == logged["credit/cached"]
    process = [rewards for report in reports for rewards in report.process]
    selected = [sum(r is not None for r in rewards) for rewards in process]
    bonus = [trajectory_score(0.0, rewards, settings.credit) for rewards in process]
    taken = [r for rewards in process for r in rewards if r is not None]
    assert logged["credit/r_proc_mean"] == pytest.approx(np.mean(taken))
    assert logged["credit/r_proc_std"] == pytest.approx(np.std(taken, ddof=1))
    assert logged["credit/selected_per_trajectory"] == pytest.approx(np.mean(selected))
    assert logged["credit/corr_selected_bonus"] == pytest.approx(np.corrcoef(selected, bonus)[0, 1])


def test_ties_in_the_top_m_favour_what_the_group_did(case):
    settings, env = problem(credit={"samples": 2, "candidates": 1, "select_all": True})
    trajectories = group(env, Script(CT, RIGHT), case, n=1)
    made = ProcessReward(env, Script(CBC, RIGHT), ToyPolicy(), settings.credit, settings.utility, 5)
    [report] = asyncio.run(made.score([trajectories], 0))
    assert {action.p for action in report.states[0].actions} == {0.5}
    assert [c.action[1] for c in report.states[0].candidates if c.in_top_m] == ["CT Abdomen and Pelvis"]


def test_a_diagnosis_earns_a_process_reward_unless_it_was_forced(case):
    settings, env = problem(environment={"max_turns": 3}, credit={"select_all": True})
    groups = [group(env, ToyPolicy(), case, n=8, seed=seed) for seed in range(3)]
    made = ProcessReward(env, ToyPolicy(), ToyPolicy(), settings.credit, settings.utility, 5)
    reports = asyncio.run(made.score(groups, 0))
    ends = [(t.forced, p[-1]) for g, r in zip(groups, reports, strict=True) for t, p in zip(g, r.process, strict=True)]
    assert {forced for forced, _ in ends} == {True, False}
    assert all((reward is None) == forced for forced, reward in ends)


def test_workups_are_summarised_by_what_was_requested(case):
    settings, env = problem()
    workups = [group(env, Script(*texts), case, n=1)[0] for texts in ((CBC, CBC, MRI, "what?", FREE, RIGHT), (WRONG,))]
    workups[0] = replace(workups[0], forced=True)
    found = summarise_episodes(workups, settings.utility, env.settings.tests)
    utility = (1 - 0.05 - 0.02 * 0.0777 - 0.1 * 2) / 2
    assert found == pytest.approx(
        {"accuracy": 0.5, "aen": 1.5, "aec": 7.77 / 2, "n_na": 1.0, "physical": 0.5, "utility": utility, "forced": 0.5,
         "turns": 3.5}
    )  # fmt: skip


@pytest.mark.parametrize("max_states", [None, 1])
def test_without_cache_the_same_states_are_selected(case, max_states):
    """Whether continuations are reused decides what an action is worth, not which states are looked at."""
    for seed in range(3):
        with_cache, without = (
            scored(case, seed=seed, threshold=1.0, max_states=max_states, cache={"scope": scope})[1]
            for scope in ("run", "off")
        )
        looked = [
            [(s.evidence, s.visits, s.entropy, s.reason) for s in found.states] for found in (with_cache, without)
        ]
        assert looked[0] == looked[1] and any(reason == "disagreed" for *_, reason in looked[0])
        assert without.counts["cached"] == without.counts["suffixes"] == 0 < with_cache.counts["suffixes"]


def test_trajectories_disagree_also_where_their_states_are_not_merged(case):
    for seed in range(3):
        merged, apart = (
            {
                visit
                for state in scored(case, seed=seed, merge=merge, threshold=9.0)[1].states
                if state.reason == "disagreed"
                for visit in state.visits
            }
            for merge in ("ordered", "none")
        )
        assert merged == apart != set()


def test_the_entropy_decides_alone_where_disagreement_does_not_select(case):
    _, report = scored(case, threshold=1.0, select_disagreed=False)
    assert {state.reason for state in report.states} == {"", "entropy"}
    assert all(bool(state.reason) == (state.entropy >= 1.0) for state in report.states)
