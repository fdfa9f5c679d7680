"""From our settings to verl's: every key that a run sets, and a refusal of what verl cannot do for us."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...agents.policy import longest_sequence
from ...settings import Settings, SettingsError
from ...settings.algorithms import algorithm_class
from ..training_run import DUAL_CLIP, MAX_GRAD_NORM, WEIGHT_DECAY
from .cpu import LOGICAL
from .duration import duration_lines
from .memory import OWN_SERVER, memory_plan, micro_batch, needs_frozen

CHECKPOINTS = "verl"
"""Folder of verl's checkpoints, below that of the run's state."""
_HERE = "cdpr.training.verl"
_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "model"))
_CORRECTION_LIMIT = 2.0  # largest importance weight
_LOSS = {"token_mean": "token-mean", "sequence_sum": "seq-mean-token-sum"}


def resolve(settings: Settings, session: Path, policy: Path, state: Path) -> dict[str, Any]:
    """verl's configuration as dotted keys over its ``ppo_trainer``; a leading ``+`` adds a key that it does not list.
    Raises SettingsError for what cannot run or does not fit."""
    check(settings)
    return {
        **_data_and_model(settings, session, policy),
        **_optimisation(settings),
        **_rollouts(settings),
        **_trainer(settings, state),
        **(_without_gpu(settings) if settings.training.verl.without_gpu else {}),
    }


def overrides(resolved: Mapping[str, Any]) -> list[str]:
    """The configuration in Hydra's grammar."""
    return [f"{name}={_value(value)}" for name, value in resolved.items()]


def check(settings: Settings) -> None:
    """Raises SettingsError for settings that the engine cannot follow, or whose memory does not fit."""
    plan, verl, frozen = settings.training, settings.training.verl, settings.training.verl.frozen
    gpus, trajectories = verl.nodes * verl.gpus_per_node, plan.prompts_per_batch * plan.group_size
    mini_batch = plan.mini_batch_prompts * plan.group_size
    several_batches = plan.mini_batch_prompts != plan.prompts_per_batch
    _refuse(
        frozen.beside and (frozen.url or not frozen.memory),
        "training.verl.frozen.beside: the run chooses its address, and it needs a share of memory: leave out "
        "training.verl.frozen.url, and set .memory above 0",
    )
    _refuse(
        frozen.beside and verl.gpus_per_node % frozen.tensor_parallel,
        f"training.verl.frozen.tensor_parallel: {frozen.tensor_parallel} does not divide the {verl.gpus_per_node} GPUs "
        "of a machine",
    )
    _refuse(
        algorithm_class(plan.algorithm).extra_samples and several_batches,
        f"training.mini_batch_prompts: {plan.algorithm} trains on further replies, and verl cuts a batch into "
        "mini-batches of so many rows, whichever case they belong to; set it to training.prompts_per_batch "
        f"({plan.prompts_per_batch}), or training.engine: torch",
    )
    _refuse(
        gpus % verl.tensor_parallel,
        f"training.verl.tensor_parallel: {verl.tensor_parallel} does not divide {gpus} GPUs",
    )
    _refuse(
        trajectories % gpus or mini_batch % gpus,
        f"training: {trajectories} trajectories a step, or a mini-batch, do not divide over {gpus} GPUs; change "
        "prompts_per_batch, mini_batch_prompts or group_size",
    )
    if verl.without_gpu:
        _refuse(
            verl.lora_rank or verl.rollout == "sglang",
            "training.verl: without a GPU there are no LoRA adapters and no SGLang; set lora_rank: 0 and rollout: cpu "
            "or vllm",
        )
        return
    memory = memory_plan(settings)
    _refuse(
        memory.model.heads % verl.tensor_parallel,
        f"training.verl.tensor_parallel: {verl.tensor_parallel} does not divide the model's {memory.model.heads} heads",
    )
    memory.check()


def _refuse(wrong: object, message: str) -> None:
    if wrong:
        raise SettingsError(message)


def _data_and_model(settings: Settings, session: Path, policy: Path) -> dict[str, Any]:
    verl = settings.training.verl
    return {
        "data.custom_cls.path": f"pkg://{_HERE}.rows",
        "data.custom_cls.name": "Schedule",
        "+data.cdpr_session": str(session),
        "data.train_files": "train",
        "data.val_files": "validation",
        "data.train_batch_size": settings.training.prompts_per_batch,
        "data.max_prompt_length": settings.policy.max_prompt_tokens,
        # An episode keeps to `policy.max_response_tokens` itself, all but its last observation.
        "data.max_response_length": longest_sequence(settings) - settings.policy.max_prompt_tokens,
        "data.shuffle": False,  # the schedule has the order
        "data.dataloader_num_workers": 0,
        f"{_MODEL}.path": str(policy),
        f"{_MODEL}.enable_gradient_checkpointing": True,
        f"{_MODEL}.use_remove_padding": verl.attention == "flash_attention_2",
        f"{_MODEL}.use_fused_kernels": True,  # logits in chunks of tokens, never of a whole micro-batch
        f"+{_MODEL}.override_config.attn_implementation": verl.attention,
        f"{_MODEL}.lora_rank": verl.lora_rank,
        f"{_MODEL}.lora_alpha": max(1, verl.lora_rank),
    }


def _optimisation(settings: Settings) -> dict[str, Any]:
    plan, verl = settings.training, settings.training.verl
    return {
        "algorithm.adv_estimator": "cdpr",
        "algorithm.gamma": 1.0,
        "algorithm.use_kl_in_reward": False,
        "algorithm.rollout_correction.rollout_is": None if verl.correction == "off" else verl.correction,
        "algorithm.rollout_correction.rollout_is_threshold": _CORRECTION_LIMIT,
        "algorithm.rollout_correction.bypass_mode": False,
        "critic.enable": False,
        f"{_ACTOR}.strategy": verl.strategy,
        f"{_ACTOR}.use_kl_loss": False,
        f"{_ACTOR}.entropy_coeff": 0,
        f"{_ACTOR}.optim.lr": plan.learning_rate,
        f"{_ACTOR}.optim.weight_decay": WEIGHT_DECAY,
        f"{_ACTOR}.optim.clip_grad": MAX_GRAD_NORM,
        f"{_ACTOR}.ppo_mini_batch_size": plan.mini_batch_prompts,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": micro_batch(settings),
        f"{_ACTOR}.ppo_epochs": plan.inner_epochs,
        f"{_ACTOR}.clip_ratio": plan.clip_ratio,
        f"{_ACTOR}.clip_ratio_low": plan.clip_ratio,
        f"{_ACTOR}.clip_ratio_high": plan.clip_ratio,
        f"{_ACTOR}.clip_ratio_c": DUAL_CLIP,
        f"{_ACTOR}.loss_agg_mode": _LOSS[plan.loss_aggregation],
        f"{_ACTOR}.fsdp_config.dtype": "bfloat16",
        f"{_ACTOR}.fsdp_config.param_offload": verl.offload,
        f"{_ACTOR}.fsdp_config.optimizer_offload": verl.offload,
    }


def _rollouts(settings: Settings) -> dict[str, Any]:
    plan, verl, frozen = settings.training, settings.training.verl, settings.training.verl.frozen
    starts_one = needs_frozen(settings) and frozen.url is None and not frozen.beside
    return {
        f"{_ROLLOUT}.name": verl.rollout,
        f"{_ROLLOUT}.mode": "async",
        f"{_ROLLOUT}.n": plan.group_size,
        f"{_ROLLOUT}.temperature": plan.temperature,
        f"{_ROLLOUT}.tensor_model_parallel_size": verl.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": verl.rollout_memory,
        f"{_ROLLOUT}.quantization": None if verl.quantization == "none" else verl.quantization,
        f"{_ROLLOUT}.calculate_log_probs": True,
        f"{_ROLLOUT}.max_model_len": longest_sequence(settings),
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": micro_batch(settings),
        f"{_ROLLOUT}.load_format": "safetensors" if verl.lora_rank else "dummy",
        f"{_ROLLOUT}.val_kwargs.n": 1,
        f"{_ROLLOUT}.val_kwargs.temperature": 0,
        # One worker: it keeps the rollout cache, and waits for servers nearly all of its time.
        f"{_ROLLOUT}.agent.num_workers": 1,
        f"{_ROLLOUT}.agent.default_agent_loop": "cdpr",
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(Path(__file__).with_name("loops.yaml")),
        f"+{_ROLLOUT}.agent.agent_loop_manager_class": f"{_HERE}.worker.GroupManager",
        "reward.num_workers": 1,
        # What the trainer reads when it starts a frozen server.
        **({f"+{_ROLLOUT}.custom": {"frozen_gpus": frozen.gpus, "frozen_memory": OWN_SERVER}} if starts_one else {}),
    }


def _trainer(settings: Settings, state: Path) -> dict[str, Any]:
    plan, verl = settings.training, settings.training.verl
    return {
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": "cdpr",
        "trainer.v1.sampler.custom_sampler.path": f"pkg://{_HERE}.worker",
        "trainer.v1.sampler.custom_sampler.name": "ScheduledBatch",
        "trainer.nnodes": verl.nodes,
        "trainer.n_gpus_per_node": verl.gpus_per_node,
        "trainer.total_epochs": 1,  # the schedule is the whole run
        "trainer.total_training_steps": plan.steps,
        "trainer.save_freq": plan.save_every,
        "trainer.test_freq": plan.validate_every,
        "trainer.val_before_train": True,
        "trainer.resume_mode": "auto",
        "trainer.max_actor_ckpt_to_keep": None,  # `checkpoints` removes old ones, when the new one is whole
        "trainer.default_local_dir": str(state / CHECKPOINTS),
        "trainer.logger": ["console"],
        # One machine never joins a cluster of somebody else's that happens to run there.
        "+ray_kwargs.ray_init.address": "auto" if verl.nodes > 1 else "local",
    }


def _without_gpu(settings: Settings) -> dict[str, Any]:
    """What a machine without a GPU needs: gloo, float32, no kernels, and logical devices for Ray; several machines get
    those from :mod:`~cdpr.training.verl.cluster`."""
    ray = {} if settings.training.verl.nodes > 1 else LOGICAL | {"include_dashboard": False}
    return {
        f"{_MODEL}.external_lib": "cdpr.training.verl.cpu.engine",
        f"{_MODEL}.use_remove_padding": False,
        f"+{_MODEL}.override_config.attn_implementation": "sdpa",
        f"{_ACTOR}.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.use_torch_compile": False,
        f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"{_ROLLOUT}.dtype": "float32",
        f"{_ROLLOUT}.quantization": None,
        f"{_ROLLOUT}.enforce_eager": True,  # compiling takes minutes
        f"++{_ROLLOUT}.enable_sleep_mode": False,
        f"{_ROLLOUT}.free_cache_engine": False,
        "trainer.device": "cpu",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        **{f"++ray_kwargs.ray_init.{name}": value for name, value in ray.items()},
    }


def _value(value: Any) -> str:
    """A value in Hydra's grammar: JSON, but for the bare keys of a mapping."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{json.dumps(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)


def report(settings: Settings, session: Path, policy: Path, state: Path) -> str:
    """What ``cdpr plan_training`` prints. Raises SettingsError where the run would be refused."""
    resolved = resolve(settings, session, policy, state)
    if settings.training.verl.without_gpu:
        return "\n".join(["# memory and time", "without a GPU: not planned", "", "# verl", *overrides(resolved)])
    planned = ["# memory", *memory_plan(settings).lines(), "", "# time", *duration_lines(settings)]
    return "\n".join([*planned, "", "# verl", *overrides(resolved)])
