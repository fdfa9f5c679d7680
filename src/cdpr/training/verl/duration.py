"""Estimates, before a training with verl starts, how long it takes, from the work of a step (``duration.yaml``)."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...settings import Settings
from .memory import memory_plan, settings_values
from .tables import add_quantities, evaluate, read_table

if TYPE_CHECKING:
    import pandas as pd


Behaviour = Mapping[str, float]  # of a policy: ``behaviour`` of ``duration.yaml``, by name


def estimate_step(settings: Settings) -> SimpleNamespace:
    """Estimate the time and the work of a training step under these settings. It assumes that servers cache prompts,
    and that no continuation comes from the rollout cache of earlier steps. Returns an object with all values of
    ``duration.yaml``: ``seconds`` by phase; ``work``, the work of the servers, a row for each phase but the update
    (:func:`step_work`); what follows for the step and the whole run (``total`` seconds, ``steps``, ``hours``,
    ``all_gpus``, ``gpu_hours``); and the GPU ``card``.

    Raises SettingsError where the model's ``config.json`` is missing or of another kind of model
    (:func:`~.memory.model_size`)."""
    memory, table = memory_plan(settings), read_table("duration")
    values = step_values(settings) | {"model": memory.model, "card": nearest_card(settings)}
    work, seconds = step_work(values), {}
    for phase, amounts in work.iterrows():
        of_frozen = values["uses_frozen"] and phase in ("continuations", "forced diagnoses", "scoring")
        # The servers of the policy come first in the plan, those of the frozen policy last.
        serving = values | {"work": amounts, "server": memory.servers[-1 if of_frozen else 0]}
        seconds[phase] = add_quantities(table["serving"], serving)["seconds"]
    seconds["update"] = add_quantities(table["update"], values)["seconds"]
    return SimpleNamespace(**add_quantities(table["run"], values | {"work": work, "seconds": seconds}))


def step_values(settings: Settings, behaviour: Behaviour | None = None) -> dict[str, Any]:
    """Compute the quantities of ``duration.yaml`` for a policy with this ``behaviour``, by default the assumed one, cut
    to the limits of the settings; returns them by name, with the values from which they were computed."""
    table = read_table("duration")
    return add_quantities(table["quantities"], settings_values(settings) | dict(behaviour or table["behaviour"]))


def step_work(values: Mapping[str, Any]) -> "pd.DataFrame":
    """Estimate the work of the servers in a step from ``values``, those of :func:`step_values`. There is a row for each
    phase: rollouts, then the continuations or scored replies from which the algorithm computes credit. Columns: the
    number of ``sequences`` that are generated at the same time, of generated ``tokens``, of ``prompt`` tokens that are
    not cached, of ``requests``, and of ``diagnoses`` that the judge gets."""
    import pandas as pd

    rows = {
        phase: {amount: evaluate(expression, values) for amount, expression in row.items() if amount != "if"}
        for phase, row in read_table("duration")["work"].items()
        if evaluate(row["if"], values)
    }
    return pd.DataFrame.from_dict(rows, orient="index").fillna(0.0)


def nearest_card(settings: Settings) -> dict[str, Any]:
    """Return the GPU in ``duration.yaml`` whose memory is nearest to ``training.verl.gpu_memory_gb``: its ``name``, its
    ``memory`` in GB, its speed in dense bfloat16 TFLOP/s, ``tflops``, and its memory's ``bandwidth`` in GB/s."""
    cards = read_table("duration")["cards"]
    return min(cards, key=lambda card: abs(card["memory"] - settings.training.verl.gpu_memory_gb))
