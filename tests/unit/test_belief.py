"""Credit from the policy's belief in the truth, and the comparators that it is measured with: against enumeration."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict

import pytest
import torch
from toy import CBC, RIGHT, ToyPolicy, appendicitis, exact_value

from cdpr.agents.policy import PolicyAgent
from cdpr.credit.belief import read_beliefs
from cdpr.environment import DiagnosticEnvironment, FinalDiagnosis, PromptBuilder, State, Turn, run_episode
from cdpr.environment.utility import weighted_utility
from cdpr.llm.sampler import InProcessSampler
from cdpr.settings import SettingsError, parse_settings
from cdpr.training.algorithm import Context, score_groups
from cdpr.training.algorithms.all_actions import AllActions
from cdpr.training.algorithms.belief_gain import BeliefGain
from cdpr.training.algorithms.gagpo import Gagpo
from cdpr.training.algorithms.igpo import Igpo
from cdpr.training.algorithms.tree_grpo import TreeGrpo
from cdpr.training.torch.tiny import build_tiny_policy

STOP = 1  # the token of the decision to diagnose


class Spelt(ToyPolicy):
    """The toy policy with tokens: a request is one, a diagnosis its verb and its name."""

    def turn(self, state, text, forced):
        p = self.distribution(state, forced)
        prompt = (7, *range(len(state.history)), *([STOP] if forced else []))
        if not text.startswith("FINAL"):
            return Turn(text, prompt, (2 + sum(map(ord, text)) % 997,), (math.log(p[text]),))
        stop = sum(value for reply, value in p.items() if reply.startswith("FINAL"))
        name = (3 + (text == RIGHT),), (math.log(p[text] / stop),)
        verb = ((), ()) if forced else ((STOP,), (math.log(stop),))
        return Turn(text, prompt, *(a + b for a, b in zip(verb, name, strict=True)))

    async def sample(self, state, numbers, forced, seed):
        turns = await super().sample(state, numbers, forced, seed)
        return [self.turn(state, turn.text, forced) for turn in turns]

    async def score_diagnoses(self, state, names, forced):
        return [self.turn(state, f"FINAL_DIAGNOSIS: {name}", forced) for name in names]

    def name_start(self, turn):
        return int(turn.token_ids[0] == STOP)


def context(**changes):
    settings = parse_settings({"utility": {"cost_unit_usd": 100.0}, **changes})
    policy = Spelt()
    return Context(settings, DiagnosticEnvironment(settings.environment), policy, lambda: policy, 0)


def all_workups(ctx, state=None):
    """Every trajectory with its probability."""
    env, policy = ctx.environment, ctx.policy
    state = state or env.initial(appendicitis())
    forced = env.must_diagnose(state)
    for text, p in policy.distribution(state, forced).items():
        step = env.step(state, policy.turn(state, text, forced))
        if forced or isinstance(step.action, FinalDiagnosis):
            yield p, env.finish(state, step, forced)
        else:
            yield from ((p * q, workup) for q, workup in all_workups(ctx, state.after(step)))


def expected_coefficients(ctx, algorithm):
    """E[sum of A over the tokens of an action at a state], by state and token: the policy gradient's coefficients."""
    rule, sums, visits = algorithm(ctx), defaultdict(float), defaultdict(float)
    for p, workup in all_workups(ctx):
        [scored] = asyncio.run(score_groups(rule, [[workup]], 0))
        for state, step, value in zip(workup.states, workup.steps, scored.decisions[0], strict=True):
            visits[state.key] += p
            row = value if isinstance(value, tuple) else (value,) * len(step.turn.token_ids)
            for token, advantage in zip(step.turn.token_ids, row, strict=True):
                sums[state.key, token] += p * advantage
    return {(key, token): total / visits[key] for (key, token), total in sums.items()}


def gradient(coefficients, key, probabilities):
    """The gradient for the logits of one softmax: c_a - p_a sum(c)."""
    row = torch.tensor([coefficients.get((key, token), 0.0) for token in probabilities], dtype=torch.float64)
    return row - torch.tensor(list(probabilities.values()), dtype=torch.float64) * row.sum()


def softmaxes(policy, state):
    """The probabilities of the next token at a state, and of the name behind the verb."""
    first, names = defaultdict(float), {}
    for text, p in policy.distribution(state, False).items():
        turn = policy.turn(state, text, False)
        first[turn.token_ids[0]] += p
        if len(turn.token_ids) == 2:
            names[turn.token_ids[1]] = math.exp(turn.logprobs[1])
    return first, names


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_belief_gain_is_the_gradient_of_the_value_that_it_names(decay):
    """Without decay that of acting once and then diagnosing, at every state; with decay 1 that of the whole workup."""
    ctx = context(comparators={"correctness_weight": 3.0}, training={"normalise": "none", "options": {"decay": decay}})
    env, policy, worth = ctx.environment, ctx.policy, weighted_utility(ctx.settings)
    coefficients = expected_coefficients(ctx, BeliefGain)
    root = env.initial(appendicitis())
    behind = root.after(env.step(root, policy.turn(root, CBC, False)))
    for state in (root, behind):
        [belief] = asyncio.run(read_beliefs(policy, [state], "probability")).values()
        action_values = defaultdict(float)
        for text in policy.distribution(state, False):
            turn = policy.turn(state, text, False)
            step = env.step(state, turn)
            if isinstance(step.action, FinalDiagnosis):
                action_values[turn.token_ids[0]] = belief
            elif decay:  # U with correctness weighted, over w
                weights = ctx.settings.utility.model_copy(
                    update={name: getattr(ctx.settings.utility, name) / 3 for name in
                            ("lambda_test", "lambda_cost", "lambda_na")})  # fmt: skip
                action_values[turn.token_ids[0]] = exact_value(env, policy, state, weights, text=text)
            else:
                after = state.after(step)
                [ahead] = asyncio.run(read_beliefs(policy, [after], "probability")).values()
                action_values[turn.token_ids[0]] = worth(ahead, step.effort) / 3
        first, names = softmaxes(policy, state)
        value = sum(p * action_values[token] for token, p in first.items())
        exact = torch.tensor([p * (action_values[token] - value) for token, p in first.items()], dtype=torch.float64)
        assert torch.allclose(gradient(coefficients, state.key, first), exact, atol=1e-9)
        right = names[4]
        assert right == pytest.approx(belief)
        assert gradient(coefficients, state.key, names).tolist() == pytest.approx(
            [first[STOP] * p * ((token == 4) - right) for token, p in names.items()]
        )
        if not decay:  # the decision to diagnose is the zero point
            assert coefficients[state.key, STOP] == 0.0


def workups(ctx, n=4, seed=0):
    case = appendicitis()
    return [asyncio.run(run_episode(ctx.environment, ctx.policy, case, seed * 100 + i)) for i in range(n)]


def scored(ctx, algorithm, group):
    rule = algorithm(ctx)
    [made] = asyncio.run(score_groups(rule, [group], 0))
    return made, rule.finish_batch([made])


@pytest.mark.parametrize(("reading", "weigh"), [("probability", lambda phi: phi), ("likelihood", lambda phi: 1.0)])
def test_the_reading_loss_raises_the_true_name_at_every_visit(reading, weigh):
    ctx = context(training={"options": {"reading": reading, "reading_weight": 0.25, "choice": False}})
    group = workups(ctx, n=6)
    made, metrics = scored(ctx, BeliefGain, group)
    assert {a for row in made.decisions for a in row} == {0.0}
    visits = sum(len(w.steps) - w.forced for w in group)
    total = 0.0
    for other in made.alternatives:
        [turn], [advantage], [weights] = other.turns, other.advantages, other.weights
        phi = math.exp(turn.logprobs[-1])
        assert turn.text == RIGHT and advantage == 1.0 and weights[0] == 0.0
        times = weights[1] / (0.25 * weigh(phi))
        assert times == pytest.approx(round(times))
        total += times
    assert total == pytest.approx(visits)
    assert 0.0 < metrics["credit/belief"] < 1.0


def test_readings_are_trained_at_the_temperature_of_their_scores():
    def plan(temperature, reading):
        return BeliefGain(context(training={"temperature": temperature, "options": {"reading": reading}}))

    plan(1.0, "probability"), plan(0.7, "none")
    with pytest.raises(SettingsError, match=r"training\.temperature"):
        plan(0.7, "probability")


def test_igpo_sums_normalised_gains_from_each_turn_on():
    ctx = context(utility={"lambda_test": 0.0, "lambda_cost": 0.0, "lambda_na": 0.0})
    group = workups(ctx)
    made, _ = scored(ctx, Igpo, group)
    beliefs = asyncio.run(read_beliefs(ctx.policy, [s for w in group for s in w.states], "per_token"))
    gains = [[beliefs[b.key] - beliefs[a.key] for a, b in zip(w.states, w.states[1:], strict=False)] for w in group]
    rewards = [[*row, float(w.correct)] for row, w in zip(gains, group, strict=True)]
    flat = torch.tensor([r for row in rewards for r in row], dtype=torch.float64)
    for row, advantages in zip(rewards, made.decisions, strict=True):
        normalised = [(r - float(flat.mean())) / float(flat.std(correction=0)) for r in row]
        assert advantages == pytest.approx([sum(normalised[t:]) for t in range(len(row))], abs=1e-4)


@pytest.mark.parametrize("rule", [Igpo, Gagpo])
def test_advantages_do_not_depend_on_the_unit_of_the_utility(rule):
    """A correct diagnosis that is worth three times as much, with three times the prices, teaches the same."""

    def advantages(unit):
        costs = {"lambda_test": 0.05 * unit, "lambda_cost": 0.3 * unit, "lambda_na": 0.2 * unit}
        ctx = context(utility={"cost_unit_usd": 100.0, **costs}, comparators={"correctness_weight": unit})
        return [a for row in scored(ctx, rule, workups(ctx))[0].decisions for a in row]

    assert advantages(3.0) == pytest.approx(advantages(1.0), abs=1e-4)


@pytest.mark.parametrize(("measure", "belief"), [("per_token", 0.6), ("probability", 0.4**3 + 0.6)])
def test_a_belief_is_that_of_the_likeliest_name_or_of_all_names(measure, belief):
    class Names:
        async def score_diagnoses(self, state, names, forced):
            assert names == ["Nephrolithiasis", "Kidney stone"] and forced
            return [Turn(names[0], (), (1, 2, 3), (math.log(0.4),) * 3), Turn(names[1], (), (4,), (math.log(0.6),))]

    case = appendicitis().model_copy(update={"diagnosis_results": "Kidney stone"})
    state = DiagnosticEnvironment(parse_settings({}).environment).initial(case)
    assert asyncio.run(read_beliefs(Names(), [state], measure)) == {state.key: pytest.approx(belief)}


def test_gagpo_takes_the_groups_mean_return_for_the_value_of_a_state():
    """With lambda 1 the advantage is the return to go less that mean."""
    ctx = context(training={"options": {"decay": 1.0}})
    group, worth = workups(ctx, n=8), weighted_utility(ctx.settings)
    returns, raw = defaultdict(list), []
    for w in group:
        for t, state in enumerate(w.states):
            returns[state.key].append(worth(w.correct, w.effort(t)))
    for w in group:
        raw += [worth(w.correct, w.effort(t)) - sum(row) / len(row)
                for t, state in enumerate(w.states) if (row := returns[state.key])]  # fmt: skip
    flat = torch.tensor(raw, dtype=torch.float64)
    made, _ = scored(ctx, Gagpo, group)
    expected = (flat - flat.mean()) / flat.std(correction=0)
    assert [a for row in made.decisions for a in row] == pytest.approx(expected.tolist(), abs=1e-4)


def test_tree_grpo_counts_a_shared_decision_once_for_every_workup_behind_it():
    ctx = context(training={"options": {"nodes": 2}})
    group = workups(ctx, n=3)
    made, _ = scored(ctx, TreeGrpo, group)
    assert len(made.alternatives) == 6
    for i, workup in enumerate(group):
        leaves = [other for other in made.alternatives if other.i == i]
        prompts = [step.turn.prompt_ids for step in workup.steps]
        starts = [prompts.index(other.turns[0].prompt_ids) for other in leaves]
        own = made.decisions[i][-1] * made.weights[i][-1]
        own -= sum(other.advantages[0] for other, start in zip(leaves, starts, strict=True) if start >= len(prompts))
        for t in range(len(workup.steps)):
            through = [other.advantages[0] for other, start in zip(leaves, starts, strict=True) if start > t]
            assert made.weights[i][t] == 1 + len(through)
            assert made.decisions[i][t] * made.weights[i][t] == pytest.approx(own + sum(through))
    # Each workup once: advantages within trees and over all of them sum to zero.
    total = sum(made.decisions[i][-1] for i in range(3)) + sum(o.advantages[0] for o in made.alternatives)
    assert total == pytest.approx(0.0, abs=1e-9)


def test_all_actions_with_beliefs_at_the_leaves_look_one_step_ahead():
    ctx = context(training={"options": {"continuations": 6, "leaves": "belief"}})
    env, group, worth = ctx.environment, workups(ctx, n=2), weighted_utility(ctx.settings)
    made, _ = scored(ctx, AllActions, group)
    root = env.initial(appendicitis())
    before, after = (
        next(iter(asyncio.run(read_beliefs(ctx.policy, [state], "probability")).values()))
        for state in (root, root.after(env.step(root, ctx.policy.turn(root, CBC, False))))
    )
    replies = [(w.steps[0].turn, row[0]) for w, row in zip(group, made.decisions, strict=True)]
    prompt = group[0].steps[0].turn.prompt_ids
    replies += [(o.turns[0], o.advantages[0]) for o in made.alternatives if o.turns[0].prompt_ids == prompt]
    by_text = {turn.text: value for turn, value in replies}
    stop = next(value for text, value in by_text.items() if text.startswith("FINAL"))
    effort = env.step(root, ctx.policy.turn(root, CBC, False)).effort
    samples = 2 + 6
    assert by_text[CBC] - stop[0] == pytest.approx((worth(after, effort) - before) * samples / (samples - 1))
    assert stop[1] in (pytest.approx(1 - before), pytest.approx(-before))
    shares = [w / (2 / samples) for w in (made.weights[0][0], made.weights[1][0])]
    shares += [o.weights[0] / (2 / samples) for o in made.alternatives if o.turns[0].prompt_ids == prompt]
    assert shares == pytest.approx([round(share) for share in shares]), "every sample is in the loss"


def test_a_policy_scores_a_diagnosis_as_it_would_sample_it(tmp_path):
    case = appendicitis()
    settings = parse_settings({"policy": {"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64}}})
    text = " ".join(case.key_pertinent_results_dict.values()) + case.case_summary
    build_tiny_policy(tmp_path / "policy", settings.policy.tiny, [text])
    sampler = InProcessSampler.from_folder(tmp_path / "policy")
    agent = PolicyAgent(
        sampler, PromptBuilder(settings.environment.prompt, sampler.tokenizer, 2048), settings.policy, 1.0
    )
    state = State(case)
    for forced in (True, False):
        [turn] = asyncio.run(agent.score_diagnoses(state, ["Acute appendicitis"], forced))
        assert turn.text == RIGHT and turn.prompt_ids == agent.prompts.prompt_ids(state, forced)
        name = turn.token_ids[agent.name_start(turn) :]
        assert (
            sampler.tokenizer.decode(name).strip() == "Acute appendicitis" and name[-1] == sampler.tokenizer.end_of_turn
        )
        again = asyncio.run(sampler.score(turn.prompt_ids, [turn.token_ids]))
        assert again == [turn.logprobs]
    for text in (
        "Hmm. ACTION: Final diagnosis\nDiagnosis: Acute appendicitis",
        "** FINAL_DIAGNOSIS : Acute appendicitis",
    ):
        ids = tuple(sampler.tokenizer.encode(text))  # the verb in another spelling, behind a thought
        start = agent.name_start(Turn(text, (1, 2), ids))
        assert sampler.tokenizer.decode(ids[start:]).strip() == "Acute appendicitis" and start > 0
    [belief] = asyncio.run(read_beliefs(agent, [state], "probability")).values()
    forced = asyncio.run(agent.score_diagnoses(state, ["Acute appendicitis"], True))[0]
    assert belief == pytest.approx(math.exp(sum(forced.logprobs)))
