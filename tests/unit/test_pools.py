"""Whose replies continuations are made of, which random numbers they take, and what the rollout cache keeps."""

from __future__ import annotations

import asyncio

import pytest
from toy import CBC, CT, RIGHT, WRONG, HastyPolicy, Script, ToyPolicy, group, problem

from cdpr.credit.continuations import Draws
from cdpr.credit.process_reward import Entry, ProcessReward
from cdpr.environment import State, Turn, run_episode
from cdpr.llm.types import ModelFailure
from cdpr.training.algorithm import Context, score_groups
from cdpr.training.algorithms.cdpr import Cdpr


class Recording(ToyPolicy):
    """Keeps what it was asked: the state, whether forced, the seed, the numbers. Its first ``failures`` requests fail
    with ``error``."""

    def __init__(self, failures: int = 0, error: type[Exception] = ModelFailure):
        super().__init__()
        self.requests: list[tuple[State, bool, int, list[int]]] = []
        self.failures, self.error = failures, error

    async def sample(self, state, numbers, forced, seed):
        self.requests.append((state, forced, seed, list(numbers)))
        if len(self.requests) <= self.failures:
            raise self.error("no answer")
        return await super().sample(state, numbers, forced, seed)

    def seeds(self, first=0):
        """Those of the requests from the ``first`` on."""
        return {seed for _, _, seed, _ in self.requests[first:]}


class Steady(Recording):
    """A blood count, then the right diagnosis."""

    def distribution(self, state, forced):
        return {RIGHT: 1.0} if state.history or forced else {CBC: 1.0}


class Onward(Recording):
    """Blood count, CT, then blood counts again; when stopped, right half the time."""

    def distribution(self, state, forced):
        return {RIGHT: 0.5, WRONG: 0.5} if forced else {CT if len(state.history) == 1 else CBC: 1.0}


def process(actor, continues, seed=5, **credit):
    settings, env = problem(credit={"select_all": True, **credit})
    return env, ProcessReward(env, actor, continues, settings.credit, settings.utility, seed)


def score(made, trajectories, iteration=0):
    return asyncio.run(made.score([trajectories], iteration))[0]


def test_the_least_recently_stored_state_goes_first(case):
    env, made = process(ToyPolicy(), ToyPolicy(), select_all=True, cache={"capacity": 2})
    score(made, group(env, ToyPolicy(), case))
    first = list(made.cache)
    made.cache[first[0]] = made.cache[first[0]]
    made.cache["another"] = Entry()
    assert set(made.cache) == {first[0], "another"}


def test_reading_a_state_makes_it_the_latest(case):
    env, made = process(ToyPolicy(), ToyPolicy(), cache={"grow": 0, "reuse_group": "none"})
    groups = [group(env, ToyPolicy(), case.model_copy(update={"note_id": f"T-{k}"}), seed=k) for k in range(2)]
    for k in (0, 1, 0):
        score(made, groups[k], k)
    names = [made.cache.popitem()[0][0] for _ in range(len(made.cache))]
    assert names == sorted(names, reverse=True) and set(names) == {"T-0", "T-1"}


def test_the_cache_keeps_what_was_drawn_and_no_suffix_of_the_group(case):
    env, made = process(ToyPolicy(), ToyPolicy())
    report = score(made, group(env, ToyPolicy(), case, n=8))
    assert report.counts["suffixes"] > 0
    assert sum(len(entry.continuations) for entry in made.cache.values()) == report.counts["fresh"]


def test_no_continuation_of_a_state_is_drawn_twice_not_even_after_a_failure(case):
    frozen = Steady(failures=1)
    env, made = process(Steady(), frozen, cache={"reuse_group": "none"})
    for iteration in range(4):
        score(made, group(env, Steady(), case, n=1), iteration)
    numbers = [k for state, _, _, asked in frozen.requests for k in asked if len(state.history) == 1]
    assert numbers == list(range(10))  # four that failed, four, and one more at each further reading


@pytest.mark.parametrize(
    ("same", "scope", "kept"), [(False, "run", True), (False, "batch", False), (True, "run", False)]
)
def test_values_are_kept_over_iterations_only_of_a_policy_that_stays_the_same(case, same, scope, kept):
    actor = ToyPolicy()
    env, made = process(actor, actor if same else ToyPolicy(), cache={"scope": scope})
    trajectories = group(env, actor, case)
    score(made, trajectories, 0)
    assert (score(made, trajectories, 1).counts["cached"] > 0) is kept


@pytest.mark.parametrize(
    ("name", "copies", "kept"),
    [
        ("frozen_init", [1, 1, 1, 1], [False, True, True, True]),
        ("current", [0, 0, 0, 0], [False, False, False, False]),
    ],
)
def test_a_run_keeps_values_as_long_as_its_policy_does_also_over_an_interruption(case, name, copies, kept):
    settings, env = problem(credit={"select_all": True, "continuation": {"policy": name}})
    made, whole, parts = [], [], []

    def other():
        made.append(ToyPolicy())
        return made[-1]

    def algorithm():
        return Cdpr(Context(settings, env, ToyPolicy(), other, 0))

    def iterate(running, iteration):
        scored = asyncio.run(score_groups(running, [group(env, ToyPolicy(), case)], iteration))
        return [advantages.decisions for advantages in scored], running.finish_batch(scored)

    running, seen = algorithm(), []
    for iteration in range(4):
        whole.append(iterate(running, iteration))
        seen.append(len(made))
    assert seen == copies and [metrics["credit/cached"] > 0 for _, metrics in whole] == kept
    state = None
    for iteration in range(4):
        running = algorithm()
        if state:
            running.load_state_dict(state)
        parts.append(iterate(running, iteration))
        state = running.state_dict()
    assert parts == whole


def test_the_strict_rule_takes_k_from_the_cache_and_draws_all_where_some_are_missing(case):
    frozen = Steady()
    env, made = process(Steady(), frozen, cache={"fill": "strict", "grow": 0, "reuse_group": "none"})
    trajectories = group(env, Steady(), case, n=1)
    assert [score(made, trajectories, k).counts["fresh"] for k in range(2)] == [4, 0]
    [(key, entry)] = made.cache.items()
    made.cache[key] = Entry(4, entry.continuations[:3])  # as after a failure
    assert score(made, trajectories, 2).counts["fresh"] == 4
    assert made.cache[key].drawn == 8 and len(made.cache[key].continuations) == 4


@pytest.mark.parametrize(("rule", "reused"), [("none", [0, 0, 0]), ("branching", [0, 1, 0]), ("every", [2, 1, 0])])
def test_suffixes_are_reused_behind_the_states_that_the_rule_names(case, rule, reused):
    """Both trajectories order a blood count; then one orders a CT and the other diagnoses."""
    env, made = process(ToyPolicy(), ToyPolicy(), cache={"reuse_group": rule}, select_disagreed=False)
    trajectories = [asyncio.run(run_episode(env, Script(*lines), case, 0))
                    for lines in ((CBC, CT, RIGHT), (CBC, WRONG))]  # fmt: skip
    report = score(made, trajectories)
    by_evidence = {len(state.evidence): state for state in report.states if len(state.visits)}
    taken = [by_evidence[0].candidates, by_evidence[1].candidates, by_evidence[2].candidates]
    names = ("Complete Blood Count", "CT Abdomen and Pelvis", "")
    suffixes = [sum(c.suffixes for c in candidates if c.action[1] == name)
                for candidates, name in zip(taken, names, strict=True)]  # fmt: skip
    assert suffixes == reused


def test_tokens_of_continuations_are_no_probes_also_where_the_current_policy_continues(case):
    class Spelt(ToyPolicy):
        async def sample(self, state, numbers, forced, seed):
            turns = await super().sample(state, numbers, forced, seed)
            return [Turn(turn.text, (), tuple(map(ord, turn.text)), (0.0,) * len(turn.text)) for turn in turns]

    reports = []
    for current in (True, False):
        actor = Spelt()
        env, made = process(actor, actor if current else Spelt())
        reports.append(score(made, group(env, actor, case)))
    assert reports[0].counts["probe_tokens"] == reports[1].counts["probe_tokens"] > 0
    assert 0 < reports[0].counts["continuation_tokens"] <= reports[1].counts["continuation_tokens"]


def test_a_pool_counts_every_continuation_that_did_not_come_back(case):
    """Onward never diagnoses by itself: the group's two suffixes are cut after one decision, and a diagnosis is drawn
    for each."""
    env, made = process(Onward(), Onward(failures=1), horizon=1, cache={"reuse_group": "every"}, continuations=5)
    trajectories = [asyncio.run(run_episode(env, Script(CBC, CT, CBC, RIGHT), case, 0)) for _ in range(2)]
    credit = made.open_group(trajectories, 0)
    asyncio.run(credit.score())
    [behind_cbc, *_] = [pool.result() for pool in credit.pools.values()]
    assert (len(behind_cbc.own), len(behind_cbc.fresh), behind_cbc.failed) == (1, 3, 1)


def test_trajectories_that_are_not_merged_share_no_pool(case):
    env, made = process(ToyPolicy(), ToyPolicy(), merge="none", select_disagreed=False)
    trajectories = [asyncio.run(run_episode(env, Script(CBC, RIGHT), case, 0)) for _ in range(3)]
    made.continuation_policy = Steady()
    credit = made.open_group(trajectories, 0)
    asyncio.run(credit.score())
    assert sum(evidence == (("result", "Complete Blood Count"),) for _, evidence, _ in credit.pools) == 3


def test_the_strict_rule_counts_suffixes_and_cached_continuations_together(case):
    env, made = process(Steady(), Steady(), cache={"fill": "strict", "grow": 0, "reuse_group": "every"})
    trajectories = group(env, Steady(), case, n=1)
    score(made, trajectories)
    [(key, entry)] = made.cache.items()
    made.cache[key] = Entry(4, entry.continuations[:3])
    [state] = [state for state in score(made, trajectories, 1).states if not state.evidence]
    [candidate] = state.candidates
    assert (candidate.suffixes, candidate.cached, candidate.fresh) == (1, 3, 0)


@pytest.mark.parametrize(
    ("scope", "merge", "streams"), [("off", "none", 3), ("batch", "none", 1), ("off", "ordered", 1)]
)
def test_states_have_probes_of_their_own_where_nothing_is_shared(case, scope, merge, streams):
    actor = Recording()
    env, made = process(actor, ToyPolicy(), merge=merge, cache={"scope": scope})
    score(made, group(env, ToyPolicy(), case, n=3))
    assert len({seed for state, _, seed, _ in actor.requests if not state.history}) == streams


def test_clipped_rewards_are_counted(case):
    reports = []
    for clip in (100.0, 0.3):
        env, made = process(ToyPolicy(), ToyPolicy(), clip=clip)
        reports.append(score(made, group(env, ToyPolicy(), case)))
    whole, cut = reports
    rewards = [r for steps in whole.process for r in steps if r is not None]
    assert whole.counts["clipped"] == 0 < cut.counts["clipped"] == sum(abs(r) > 0.3 for r in rewards) < len(rewards)


def test_random_numbers_belong_to_policy_state_and_run(case):
    def asked(seed=5):
        """Seeds of the requests to actor and frozen policy, first and in another iteration."""
        actor, frozen = Recording(), Recording()
        env, made = process(actor, frozen, seed, samples=20, cache={"reuse_group": "none"})
        trajectories, found = group(env, ToyPolicy(), case), []
        for iteration in (0, 1):
            made.cache.clear()
            before = len(actor.requests), len(frozen.requests)
            score(made, trajectories, iteration)
            found.append((actor.seeds(before[0]), frozen.seeds(before[1])))
        for policy in (actor, frozen):
            where = {seed: (state.key, forced) for state, forced, seed, _ in policy.requests}
            assert all(where[seed] == (state.key, forced) for state, forced, seed, _ in policy.requests)
        return found

    (actor, frozen), (later_actor, later_frozen) = asked()
    assert actor and frozen and not actor & frozen
    assert not actor & later_actor and frozen == later_frozen
    assert not (actor | frozen) & set.union(*asked(seed=6)[0])


@pytest.mark.parametrize(("scope", "times"), [("batch", 1), ("off", 2)])
def test_without_cache_no_two_evaluations_share_a_reply(case, scope, times):
    """The state behind CBC and CT is reached by the continuations of either action."""
    frozen = Onward()
    env, made = process(Onward(), frozen, cache={"scope": scope, "reuse_group": "none"}, horizon=2)
    score(made, group(env, Onward(), case, n=1))
    found = {seed for state, forced, seed, _ in frozen.requests if state.prompt_key[1:] == (CBC, CT) and not forced}
    assert len(found) == times


def test_a_forced_diagnosis_does_not_count_in_the_horizon_of_a_suffix(case):
    settings, env = problem(
        environment={"max_turns": 3},
        credit={"select_all": True, "horizon": 1, "cache": {"long_suffixes": "drop", "reuse_group": "every"}},
    )
    made = ProcessReward(env, Onward(), Onward(), settings.credit, settings.utility, 0)
    trajectories = group(env, Onward(), case, n=3)
    assert all(len(t.steps) == 3 and t.forced for t in trajectories)  # blood count, CT, forced: H = 1 after the first
    assert score(made, trajectories).states[0].candidates[0].suffixes == 3


def test_suffixes_that_are_cut_at_one_state_end_independently(case):
    env, made = process(Onward(), Onward(), horizon=1, continuations=16, cache={"reuse_group": "every"})
    report = score(made, group(env, Onward(), case, n=16))
    [candidate] = report.states[0].candidates
    assert candidate.suffixes == 16 and 0 < candidate.correct < 1


def test_replies_belong_to_the_words_that_were_read_and_to_whether_the_turn_is_forced(case):
    _, env = problem()
    policy = Recording()
    draws = Draws(env, policy, 0, ("x",))
    first = env.initial(case)
    states = [first.after(env.step(first, Turn(f"REQUEST_TEST: {name}"))) for name in ("CBC", "Complete Blood Count")]
    assert states[0].key == states[1].key
    for state in states * 2:
        asyncio.run(draws.draw_steps(state, (0,)))
    assert [state.prompt_key for state, *_ in policy.requests] == [state.prompt_key for state in states]
    hasty = Draws(env, HastyPolicy(), 0, ("x",))
    asyncio.run(hasty.draw_steps(states[0].after(env.step(states[0], Turn(CT))), range(8)))
    ends = asyncio.run(hasty.rollout(states[0].after(env.step(states[0], Turn(CT))), range(8), 0))
    assert all(end.correct and not end.effort.invalid for end in ends.values())


@pytest.mark.parametrize("error", [ModelFailure, TimeoutError])
def test_a_reply_that_does_not_come_is_counted_whatever_the_reason(case, error):
    _, env = problem()
    draws = Draws(env, Recording(1, error), 0, ("x",))
    assert asyncio.run(draws.rollout(env.initial(case), range(3))) == {} and draws.failed == 3


class Spelt(Script):
    async def sample(self, state, numbers, forced, seed):
        turns = await super().sample(state, numbers, forced, seed)
        return [Turn(turn.text, (), tuple(map(ord, turn.text)), (0.0,) * len(turn.text)) for turn in turns]


@pytest.mark.parametrize("error", [ModelFailure, TimeoutError])
def test_a_judge_that_does_not_answer_costs_the_reply_that_it_was_asked_about_alone(case, error, monkeypatch):
    class Alternating(Spelt):
        async def sample(self, state, numbers, forced, seed):
            replies = {k: await Spelt(WRONG if k == 1 else RIGHT).sample(state, (k,), forced, seed) for k in numbers}
            return [turn for [turn] in replies.values()]

    _, env = problem()
    judge = env.judge.prepare

    async def prepare(predicted, truth):
        if predicted in WRONG:
            raise error("no answer")
        await judge(predicted, truth)

    monkeypatch.setattr(env.judge, "prepare", prepare)
    draws = Draws(env, Alternating(), 0, ("x",))
    ends = asyncio.run(draws.rollout(env.initial(case), range(4)))
    assert [*ends] == [0, 2, 3] and draws.failed == 1 and len(draws.journal) == 3
    assert draws.tokens == len(WRONG) + 3 * len(RIGHT)


def test_tokens_are_those_of_every_reply(case):
    _, env = problem()
    draws = Draws(env, Spelt(CBC, RIGHT), 0, ("x",))
    asyncio.run(draws.rollout(env.initial(case), range(3)))
    assert draws.tokens == 3 * len(CBC + RIGHT)
