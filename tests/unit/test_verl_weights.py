"""The weights that verl sends to rollout servers: all of them, with the adapters merged in, by every way to shard."""

from __future__ import annotations

import itertools
import os
import socket

import pytest
import torch

from cdpr.settings import parse_settings
from cdpr.settings.tables import read_table
from cdpr.training.torch.tiny import build_tiny_policy
from cdpr.training.torch.weights import load_model
from cdpr.training.verl.configuration import hydra_arguments, translate_settings

RANK = 4


def engine_of(folder, strategy: str, lora: bool):
    """verl's engine as the plan of a run configures it."""
    from hydra import compose, initialize_config_module
    from verl.trainer.config import CheckpointConfig
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config import HFModelConfig
    from verl.workers.engine import EngineRegistry

    own = {"rollout": "cpu", "gpus_per_node": 1, "tensor_parallel": 1, "lora_rank": RANK * lora}
    plan = hydra_arguments(translate_settings(parse_settings({"training": {"verl": own}}), folder, folder))
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[*plan, f"actor_rollout_ref.actor.strategy={strategy}"])
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    engine = EngineRegistry.new(
        model_type="language_model",
        backend=strategy,
        model_config=omega_conf_to_dataclass(config.actor_rollout_ref.model, HFModelConfig),
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=CheckpointConfig(),
    )
    engine.initialize()
    return engine


def set_adapters(engine, value: float) -> None:
    """Let every adapter add ``value * rank`` to every element of its matrix."""
    from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp
    from verl.utils.fsdp_utils import fsdp_version

    def fill() -> None:
        for name, weight in engine.module.named_parameters():
            if "lora_" in name:
                weight.data.fill_(1.0 if "lora_A" in name else value)

    with torch.no_grad():
        if fsdp_version(engine.module) == 1:
            with Fsdp.summon_full_params(engine.module, writeback=True):
                fill()
        else:
            fill()


def check_sync(rank: int, size: int, port: int, folder, report) -> None:
    """In a process of its own: what each sync yields, against the folder's weights plus the adapters'."""
    os.environ.update(
        read_table("cdpr.training.verl", "overrides")["environment_without_gpu"]
        | {"HF_HUB_OFFLINE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    )
    os.environ.update(
        {"RANK": f"{rank}", "WORLD_SIZE": f"{size}", "LOCAL_RANK": f"{rank}", "LOCAL_WORLD_SIZE": f"{size}"}
    )
    torch.distributed.init_process_group("cpu:gloo", rank=rank, world_size=size)
    initial = {name: weight.detach().clone() for name, weight in load_model(folder).named_parameters()}
    for strategy in ("fsdp", "fsdp2"):
        for lora in (False, True):
            engine = engine_of(folder, strategy, lora)
            for value in (0.25, 0.5):  # two steps of training
                if lora:
                    set_adapters(engine, value)
                weights, adapter = engine.get_per_tensor_param(base_sync_done=True)
                sent = {name: weight.clone() for name, weight in weights}
                assert adapter is None and initial.keys() <= sent.keys(), (strategy, lora, len(sent), len(initial))
                for name, weight in initial.items():
                    adapted = lora and "_proj." in name
                    expected = weight + value * RANK * adapted
                    assert torch.allclose(sent[name].float(), expected, atol=4e-3 * float(expected.abs().max())), name
            report.put((rank, strategy, lora))
    torch.distributed.destroy_process_group()


@pytest.mark.verl
@pytest.mark.parametrize("size", [1, 2])
def test_all_weights_reach_the_rollout_server(tmp_path, size):
    """Of one GPU and of several, by FSDP 1 and 2, with adapters and without, after every step."""
    tiny = {"hidden_size": 32, "layers": 2, "heads": 2, "intermediate_size": 64, "vocab_size": 330}
    folder = build_tiny_policy(tmp_path / "policy", parse_settings({"policy": {"tiny": tiny}}).policy.tiny, ["pain"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    report = context.SimpleQueue()
    torch.multiprocessing.spawn(check_sync, (size, port, folder, report), nprocs=size)
    seen = {report.get() for _ in range(4 * size)}
    assert seen == set(itertools.product(range(size), ("fsdp", "fsdp2"), (False, True)))
