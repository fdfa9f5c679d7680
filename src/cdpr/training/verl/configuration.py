"""Translates our settings to verl's configuration (with ``overrides.yaml``), and refuses settings that verl lacks."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ...agents.policy import longest_sequence
from ...llm.guard import NO_TELEMETRY
from ...llm.own_server import WITHOUT_TOOLKIT
from ...settings import Settings, SettingsError
from ...settings.algorithms import algorithm_class
from ...settings.variants import check_required, value_at
from ..training_run import CLIP_RATIO, DUAL_CLIP, MAX_GRAD_NORM, WEIGHT_DECAY
from .cpu import ENVIRONMENT, LOGICAL
from .duration import comparison_lines, duration_lines, target_line
from .memory import OWN_SERVER, cpus_of_ray, memory_plan, micro_batch, starts_frozen_server

CHECKPOINTS = "verl"
"""Folder of verl's checkpoints, in that of the run's state."""
SESSION = "session.json"
"""File that describes the run (:class:`~.session.Session`), in the same folder."""
# Sections of verl's configuration.
_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "model"))
# The ways to sum the loss over tokens: our name of each, and verl's.
_LOSS = {"token_mean": "token-mean", "sequence_sum": "seq-mean-token-sum"}


def environment_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables of all processes of a run by name: no telemetry, no downloads (the policy is a
    folder), and no kernels whose compilation needs the CUDA toolkit. Without a GPU they also choose verl's parts for
    the CPU."""
    toolkit = {name: os.environ.get(name, value) for name, value in WITHOUT_TOOLKIT.items()}
    variables = NO_TELEMETRY | {"HF_HUB_OFFLINE": "1"} | toolkit
    if settings.training.verl.without_gpu:
        variables |= ENVIRONMENT | {"OMP_NUM_THREADS": str(settings.training.threads)}
    return variables


def translate_settings(settings: Settings, policy: Path, state: Path) -> dict[str, Any]:
    """Translate settings to changes of verl's configuration ``ppo_trainer``: values by dotted key, such as
    ``actor_rollout_ref.rollout.n``. A leading ``+`` adds a new key, ``++`` adds a key or changes an existing one.

    ``policy`` is the folder of the initial policy, ``state`` the folder of unfinished work. Raises SettingsError for
    settings with which verl cannot run, or whose memory does not fit.
    """
    check_settings(settings)
    verl, here = settings.training.verl, Path(__file__).parent
    table = yaml.safe_load((here / "overrides.yaml").read_text(encoding="utf-8"))
    changes = table["always"] | {theirs: value_at(settings, ours) for theirs, ours in table["settings"].items()}
    changes |= {
        "+data.cdpr_session": str(state / SESSION),
        # Room for the longest episode: only its last observation can exceed `policy.max_response_tokens`.
        "data.max_response_length": longest_sequence(settings) - settings.policy.max_prompt_tokens,
        f"{_MODEL}.path": str(policy),
        f"{_MODEL}.use_remove_padding": verl.attention == "flash_attention_2",
        f"{_MODEL}.lora_alpha": max(1, verl.lora_rank),  # equal to the rank, so that adapters have the factor 1
        "algorithm.rollout_correction.rollout_is": None if verl.correction == "off" else verl.correction,
        f"{_ACTOR}.optim.weight_decay": WEIGHT_DECAY,
        f"{_ACTOR}.optim.clip_grad": MAX_GRAD_NORM,
        **dict.fromkeys((f"{_ACTOR}.clip_ratio{end}" for end in ("", "_low", "_high")), CLIP_RATIO),
        f"{_ACTOR}.clip_ratio_c": DUAL_CLIP,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": micro_batch(settings),
        f"{_ACTOR}.loss_agg_mode": _LOSS[settings.training.loss_aggregation],
        f"{_ROLLOUT}.name": verl.server,
        f"{_ROLLOUT}.quantization": None if verl.quantization == "none" else verl.quantization,
        f"{_ROLLOUT}.max_model_len": longest_sequence(settings),
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": micro_batch(settings),
        f"{_ROLLOUT}.agent.agent_loop_config_path": str(here / "loops.yaml"),
        "trainer.default_local_dir": str(state / CHECKPOINTS),
        # "local": a run on one machine starts its own Ray, also where another cluster happens to run on the machine.
        "+ray_kwargs.ray_init.address": "auto" if verl.nodes > 1 else "local",
        **{
            f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}": value
            for name, value in environment_variables(settings).items()
        },
    }
    if starts_frozen_server(settings):  # our trainer reads this key and starts it
        changes[f"+{_ROLLOUT}.custom.frozen_memory"] = OWN_SERVER
    if verl.without_gpu:
        changes |= table["without_gpu"]
        # Logical devices for Ray; several machines get them from `ray_cluster`.
        ray_options = {} if verl.nodes > 1 else LOGICAL | {"include_dashboard": False}
        changes |= {f"++ray_kwargs.ray_init.{name}": value for name, value in ray_options.items()}
    return changes


def hydra_arguments(changes: Mapping[str, Any]) -> list[str]:
    """Write ``changes`` of verl's configuration as arguments of Hydra, ``key=value`` with values in JSON."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in changes.items()]


def check_settings(settings: Settings) -> None:
    """Raise SettingsError for settings that the engine verl does not support, or whose memory does not fit."""
    training, verl, frozen = settings.training, settings.training.verl, settings.training.verl.frozen
    algorithm = algorithm_class(training.algorithm)
    # Trajectories of a step and of a mini-batch, which verl divides over all GPUs.
    gpus, trajectories = verl.nodes * verl.gpus_per_node, training.prompts_per_batch * training.group_size
    mini_batch = training.mini_batch_prompts * training.group_size
    refuse(
        frozen.beside and (frozen.url or not frozen.memory),
        "training.verl.frozen.beside: the run chooses its address, and it needs a share of memory: leave out "
        "training.verl.frozen.url, and set .memory above 0",
    )
    refuse(
        algorithm.extra_samples and training.mini_batch_prompts != training.prompts_per_batch,
        f"training.mini_batch_prompts: {training.algorithm} trains on further replies, and verl cuts a batch into "
        "mini-batches of so many rows, whichever case they belong to; set it to training.prompts_per_batch "
        f"({training.prompts_per_batch}), or training.engine: torch",
    )
    # The policies that act by verl's own servers; a frozen policy may have a server of ours.
    on_verls_servers = {"current"} if frozen.url or frozen.beside else {"current", "frozen"}
    refuse(
        verl.server == "sglang" and algorithm.scoring_policies(settings) & on_verls_servers,
        f"training.verl.rollout: {training.algorithm} reads the policy's probability of given replies, which verl's "
        "SGLang servers do not give; set it to vllm (config/gpus/2x96gb.yaml)",
    )
    refuse(
        gpus % verl.tensor_parallel,
        f"training.verl.tensor_parallel: {verl.tensor_parallel} does not divide {gpus} GPUs",
    )
    refuse(
        trajectories % gpus or mini_batch % gpus,
        f"training: {trajectories} trajectories a step, or a mini-batch, do not divide over {gpus} GPUs; change "
        "prompts_per_batch, mini_batch_prompts or group_size",
    )
    if verl.without_gpu:
        return  # there is no GPU memory to plan
    memory = memory_plan(settings)
    refuse(
        memory.model.heads % verl.tensor_parallel,
        f"training.verl.tensor_parallel: {verl.tensor_parallel} does not divide the model's {memory.model.heads} heads",
    )
    memory.check()


def why_not_run(settings: Settings) -> str:
    """Say why the engine verl cannot run a training with these settings, followed by ``Algorithm.missing``, which says
    what the engine lacks. Returns an empty text where the engine can run it."""
    algorithm = algorithm_class(settings.training.algorithm)
    try:
        check_required(algorithm, settings)
        check_settings(settings)
    except SettingsError as error:
        return f"{error}. Missing: {algorithm.missing}" if algorithm.missing else str(error)
    return ""


def refuse(wrong: object, message: str) -> None:
    """Raise SettingsError with ``message`` if ``wrong`` is true."""
    if wrong:
        raise SettingsError(message)


def write_plan(
    settings: Settings, policy: Path, state: Path, columns: Mapping[str, Settings], runs: Sequence[Settings]
) -> str:
    """Write the text that ``cdpr plan_training`` prints for the training with these ``settings``, whose initial policy
    is in the folder ``policy`` and whose unfinished work would be in ``state``: memory, time, and verl's configuration.

    ``columns`` are the settings whose times are compared, by the name of their column, GRPO's first. ``runs`` are the
    settings of all trainings of the target ``reproduce_paper``. Raises SettingsError for settings with which verl
    cannot run, or whose memory does not fit."""
    configuration = ["", "# verl", *hydra_arguments(translate_settings(settings, policy, state))]
    if settings.training.verl.without_gpu:
        return "\n".join(["# memory and time", "without a GPU: not planned", *configuration])
    plan = ["# memory", *memory_plan(settings).lines(), f"Ray: {cpus_of_ray(settings)} CPUs or more"]
    reasons = {name: why_not_run(column) for name, column in columns.items()}
    forecasts = [f"{name}: a forecast, not run: {reason}" for name, reason in reasons.items() if reason]
    plan += ["", "# time", *comparison_lines(columns), *forecasts, "", *duration_lines(settings), target_line(runs)]
    return "\n".join([*plan, *configuration])
