"""What CDPR is when nothing is estimated: the sum of a trajectory's process rewards is U(tau) - V(s_0)."""

from __future__ import annotations

import asyncio

import pytest
from toy import CBC, CT, MRI, RIGHT, WRONG, ToyPolicy, exact_value, group, problem

from cdpr.credit.process_reward import ProcessReward
from cdpr.environment import Turn
from cdpr.environment.utility import utility
from cdpr.settings import merge
from cdpr.training.algorithm import Context, score_groups
from cdpr.training.algorithms.cdpr import Cdpr
from cdpr.training.algorithms.utility_grpo import UtilityGrpo

BRANCHES, DEPTH = 4, 4
ALL = BRANCHES**DEPTH


class Enumerated(ToyPolicy):
    """Four equally likely replies at every state, a diagnosis at the latest after three requests. Reply k is chosen by
    the digit of k that belongs to the turn, so replies 0 ... 255 are every sequence of choices exactly once: a mean
    over them is an expectation."""

    def options(self, state, forced):
        if forced or len(state.history) == DEPTH - 1:
            return [RIGHT] * (1 + len(state.obtained)) + [WRONG] * (BRANCHES - 1 - len(state.obtained))
        return [CBC, CT, RIGHT, WRONG] if state.history else [CBC, CT, MRI, WRONG]

    def distribution(self, state, forced):
        options = self.options(state, forced)
        return {text: options.count(text) / BRANCHES for text in options}

    async def sample(self, state, numbers, forced, seed):
        options = self.options(state, forced)
        return [Turn(options[k // BRANCHES ** len(state.history) % BRANCHES]) for k in numbers]


class Hesitant(Enumerated):
    """Another policy: it would rather order a blood count than diagnose."""

    def options(self, state, forced):
        return [CBC if text == WRONG and not forced else text for text in super().options(state, forced)]


EXACT = {
    "baseline": "policy_weighted",
    "select_all": True,
    "samples": ALL,
    "own_actions": "apart",
    "candidates": BRANCHES,
    "continuations": ALL,
    "horizon": DEPTH,
    "clip": 100.0,
    "cache": {"reuse_group": "none"},
}


class Numbered(Enumerated):
    """Acts by reply ``k`` throughout."""

    def __init__(self, k):
        super().__init__()
        self.k = k

    async def act(self, state, forced, seed):
        return (await self.sample(state, (self.k,), forced, seed))[0]


def every_trajectory(env, case):
    """Each that :class:`Enumerated` can produce, once."""
    found = [group(env, Numbered(k), case, n=1)[0] for k in range(ALL)]
    return list({tuple(step.turn.text for step in trajectory.steps): trajectory for trajectory in found}.values())


def process_rewards(case, continues=None, environment=None, **changes):
    """R_proc of all decisions of every trajectory, the trajectories, and U(tau) - V(s_0) by enumeration."""
    settings, env = problem(credit=merge(EXACT, changes), environment=environment or {})
    policy, trajectories = Enumerated(), every_trajectory(env, case)
    made = ProcessReward(env, policy, continues or policy, settings.credit, settings.utility, 0)
    [report] = asyncio.run(made.score([trajectories], 0))
    start = exact_value(env, policy, env.initial(case), settings.utility)
    worth = [utility(t.correct, t.effort(), settings.utility, env.settings.tests) - start for t in trajectories]
    return report.process, trajectories, worth


def test_exact_process_rewards_of_a_trajectory_add_up_to_what_it_is_worth_beyond_its_start(case):
    process, trajectories, worth = process_rewards(case)
    assert len(trajectories) == 43 and {len(t.steps) for t in trajectories} == {1, 2, 3, 4}
    assert [sum(rewards) for rewards in process] == pytest.approx(worth)


@pytest.mark.parametrize(
    "choice",
    [
        {"baseline": "uniform"},
        {"continues": Hesitant()},
        {"select_all": False, "threshold": 1.0},
        {"horizon": 1},
        {"candidates": 2},
        {"clip": 0.1},
    ],
    ids=lambda choice: next(iter(choice)),
)
def test_each_choice_of_the_paper_that_is_not_exact_leaves_a_bias(case, choice):
    process, _, worth = process_rewards(case, **choice)
    error = [sum(r or 0.0 for r in rewards) - u for rewards, u in zip(process, worth, strict=True)]
    assert max(error) - min(error) > 0.01  # what is equal for a whole group cancels in it; this does not


def test_what_a_forced_diagnosis_owes_to_chance_is_missing(case):
    """It is no decision and earns no process reward: the sum is what the trajectory is worth before it is said."""
    process, trajectories, worth = process_rewards(case, environment={"max_turns": DEPTH})
    assert any(t.forced for t in trajectories)
    for rewards, trajectory, u in zip(process, trajectories, worth, strict=True):
        right = Enumerated().distribution(trajectory.states[-1], True).get(RIGHT, 0.0)
        luck = trajectory.correct - right if trajectory.forced else 0.0
        assert sum(r or 0.0 for r in rewards) + luck == pytest.approx(u)


@pytest.mark.parametrize("beta", [0.25, 0.5])
@pytest.mark.parametrize(("normalise", "scale"), [("group_std", lambda beta: 1.0), ("none", lambda beta: beta)])
def test_exact_cdpr_is_utility_grpo_with_another_weight_of_correctness(case, beta, normalise, scale):
    settings, env = problem(
        credit=EXACT | {"beta": beta, "continuation": {"policy": "current"}},
        comparators={"correctness_weight": (1 + beta) / beta},
        training={"normalise": normalise},
    )
    policy, trajectories = Enumerated(), every_trajectory(env, case)
    context = Context(settings, env, policy, lambda: policy, 0)
    groups = [trajectories[k : k + 8] for k in range(0, len(trajectories), 8)]
    for scored, expected in zip(
        *(asyncio.run(score_groups(made(context), groups, 0)) for made in (Cdpr, UtilityGrpo)), strict=True
    ):
        for got, want in zip(scored.decisions, expected.decisions, strict=True):
            assert got[0] == pytest.approx(scale(beta) * want[0], rel=1e-3, abs=1e-9)  # 1e-6 beside sigma_G
