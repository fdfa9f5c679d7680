"""Estimates, before a training with verl starts, the GPU memory that it needs (``memory.yaml``). The numbers are upper
bounds from the model's configuration, plus an allowance for libraries."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ...agents.policy import longest_sequence
from ...settings import Settings, SettingsError, algorithm_class, algorithm_options
from ...settings.tables import add_quantities, evaluate, read_table
from ..training_run import uses_frozen_policy

OWN_SERVER = 0.85  # share of memory of a frozen server that has a GPU of its own


class ModelSize(BaseModel):
    """The sizes of a decoder-only language model with grouped-query attention and gated feed-forward layers, as in its
    ``config.json``. ``tied`` says that embedding and output layer share one matrix; ``positions`` is the number of
    tokens of the longest sequence that the model can read."""

    hidden: int = Field(alias="hidden_size")
    layers: int = Field(alias="num_hidden_layers")
    heads: int = Field(alias="num_attention_heads")
    kv_heads: int = Field(alias="num_key_value_heads", default_factory=lambda known: known["heads"])
    head_dim: int = Field(default_factory=lambda known: known["hidden"] // known["heads"])
    intermediate: int = Field(alias="intermediate_size")
    vocab: int = Field(alias="vocab_size")
    tied: bool = Field(alias="tie_word_embeddings", default=False)
    positions: int = Field(alias="max_position_embeddings")


def model_size(settings: Settings) -> ModelSize:
    """Read the sizes of the model in the folder ``policy.model`` from its ``config.json``. Raises SettingsError where
    that file is missing or of another kind of model."""
    path = Path(settings.policy.model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return ModelSize.model_validate({name: value for name, value in config.items() if value is not None})
    except (OSError, ValueError, AttributeError) as error:
        # Of an invalid file the first problem alone: the name of the field and the message.
        why = "{loc[0]}: {msg}".format(**error.errors()[0]) if isinstance(error, ValidationError) else error
        raise SettingsError(
            f"{path}: no configuration of a decoder that can be planned ({why}); get this file of the model (hf "
            f"download OWNER/NAME config.json --local-dir {path.parent}), or name its folder in policy.model"
        ) from error


def settings_values(settings: Settings) -> dict[str, Any]:
    """Return what the expressions in the tables of this package may name: the sections of the settings, and what
    follows from them."""
    verl, algorithm = settings.training.verl, algorithm_class(settings.training.algorithm)
    return dict(settings) | {
        "verl": verl,
        "algorithm": algorithm,
        "options": algorithm_options(settings),
        "scores": algorithm.scoring_policies(settings),
        "gpus": verl.nodes * verl.gpus_per_node,
        "longest": longest_sequence(settings),
        "micro_batch": micro_batch(settings),
        "uses_frozen": uses_frozen_policy(settings),
        "starts_frozen": starts_frozen_server(settings),
        "own_server": OWN_SERVER,
        "gb": 1e9,  # bytes
    }


def memory_plan(settings: Settings) -> SimpleNamespace:
    """Estimate the memory of a run under these settings: that of each training GPU in each phase of a step, and that of
    the servers. Returns an object with all values of ``memory.yaml``, such as the number of training ``gpus``, the
    ``parameters`` of the model, and ``longest``, the tokens of the longest sequence. Its ``phases`` say for each phase
    what takes memory on one training GPU: GB by purpose, such as ``{"update": {"weights": 16.1}}``. Its ``servers``,
    those of the policy and then the frozen one if its memory is known, have the values of their row (``tokens``, say).

    Raises SettingsError where the model's ``config.json`` is missing or of another kind of model."""
    table = read_table(__package__, "memory")
    values = table["constants"] | settings_values(settings) | {"model": model_size(settings)}
    values = add_quantities(table["sizes"], values)
    servers = [
        SimpleNamespace(name=name, **add_quantities(row | table["every_server"], values))
        for name, row in table["servers"].items()
        if evaluate(row["if"], values)
    ]
    values = add_quantities(table["quantities"], values | {"servers": servers})
    phases = {
        phase: {purpose: evaluate(size, values) for purpose, size in sizes.items()}
        for phase, sizes in table["phases"].items()
    }
    return SimpleNamespace(**values, phases=phases)


def micro_batch(settings: Settings) -> int:
    """Choose the number of trajectories in one pass of a GPU: the largest number up to `training.micro_batch` (paper,
    appendix, Training details: "a per-GPU PPO micro-batch of 8") that divides a GPU's share of a batch and of a
    mini-batch, since verl needs equal parts; 1 where there are more GPUs than trajectories. The loss does not depend on
    it."""
    training, gpus = settings.training, settings.training.verl.nodes * settings.training.verl.gpus_per_node
    batch_share = training.prompts_per_batch * training.group_size // gpus
    mini_batch_share = training.mini_batch_prompts * training.group_size // gpus
    common = math.gcd(batch_share, mini_batch_share)  # what divides it divides both
    sizes = (size for size in range(1, min(training.micro_batch, common) + 1) if common % size == 0)
    return max(sizes, default=1)


def cpus_of_ray(settings: Settings) -> int:
    """Count the CPUs that the processes of a run reserve in Ray: two for verl's queue of data (TransferQueue), three
    for every training GPU, two for a frozen server that verl starts. With fewer CPUs Ray would wait without end."""
    verl = settings.training.verl
    return 2 + 3 * verl.nodes * verl.gpus_per_node + 2 * starts_frozen_server(settings)


def starts_frozen_server(settings: Settings) -> bool:
    """Whether verl starts a server of the frozen initial policy on a GPU of its own: the algorithm uses that policy,
    and the settings name no server of it."""
    frozen = settings.training.verl.frozen
    return uses_frozen_policy(settings) and frozen.url is None and not frozen.beside
