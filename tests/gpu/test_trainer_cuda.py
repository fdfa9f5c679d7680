"""The torch trainer on each device against itself on the CPU."""

from __future__ import annotations

import asyncio

import pytest
from torch.nn.utils import parameters_to_vector

from cdpr.environment import DiagnosticEnvironment, run_episode
from cdpr.settings import merge, parse_settings
from cdpr.training.algorithm import GroupAdvantages, score_groups
from cdpr.training.torch.loop import roll_out, update
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import Sample, make_samples
from cdpr.training.torch.warm_start import DemonstratedEpisode, Lessons, tokenizer_corpus
from cdpr.training.training_run import TrainingRun

SMALL = {
    "policy": {"tiny": {"hidden_size": 64, "layers": 2, "intermediate_size": 128, "vocab_size": 400}},
    "warm_start": {"cases": 1},
    "training": {"prompts_per_batch": 2, "mini_batch_prompts": 2, "group_size": 4, "steps": 2, "learning_rate": 1e-3},
}


@pytest.mark.parametrize("algorithm", ["grpo", "cdpr"])
def test_a_step_is_the_step_on_the_cpu(case, tmp_path, algorithm, device):
    from toy import ToyPolicy

    settings = parse_settings(merge(SMALL, {"training": {"algorithm": algorithm}}))
    cases = [case.model_copy(update={"note_id": f"T-{k}"}) for k in range(6)]
    cases.append(case.model_copy(update={"note_id": "V", "split": "validation"}))
    environment = DiagnosticEnvironment(settings.environment)
    trajectories = [asyncio.run(run_episode(environment, ToyPolicy(), cases[0], k)) for k in range(8)]
    workups = [DemonstratedEpisode(trajectory, (), ("",) * len(trajectory.steps)) for trajectory in trajectories]
    folder = build_tiny_policy(
        tmp_path / "policy", settings.policy.tiny, tokenizer_corpus(settings, Lessons(workups, []))
    )
    trainers = []
    for place in ("cpu", device):
        placed = parse_settings(merge(settings.model_dump(), {"policy": {"device": place}}))
        trainers.append(Trainer(TrainingRun(placed, cases, folder, 0)))
        assert next(trainers[-1].model.parameters()).device.type == place

    # The same draws: a draw may fall on the other side of a boundary once in very many.
    groups, others = (asyncio.run(roll_out(trainer, 0)) for trainer in trainers)
    pairs = [
        (token_ids(a), token_ids(b)) for x, y in zip(groups, others, strict=True) for a, b in zip(x, y, strict=True)
    ]
    assert sum(a == b for a, b in pairs) >= len(pairs) - 1

    # The same update. Both take the CPU's trajectories, so that a differing draw cannot excuse the weights.
    algorithm = trainers[0].algorithm
    scored = asyncio.run(score_groups(algorithm, groups, 0))
    algorithm.finish_batch(scored)
    samples = make_samples(groups, scored)
    start = parameters_to_vector(trainers[0].model.parameters()).detach().clone()
    moves = []
    for trainer in trainers:
        update(trainer.model, trainer.optimizer, samples, trainer.settings.training)
        moves.append(parameters_to_vector(trainer.model.parameters()).detach().cpu() - start)
    # Adam moves a weight of tiny gradient by the whole rate whatever its sign, so single weights may differ.
    assert moves[0].norm() > 0
    assert (moves[1] - moves[0]).norm() < 0.05 * moves[0].norm()


def token_ids(trajectory):
    return Sample.from_trajectory(trajectory, GroupAdvantages(decisions=[[1.0] * len(trajectory.steps)]), 0).ids
