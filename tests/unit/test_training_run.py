"""Which cases a run visits with which seeds, who continues, and what the loss is a mean of."""

from __future__ import annotations

import asyncio
import math

import pytest
import torch
from toy import ToyPolicy, logprobs_alone, problem, update_policy

from cdpr.environment import State, run_episode
from cdpr.llm.types import Completion, Model
from cdpr.settings import SettingsError, merge, parse_settings
from cdpr.training.algorithm import Context
from cdpr.training.algorithms.cdpr import Cdpr
from cdpr.training.torch import loop
from cdpr.training.torch.loop import iterate
from cdpr.training.torch.optimisers import AdamW
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import Sample
from cdpr.training.torch.weights import load_model
from cdpr.training.training_run import TrainingRun, select_cases

TINY = {"hidden_size": 32, "heads": 2, "intermediate_size": 64, "vocab_size": 330}


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    settings = parse_settings({"policy": {"tiny": TINY}})
    text = ["REQUEST_TEST: Complete Blood Count", "FINAL_DIAGNOSIS: Acute appendicitis"] * 50
    return build_tiny_policy(tmp_path_factory.mktemp("tiny") / "policy", settings.policy.tiny, text)


def cases(case, count, split="train"):
    return [case.model_copy(update={"note_id": f"{split}-{k}", "split": split}) for k in range(count)]


PLAN = {
    "training": {"prompts_per_batch": 2, "mini_batch_prompts": 2, "group_size": 2,
                 "learning_rate": 1e-2},
    "warm_start": {"cases": 1},
}  # fmt: skip


def run(case, policy, seed=0, count=8, **changes):
    base = PLAN | {"policy": {"tiny": TINY, "max_turn_tokens": 6}, "environment": {"max_turns": 2}}
    return TrainingRun(parse_settings(merge(base, changes)), cases(case, count), policy, seed)


def test_reinforcement_learning_visits_the_last_cases_and_none_that_was_demonstrated(case):
    plan = {"training": {"prompts_per_batch": 3}, "warm_start": {"cases": 4}}
    mixed = [*cases(case, 2, "validation"), *cases(case, 8), *cases(case, 1, "test")]
    train, validation = select_cases(parse_settings(plan), mixed)
    assert [c.note_id for c in train] == ["train-4", "train-5", "train-6", "train-7"]
    assert [c.note_id for c in validation] == ["validation-0", "validation-1"]
    with pytest.raises(ValueError, match="2 training cases are left"):
        select_cases(parse_settings(plan), cases(case, 6))


def test_an_epoch_visits_every_case_once_in_an_order_of_its_own(case, policy):
    made = run(case, policy, training={"prompts_per_batch": 3, "steps": None, "epochs": 4})
    assert len(made.train) == 7 and made.steps == 8  # the seventh case of each epoch is left out
    order = made.all_indices()
    epochs = [tuple(order[k : k + 6]) for k in range(0, 24, 6)]
    assert all(len(set(epoch)) == 6 for epoch in epochs) and len(set(epochs)) == 4
    assert order == run(case, policy, training={"prompts_per_batch": 3, "steps": 8}).all_indices()
    assert order != run(case, policy, seed=1, training={"prompts_per_batch": 3, "steps": 8}).all_indices()


class Talkative(Model):
    """Requests one examination after the other, in replies as long as they may be."""

    def __init__(self, tokenizer):
        self.tokenizer, self.lengths = tokenizer, []

    async def sample(self, prompt_ids, samples, sampling, seed):
        self.lengths.append(sampling.max_tokens)
        ids = tuple(self.tokenizer.encode(f"REQUEST_TEST: Report {len(self.lengths)}"))
        ids += (ids[0],) * (sampling.max_tokens - len(ids))
        text = f"REQUEST_TEST: Report {len(self.lengths)}" if len(ids) > 4 else "?"
        return [Completion(text, ids, (0.0,) * len(ids), "length") for _ in samples]


@pytest.mark.parametrize("length", [1, 12])
def test_long_results_force_a_diagnosis_while_a_whole_turn_is_left(case, policy, length):
    results = {f"Report {k}": "no change since the last one, " * length for k in range(1, 9)}
    prices = dict.fromkeys(results, 1.0)
    long = case.model_copy(update={"key_pertinent_results_dict": results, "exam_cost_map": prices})
    limits = {"tiny": TINY, "max_turn_tokens": 40, "max_response_tokens": 300}
    made = TrainingRun(parse_settings({"policy": limits, **PLAN}), cases(case, 8), policy, 0)
    model = Talkative(made.tokenizer)
    workup = asyncio.run(run_episode(made.environment, made.make_agent(model), long, 0))
    assert workup.forced and 2 <= len(workup.steps) < 8
    assert set(model.lengths) == {40}, "a turn was cut short by the response budget"
    *_, decided, forced = (len(step.turn.prompt_ids) - len(workup.steps[0].turn.prompt_ids) for step in workup.steps)
    assert decided <= 300 - 2 * 40 < forced
    with pytest.raises(SettingsError, match="fewer than two turns"):
        parse_settings({"policy": {"max_turn_tokens": 40, "max_response_tokens": 79}})


def test_every_workup_of_every_run_has_its_own_seed(case, policy):
    runs = [run(case, policy, seed) for seed in range(2)]
    seeds = [r.episode_seed(c, step, n) for r in runs for c in r.train for step in range(3) for n in range(4)]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("name", ["frozen_init", "current"])
def test_the_policy_that_continues_is_the_one_that_is_set(name):
    settings, env = problem(credit={"continuation": {"policy": name}})
    policies = {key: ToyPolicy() for key in ("current", "frozen_init")}
    made = Cdpr(Context(settings, env, policies["current"], lambda: policies["frozen_init"], 0))
    assert made.process_reward.continuation_policy is policies[name]
    assert made.process_reward.policy is policies["current"]


def continued(trainer, case):
    """Replies of the continuation policy at a first state."""
    agent = trainer.algorithm.process_reward.continuation_policy
    agent.refresh()  # what it keeps to be quick may change the last bit
    return asyncio.run(agent.sample(State(case), range(12), False, 3))


def test_frozen_continuations_stay_those_of_the_initial_policy_and_are_sampled(case, policy):
    trainer = Trainer(run(case, policy, credit={"select_all": True}))
    before = continued(trainer, case)
    for _ in range(2):
        iterate(trainer)
    assert continued(trainer, case) == before
    assert asyncio.run(trainer.policy.sample(State(case), range(12), False, 3)) != before
    assert len({turn.text for turn in before}) > 1


def test_rollouts_are_sampled_at_their_temperature_and_validation_is_greedy(case, policy, monkeypatch):
    used = []
    act = TrainingRun.make_agent

    def agent(self, model, temperature=None):
        used.append(act(self, model, temperature))
        return used[-1]

    monkeypatch.setattr(TrainingRun, "make_agent", agent)
    made = run(case, policy, training={"temperature": 0.7, "algorithm": "grpo"})
    made.validation = cases(case, 1, "validation")
    trainer = Trainer(made)
    assert trainer.policy.temperature == 0.7 and [a.temperature for a in used] == [0.7]
    row = trainer.validate()
    assert used[-1].temperature == 0.0 and row["tokens"] == 0
    generated = iterate(trainer)
    assert generated["tokens"] == generated["rollout/tokens"] > 0  # validation is not counted


def samples(model, advantages, lengths, temperature=1.0, shift=0.0, prompt=range(20, 30)):
    """One sample for each advantage, of so many trained tokens, drawn from the model itself up to ``shift``."""
    made = []
    for k, (a, n) in enumerate(zip(advantages, lengths, strict=True)):
        ids = (*prompt, *range(40 + 20 * k, 40 + 20 * k + n))
        positions = tuple(range(len(ids) - n, len(ids)))
        with torch.no_grad():
            old = logprobs_alone(model, [ids], [positions], temperature) - shift
        made.append(Sample(ids, positions, tuple(old.tolist()), (a,) * n, (1.0,) * n))
    return made


@pytest.mark.parametrize(("rule", "loss"), [("token_mean", (8 - 2 * 3) / 10), ("sequence_sum", (8 - 2 * 3) / 2)])
def test_the_loss_is_a_mean_over_tokens_or_over_trajectories(policy, rule, loss):
    model = load_model(policy)
    training = parse_settings({"training": {"loss_aggregation": rule}}).training
    metrics = update_policy(model, training, [samples(model, (3.0, -1.0), (2, 8))])
    assert metrics["policy/loss"] == pytest.approx(loss, abs=1e-4)


def test_weights_of_the_loss_count_as_tokens(policy):
    model = load_model(policy)
    [one, other] = samples(model, (3.0, -1.0), (2, 8))
    half = Sample(other.ids, other.positions, other.old_logprobs, other.advantages, (0.5,) * 8)
    metrics = update_policy(model, parse_settings({}).training, [[one, half]])
    assert metrics["policy/loss"] == pytest.approx((4 - 6) / (2 + 4), abs=1e-4)


@pytest.mark.parametrize("rule", ["token_mean", "sequence_sum"])
def test_an_entropy_bonus_is_weighted_and_divided_as_the_policy_loss(policy, rule, monkeypatch):
    """The gradient is that of a loss by hand, one sequence at a time."""
    monkeypatch.setattr(loop, "MAX_GRAD_NORM", math.inf)
    model, by_hand, temperature, weights = load_model(policy), load_model(policy), 0.7, (1.0, 0.5, 2.0)
    made = samples(model, (3.0, -1.0, 0.0), (2, 8, 5), temperature)
    made = [sample._replace(weights=(w,) * len(sample.weights)) for sample, w in zip(made, weights, strict=True)]
    plan = {"loss_aggregation": rule, "temperature": temperature, "micro_batch": 2, "entropy_weight": 3.0}
    metrics = update_policy(model, parse_settings({"training": plan}).training, [made[:2], made[2:]])

    losses, entropies = [], []  # sums over the tokens of each sample
    for ids, positions, _, advantages, weights, _ in made:
        logits = by_hand.lm_head(by_hand.model(input_ids=torch.tensor([ids])).last_hidden_state)[0]
        drawn = torch.distributions.Categorical(logits=logits[[p - 1 for p in positions]] / temperature)
        logprobs = drawn.log_prob(torch.tensor([ids[p] for p in positions]))
        losses.append(-(torch.exp(logprobs - logprobs.detach()) * advantages[0] * weights[0]).sum())
        entropies.append((drawn.entropy() * weights[0]).sum())
    divisor = 2 * 1.0 + 8 * 0.5 + 5 * 2.0 if rule == "token_mean" else 3
    loss, entropy = sum(losses) / divisor, sum(entropies) / divisor
    (loss - 3.0 * entropy).backward()
    assert (metrics["policy/loss"], metrics["policy/entropy"]) == pytest.approx((loss.item(), entropy.item()), rel=1e-4)
    for parameter, expected in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.allclose(parameter.grad, expected.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_ratios_are_taken_at_the_temperature_of_the_rollouts(policy, shared):
    model = load_model(policy)
    training = parse_settings({"training": {"temperature": 0.5}}).training
    group = samples(model, (1.0, -1.0), (4, 4), temperature=0.5)
    groups = [group] if shared else [[sample] for sample in group]
    assert update_policy(model, training, groups)["policy/max_ratio_drift"] < 1e-4


def test_every_mini_batch_and_every_inner_epoch_is_a_step(policy):
    def drift(**training):
        model = load_model(policy)
        plan = parse_settings({"training": {"learning_rate": 1e-3, **training}}).training
        optimizer, two = (
            AdamW(model.parameters(), plan.learning_rate),
            samples(model, (1.0,), (6,), prompt=range(5, 25)),
        )
        metrics = update_policy(model, plan, [samples(model, (1.0,), (4,)), two], optimizer)
        steps = {int(state["step"]) for state in optimizer.states.values()}
        return metrics["policy/trained_tokens"], steps, metrics["policy/max_ratio_drift"] > 1e-4

    assert drift(mini_batch_prompts=2) == (10, {1}, False)
    assert drift(mini_batch_prompts=1) == (5, {2}, True)
    assert drift(mini_batch_prompts=2, inner_epochs=3) == (10, {3}, True)


def test_the_learning_rate_falls_by_half_a_cosine_over_the_run(policy):
    """The first step of AdamW is as long as its learning rate."""

    def length(progress, schedule):
        model = load_model(policy)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        plan = parse_settings({"training": {"learning_rate": 1e-3, "schedule": schedule}}).training
        update_policy(model, plan, [samples(model, (1.0,), (4,))], progress=progress)
        return max(float((a.detach() - b).abs().max()) for a, b in zip(model.parameters(), before, strict=True))

    constant = length(0.0, "constant")
    lengths = [length(progress, "cosine") / constant for progress in (0, 1 / 3, 1 / 2, 2 / 3, 1)]
    assert lengths == pytest.approx([1, 3 / 4, 1 / 2, 1 / 4, 0], abs=1e-3) and length(1.0, "constant") == constant


def test_what_is_clipped_is_counted_on_both_sides_and_the_gradient_is_bounded(policy, monkeypatch):
    monkeypatch.setattr(loop, "MAX_GRAD_NORM", 1e-3)
    model = load_model(policy)
    up, down = (samples(model, (1.0,), (4,), shift=s)[0] for s in (0.5, -0.5))
    metrics = update_policy(model, parse_settings({}).training, [[up, down]])
    assert metrics["policy/clipped_share"] == 1.0 and metrics["policy/grad_norm"] > 1e-3
    assert metrics["policy/max_ratio_drift"] == pytest.approx(math.exp(0.5) - 1, abs=1e-3)
    assert math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters())) <= 1.001e-3


@pytest.mark.parametrize("weight", [0.125, 1 / 64])
def test_loss_weights_that_sum_below_one_change_no_scale(policy, weight):
    """The loss is a weighted mean: the same weight on all tokens is none."""
    model = load_model(policy)
    [one] = samples(model, (3.0,), (4,))
    light = Sample(one.ids, one.positions, one.old_logprobs, one.advantages, (weight,) * 4)
    metrics = [update_policy(load_model(policy), parse_settings({}).training, [[s]]) for s in (one, light)]
    for name in ("policy/loss", "policy/grad_norm"):
        assert metrics[1][name] == pytest.approx(metrics[0][name], rel=1e-4)


@pytest.mark.parametrize("plan", [{"mini_batch_prompts": 1}, {"mini_batch_prompts": 2, "inner_epochs": 2}])
def test_a_gradient_that_is_not_finite_leaves_the_weights_before_the_step(policy, plan, monkeypatch):
    model = load_model(policy)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    training = parse_settings({"training": {"learning_rate": 1e-3, **plan}}).training
    step, calls = loop._take_step, []

    def second_is_infinite(model, optimizer, groups, plan):
        calls.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        bad = [[Sample(s.ids, s.positions, s.old_logprobs, (math.inf,) * len(s.weights), s.weights) for s in group]
               for group in groups]  # fmt: skip
        return step(model, optimizer, bad if len(calls) == 2 else groups, plan)

    monkeypatch.setattr(loop, "_take_step", second_is_infinite)
    with pytest.raises(FloatingPointError, match="before the step"):
        two = samples(model, (1.0,), (6,), prompt=range(5, 25))
        update_policy(model, training, [samples(model, (1.0,), (4,)), two])
    assert any(not torch.equal(calls[1][name], before[name]) for name in before), "the first mini-batch was a step"
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
