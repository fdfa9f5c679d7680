"""Advantages, loss and updates against their definitions."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
from pathlib import Path

import pytest
import torch
from toy import logprobs_alone, update_policy

from cdpr.agents.policy import PolicyAgent
from cdpr.environment import DiagnosticEnvironment, PromptBuilder, Turn, run_episode
from cdpr.llm.sampler import InProcessSampler
from cdpr.llm.tokenizer import ChatTokenizer
from cdpr.settings import merge, parse_settings
from cdpr.training.algorithm import Alternative, GroupAdvantages, group_relative, share_of_equal_groups
from cdpr.training.torch import update
from cdpr.training.torch.loop import iterate, train
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import (
    Sample,
    Segment,
    clipped_surrogate,
    make_samples,
    micro_batches,
    row_segments,
)
from cdpr.training.torch.weights import load_checkpoint, load_model, save_checkpoint
from cdpr.training.training_run import TrainingRun


def test_advantage_is_the_group_z_score_with_sample_deviation():
    scores = torch.tensor([[1.0, 0.0, 0.0, 1.0], [2.0, 2.0, 2.0, 2.0]])
    got = group_relative(scores)
    assert torch.allclose(got[0], torch.tensor([0.5, -0.5, -0.5, 0.5]) / (scores[0].std() + 1e-6))
    assert torch.equal(got[1], torch.zeros(4))
    uneven = torch.full((1, 3), 0.1, dtype=torch.float64)  # the mean of three tenths is not a tenth
    for rule in ("group_std", "none"):
        assert torch.equal(group_relative(uneven, rule), torch.zeros(1, 3, dtype=torch.float64))
    assert torch.allclose(group_relative(scores, "none"), scores - scores.mean(1, keepdim=True))


def test_a_group_of_equal_scores_teaches_nothing_and_is_counted():
    groups = [[1.0, 1.0, 1.0], [0.0, 1.0], [0.5]]
    idle = [group for group in groups if len(group) > 1 and not group_relative(torch.tensor([group])).any()]
    assert share_of_equal_groups(groups) == 2 / 3 and idle == groups[:1]
    assert (share_of_equal_groups([[1.0, 1.0]]), share_of_equal_groups([[0.0, 1.0]]), share_of_equal_groups([])) == (
        1.0,
        0.0,
        0.0,
    )


def test_surrogate_by_hand():
    logprobs = torch.log(torch.tensor([1.5, 0.5, 1.5, 0.5, 5.0]))
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    loss = clipped_surrogate(logprobs, torch.zeros(5), advantages, 0.2)
    assert torch.allclose(loss, torch.tensor([-1.2, -0.5, 1.5, 0.8, 3.0]))


@pytest.mark.verl
def test_advantages_and_loss_equal_verl():
    import numpy as np
    from verl.trainer.ppo import core_algos as core

    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(6, 4, generator=generator)
    scores[2] = 1.0  # nothing to learn in this group
    rewards, mask = torch.zeros(24, 3), torch.ones(24, 3)
    rewards[:, -1] = scores.flatten()
    groups = np.repeat(np.arange(6), 4)
    for rule, by_std in (("group_std", True), ("none", False)):
        expected, _ = core.compute_grpo_outcome_advantage(rewards, mask, groups, norm_adv_by_std_in_grpo=by_std)
        assert torch.allclose(group_relative(scores, rule).flatten(), expected[:, 0], atol=1e-6)

    class Config(dict):
        __getattr__ = dict.get

    config = Config(clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2, clip_ratio_c=3.0, global_batch_info={})
    old, new, advantages = (3 * torch.randn(24, 3, generator=generator) for _ in range(3))
    mask[::2, 2] = 0
    expected, _ = core.compute_policy_loss_vanilla(old, new, advantages, mask, "token-mean", config)
    ours = clipped_surrogate(new, old, advantages, 0.2)
    assert torch.allclose((ours * mask).sum() / mask.sum(), expected, rtol=1e-5)


def test_what_is_trained_is_what_was_sampled(case, tmp_path):
    """Token-in token-out: every trained position holds a sampled token, with the log-probability that it was
    sampled with, and the context is the chat template of the conversation."""
    settings = parse_settings({"policy": {"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64}}})
    text = " ".join(case.key_pertinent_results_dict.values()) + case.case_summary
    build_tiny_policy(tmp_path / "policy", settings.policy.tiny, [text])
    model = load_model(tmp_path / "policy")
    sampler = InProcessSampler.from_model(model, ChatTokenizer(tmp_path / "policy"))
    prompts = PromptBuilder(settings.environment.prompt, sampler.tokenizer, 2048)
    agent = PolicyAgent(sampler, prompts, settings.policy, temperature=1.0)
    trajectory = asyncio.run(run_episode(DiagnosticEnvironment(settings.environment), agent, case, 7))
    assert len(trajectory.steps) == 8 and trajectory.forced

    alternative = Turn("", trajectory.steps[2].turn.prompt_ids, (5, 6), (-1.0, -2.0))
    [[sample]] = make_samples([[trajectory]], [GroupAdvantages(
        decisions=[[1.0] * 7 + [1.5]], weights=[[1.0] * 7 + [0.5]],
        alternatives=[Alternative(0, (alternative,), (-3.0,), (0.25,))],
    )])  # fmt: skip
    sampled = [token for step in trajectory.steps for token in step.turn.token_ids]
    assert [sample.ids[p] for p in sample.positions] == sampled
    last = len(trajectory.steps[-1].turn.token_ids)
    assert sample.advantages == (1.0,) * (len(sampled) - last) + (1.5,) * last + (-3.0,) * 2
    assert sample.weights == (1.0,) * (len(sampled) - last) + (0.5,) * last + (0.25,) * 2
    start = len(alternative.prompt_ids)
    assert sample.branches == (Segment(start, (5, 6), (start, start + 1)),)
    assert sample.length == len(sample.ids) + 2
    with torch.no_grad():
        logprobs = logprobs_alone(model, [sample.ids], [sample.positions])
    assert torch.allclose(logprobs, torch.tensor(sample.old_logprobs[:-2]), atol=1e-4)
    state = trajectory.states[3]
    assert prompts.context_ids(state) == trajectory.steps[3].turn.prompt_ids


def test_an_update_raises_the_probability_of_what_had_advantage(case, tmp_path):
    settings = parse_settings({"policy": {"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64}}})
    build_tiny_policy(tmp_path / "policy", settings.policy.tiny, ["one two three four"])
    model = load_model(tmp_path / "policy")
    ids, positions = [tuple(range(20, 40)), tuple(range(40, 60))], [tuple(range(10, 20))] * 2
    with torch.no_grad():
        before = logprobs_alone(model, ids, positions).view(2, 10)
    samples = [
        Sample(i, p, tuple(b.tolist()), (a,) * 10, (1.0,) * 10)
        for i, p, b, a in zip(ids, positions, before, (1.0, -1.0), strict=True)
    ]
    training = parse_settings({"training": {"learning_rate": 1e-3}}).training
    metrics = update_policy(model, training, [samples])
    with torch.no_grad():
        after = logprobs_alone(model, ids, positions).view(2, 10)
    assert after[0].sum() > before[0].sum() and after[1].sum() < before[1].sum()
    assert metrics["policy/max_ratio_drift"] < 1e-5  # strictly on-policy: the first update sees ratio 1


def test_a_shared_prompt_changes_how_much_is_computed_and_nothing_else(tmp_path, monkeypatch):
    settings = parse_settings({"policy": {"tiny": {"hidden_size": 32, "heads": 2, "intermediate_size": 64}}})
    build_tiny_policy(tmp_path / "policy", settings.policy.tiny, ["one two three four"])
    rng = random.Random(3)

    def draw(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(10, 80) for _ in range(n))

    groups = []
    for _ in range(5):
        prompt, group = draw(rng.randint(5, 30)), []
        for _ in range(4):
            ids = prompt + (group[0].ids[len(prompt) :][:3] if group else ()) + draw(rng.randint(4, 25))
            kept = tuple(sorted(rng.sample(range(len(prompt), len(ids)), 3)))
            group.append(Sample(ids, kept, (-5.0, -4.0, -6.0), tuple(rng.gauss(0, 1) for _ in kept), (1.0,) * 3))
        groups.append(group)
    groups[1][2] = Sample((7, *groups[1][2].ids[1:]), *[getattr(groups[1][2], n) for n in (
        "positions", "old_logprobs", "advantages", "weights")])  # fmt: skip
    rows = micro_batches(groups, 8)
    assert [sum(map(len, batch)) for batch in rows] == [8, 8, 4] and all(len(row) == 4 for b in rows for row in b)
    in_model = sum(len(piece.ids) for batch in rows for row in batch for piece in row_segments(row))
    assert in_model < 0.8 * sum(sample.length for group in groups for sample in group)

    found = []
    for limit in (2048, 60, 0):
        monkeypatch.setattr(update, "_ROW_LIMIT", limit)
        model = load_model(tmp_path / "policy")
        metrics = update_policy(model, parse_settings({"training": {"micro_batch": 8}}).training, [*groups])
        found.append((metrics, [p.grad.clone() for p in model.parameters()]))
    for metrics, gradients in found[1:]:
        assert metrics == pytest.approx(found[0][0], rel=1e-4, abs=1e-6)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(gradients, found[0][1], strict=True))


def small_run(tmp_path, case, **changes):
    """Settings, cases and policy folder of a run of a few steps; the policy knows two replies."""
    plan = {"prompts_per_batch": 2, "mini_batch_prompts": 2, "steps": 4, "save_every": 1,
            "validate_every": 9, "learning_rate": 1e-2}  # fmt: skip
    tiny = {"hidden_size": 32, "heads": 2, "intermediate_size": 64, "vocab_size": 330}
    base = {"training": plan, "policy": {"tiny": tiny}, "warm_start": {"cases": 1}, "environment": {"max_turns": 3}}
    settings = parse_settings(merge(base, changes))
    cases = [case.model_copy(update={"note_id": f"T-{k}"}) for k in range(5)]
    text = ["REQUEST_TEST: Complete Blood Count", "FINAL_DIAGNOSIS: Acute appendicitis"] * 50
    return settings, cases, build_tiny_policy(tmp_path / "policy", settings.policy.tiny, text)


def test_without_weight_or_without_states_training_is_grpo_to_the_bit(case, tmp_path):
    def trained(**changes):
        trainer = Trainer(TrainingRun(*small_run(tmp_path, case, **changes), 0))
        rows = [iterate(trainer) for _ in range(3)]
        return trainer.model.state_dict(), [row["train/utility"] for row in rows], rows[-1]

    grpo, utilities, _ = trained(training={"algorithm": "grpo"})
    nothing = {"threshold": float("inf"), "select_disagreed": False}
    for credit in ({"beta": 0.0, "select_all": True}, nothing):
        cdpr, found, row = trained(credit=credit)
        assert all(torch.equal(grpo[name], cdpr[name]) for name in grpo) and found == utilities
        assert row["credit/probes"] > 0  # credit assignment was at work, and left no trace
    other, *_ = trained(credit={"select_all": True})
    assert not all(torch.equal(grpo[name], other[name]) for name in grpo)


@pytest.mark.parametrize(
    "changes",
    [
        {"credit": {"continuation": {"policy": "current"}, "select_all": True}},
        {"credit": {"cache": {"capacity": 5}, "select_all": True}},
        {"training": {"algorithm": "all_actions"}},
        {"training": {"algorithm": "vineppo"}},
        {"training": {"algorithm": "belief_gain", "options": {"policy": "frozen"}}},
    ],
    ids=["current", "bounded cache", "all_actions", "vineppo", "frozen"],
)
def test_an_interrupted_run_ends_where_an_undisturbed_one_ends(case, tmp_path, changes):
    settings, cases, policy = small_run(tmp_path, case, **changes)

    def trained(state, *stops):
        records = []
        for stop in stops:
            trainer = Trainer(TrainingRun(settings, cases, policy, 0))
            train(trainer, tmp_path / state, lambda row: None, records.append, steps=stop)
        return trainer.model.state_dict(), [row["step"] for row in records]

    whole, steps = trained("whole", 4)
    parts, steps_in_parts = trained("parts", 1, 3, 4)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert steps == steps_in_parts == ([1, 2, 3, 4] if settings.training.algorithm == "cdpr" else [])


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    middle = len(whole) // 2
    noise = whole[:middle] + bytes(64) + whole[middle + 64 :]
    path.write_bytes({"truncated": whole[:middle], "empty": b"", "noise": noise}[how])


@pytest.mark.parametrize("how", ["truncated", "empty", "noise"])
def test_a_damaged_checkpoint_costs_a_step_and_changes_nothing(case, tmp_path, caplog, how):
    settings, cases, policy = small_run(tmp_path, case, training={"save_every": 1})

    def trained(state, steps):
        trainer = Trainer(TrainingRun(settings, cases, policy, 0))
        train(trainer, tmp_path / state, lambda row: None, lambda row: None, steps=steps)
        return trainer

    whole = trained("whole", 4).model.state_dict()
    trained("parts", 3)
    damage(tmp_path / "parts/checkpoint.pt", how)
    assert load_checkpoint(tmp_path / "parts/checkpoint.pt")["step"] == 2
    assert "checkpoint.pt is damaged" in caplog.text and "the one before" in caplog.text
    parts = trained("parts", 4).model.state_dict()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    for name in ("checkpoint.pt", "checkpoint.pt.before"):
        damage(tmp_path / "parts" / name, how)
    assert load_checkpoint(tmp_path / "parts/checkpoint.pt") is None and "from the first step" in caplog.text


class Killed(BaseException):
    """Stands for a kill, which no handler of errors stops."""


def save_killed_before_renaming_to(target, path, step, monkeypatch):
    rename = os.replace

    def rename_or_die(source, destination):
        if Path(destination) == target:
            raise Killed
        rename(source, destination)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", rename_or_die)
        save_checkpoint(path, {"step": step})


def test_repeated_kills_while_saving_leave_the_last_checkpoint_whole(tmp_path, monkeypatch):
    path, previous = tmp_path / "checkpoint.pt", tmp_path / "checkpoint.pt.before"
    for step in (1, 2):
        save_checkpoint(path, {"step": step})
    for step in (3, 4, 5):  # after the digests are written
        save_killed_before_renaming_to(previous, path, step, monkeypatch)
        assert load_checkpoint(path)["step"] == 2
    for step in (6, 7, 8):  # after the last checkpoint became the previous one
        save_killed_before_renaming_to(path, path, step, monkeypatch)
        assert not path.exists() and load_checkpoint(path)["step"] == 2
    for step in (9, 10):
        save_checkpoint(path, {"step": step})
    assert load_checkpoint(path)["step"] == 10
    assert len(path.with_name("checkpoint.pt.sha256").read_text().split()) == 2
    path.unlink()
    assert load_checkpoint(path)["step"] == 9


def test_a_damaged_checkpoint_never_replaces_the_previous_one(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    for step in (1, 2):
        save_checkpoint(path, {"step": step})
    damage(path, "noise")
    save_killed_before_renaming_to(path, path, 3, monkeypatch)
    assert load_checkpoint(path)["step"] == 1


def test_a_checkpoint_holds_no_code(tmp_path):
    class Hostile:
        def __reduce__(self):
            return print, ("this ran",)

    save_checkpoint(tmp_path / "c.pt", {"step": 1, "algorithm": Hostile()})
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        load_checkpoint(tmp_path / "c.pt")


def test_a_run_that_diverges_ends_with_its_last_weights_and_says_so(case, tmp_path):
    endless = {"lambda_test": 1e308, "lambda_na": 1e308}
    settings, cases, policy = small_run(tmp_path, case, training={"algorithm": "utility_grpo"}, utility=endless)
    trainer = Trainer(TrainingRun(settings, cases, policy, 0))
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    rows = []
    train(trainer, tmp_path / "state", rows.append, rows.append)
    assert (rows[0]["step"], rows[0]["seconds"], rows[0]["tokens"]) == (0, 0.0, 0)
    assert rows[-1].pop("seconds") >= 0 and rows[-1] == {"step": 1, "tokens": 0, "diverged": True}
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())


def test_validation_keeps_the_verdict_of_every_validation_case(case, tmp_path):
    settings, cases, policy = small_run(tmp_path, case)
    validation = [case.model_copy(update={"note_id": f"V-{k}", "split": "validation"}) for k in range(3)]
    trainer = Trainer(TrainingRun(settings, cases + validation, policy, 0))
    row = trainer.validate()
    verdicts = row["validation/verdicts"]
    assert len(verdicts) == 3 and set(verdicts) <= {"0", "1"}
    assert row["validation/accuracy"] == pytest.approx(verdicts.count("1") / 3)


def test_a_large_epsilon_keeps_tokens_in_their_place_that_no_case_has(case, tmp_path):
    """The output layer is the embeddings, so every token has a gradient in every step."""

    def moved(epsilon):
        """How far tokens move that no sample has, as a share of how far those move that one has."""
        trainer = Trainer(TrainingRun(*small_run(tmp_path, case, training={"adam_epsilon": epsilon}), 0))
        embeddings = trainer.model.model.embed_tokens.weight
        before, ids = embeddings.detach().clone(), tuple(range(10, 20))
        sample = Sample(ids, (7, 8, 9), (-5.0, -4.0, -6.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
        update_policy(trainer.model, trainer.settings.training, [[sample]], trainer.optimizer)
        distances = (embeddings.detach() - before).norm(dim=1)
        return float(distances[20:].mean() / distances[10:20].mean())

    assert moved(1e-8) > 0.9 and moved(1e-2) < 0.1
