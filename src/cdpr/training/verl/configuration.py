"""Translates our settings to verl's configuration (``overrides.yaml``), and refuses settings with which verl cannot run
(``refusals.yaml``)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...llm.own_server import NO_TELEMETRY, WITHOUT_TOOLKIT
from ...settings import Settings, SettingsError, evaluate, read_table, refuse
from ...settings.variants import check_required
from .. import training_run
from .memory import OWN_SERVER, memory_plan, settings_values, starts_frozen_server

#: Folder of verl's checkpoints, in that of the run's state.
CHECKPOINTS = "verl"
#: File that describes the run (:class:`~.session.Session`), in the same folder.
SESSION = "session.json"


def environment_variables(settings: Settings) -> dict[str, str]:
    """Return the environment variables of all processes of a run by name: no telemetry, no downloads (the policy is a
    folder), and no kernels whose compilation needs the CUDA toolkit. Without a GPU they also choose verl's parts for
    the CPU."""
    toolkit = {name: os.environ.get(name, value) for name, value in WITHOUT_TOOLKIT.items()}
    variables = {**NO_TELEMETRY, "HF_HUB_OFFLINE": "1", **toolkit}
    if settings.training.verl.without_gpu:
        threads = {"OMP_NUM_THREADS": str(settings.training.threads)}
        variables |= read_table(__package__, "overrides")["environment_without_gpu"] | threads
    return variables


def translate_settings(settings: Settings, policy: Path, state: Path) -> dict[str, Any]:
    """Translate settings to changes of verl's configuration ``ppo_trainer``: values by dotted key, such as
    ``actor_rollout_ref.rollout.n``. A leading ``+`` adds a new key, ``++`` adds a key or changes an existing one. The
    file ``overrides.yaml`` says which they are.

    ``policy`` is the folder of the initial policy, ``state`` the folder of unfinished work. Raises SettingsError for
    settings with which verl cannot run, or whose memory does not fit.
    """
    check_settings(settings)
    verl, table = settings.training.verl, read_table(__package__, "overrides")
    values = settings_values(settings) | {
        "policy_folder": str(policy),
        "session_file": str(state / SESSION),
        "checkpoint_folder": str(state / CHECKPOINTS),
        "loops_file": str(Path(__file__).with_name("loops.yaml")),
        "constants": training_run,
    }
    changes = table["always"] | {name: evaluate(text, values) for name, text in table["settings"].items()}
    for name, value in environment_variables(settings).items():
        changes[f"+ray_kwargs.ray_init.runtime_env.env_vars.{name}"] = value
    if starts_frozen_server(settings):  # our trainer reads this key and starts it
        changes["+actor_rollout_ref.rollout.custom.frozen_memory"] = OWN_SERVER
    if verl.without_gpu:
        changes |= table["without_gpu"]
        # Logical devices for Ray; several machines get them from `ray_cluster`.
        ray_options = {} if verl.nodes > 1 else table["logical_devices"] | {"include_dashboard": False}
        changes |= {f"++ray_kwargs.ray_init.{name}": value for name, value in ray_options.items()}
    return changes


def hydra_arguments(changes: Mapping[str, Any]) -> list[str]:
    """Write ``changes`` of verl's configuration as arguments of Hydra, ``key=value`` with values in JSON."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in changes.items()]


def check_settings(settings: Settings) -> None:
    """Raise SettingsError for settings that the engine verl does not support, or whose memory does not fit; the file
    ``refusals.yaml`` lists them."""
    values = settings_values(settings)
    refuse(__package__, "settings", values)
    if not settings.training.verl.without_gpu:  # without a GPU there is no GPU memory to plan
        plan = memory_plan(settings)
        # What could be too small: the memory of a GPU in the phase that needs most, and the smallest cache of a server.
        phase, sizes = max(plan.phases.items(), key=lambda entry: sum(entry[1].values()))
        needed, largest = sum(sizes.values()), max(sizes, key=lambda name: sizes[name])
        values |= {"plan": plan, "phase": phase, "sizes": sizes, "needed": needed, "largest": largest}
        refuse(__package__, "memory", values | {"server": min(plan.servers, key=lambda server: server.tokens)})


def why_not_run(settings: Settings) -> str:
    """Say why the engine verl cannot run a training with these settings: an empty text where it can."""
    try:
        check_required(settings)
        check_settings(settings)
    except SettingsError as error:
        return str(error)
    return ""
