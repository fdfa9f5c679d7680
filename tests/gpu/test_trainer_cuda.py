"""The torch trainer on a CUDA device against itself on the CPU."""

from __future__ import annotations

import asyncio

import pytest
import torch

from cdpr.environment import DiagnosticEnvironment, run_episode
from cdpr.settings import merge, parse_settings
from cdpr.training.run import TrainingRun
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.trainer import Trainer
from cdpr.training.torch.update import Sample
from cdpr.training.torch.warm_start import corpus

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SMALL = {
    "policy": {"tiny": {"hidden_size": 64, "layers": 2, "kv_heads": 2, "intermediate_size": 128, "vocab_size": 400}},
    "warm_start": {"cases": 1},
    "training": {"prompts_per_batch": 2, "mini_batch_prompts": 2, "group_size": 4, "steps": 2, "learning_rate": 1e-3},
}


@pytest.mark.parametrize("algorithm", ["grpo", "cdpr"])
def test_a_step_on_cuda_is_the_step_on_the_cpu(case, tmp_path, algorithm):
    from toy import ToyPolicy

    settings = parse_settings(merge(SMALL, {"training": {"algorithm": algorithm}}))
    cases = [case.model_copy(update={"note_id": f"T-{k}"}) for k in range(6)]
    cases.append(case.model_copy(update={"note_id": "V", "split": "validation"}))
    environment = DiagnosticEnvironment(settings.environment)
    workups = [asyncio.run(run_episode(environment, ToyPolicy(), cases[0], k)) for k in range(8)]
    folder = build_tiny_policy(tmp_path / "policy", settings.policy.tiny, corpus(settings, workups, []))
    rows, weights, samples = {}, {}, {}
    for device in ("cpu", "cuda"):
        there = parse_settings(merge(settings.model_dump(), {"policy": {"device": device}}))
        trainer = Trainer(TrainingRun(there, cases, folder, 0))
        assert next(trainer.model.parameters()).device.type == device
        groups = asyncio.run(trainer.roll_out(0))
        samples[device] = [Sample.of(t, [1.0] * len(t.steps)).ids for group in groups for t in group]
        rows[device] = trainer.iterate()
        weights[device] = {name: p.detach().cpu() for name, p in trainer.model.named_parameters()}
    same = [a == b for a, b in zip(samples["cpu"], samples["cuda"], strict=True)]
    assert sum(same) >= len(same) - 1  # a draw may fall on the other side of a boundary once in very many
    if all(same):
        assert rows["cuda"]["train/aen"] == pytest.approx(rows["cpu"]["train/aen"], abs=0.3)
        for name, tensor in weights["cpu"].items():
            assert torch.allclose(weights["cuda"][name], tensor, atol=5e-3), name
