"""Estimates, before a training with verl starts, how long it takes, from the work of a step (``duration.yaml``)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...settings import Settings
from .memory import memory_plan, settings_values
from .tables import add_quantities, evaluate, read_table

if TYPE_CHECKING:
    import pandas as pd


Behaviour = Mapping[str, float]  # of a policy: ``behaviour`` of ``duration.yaml``, by name


def behaviour_within(settings: Settings) -> Behaviour:
    """Return the assumed behaviour of a policy, with its turns and lengths cut to the limits of ``settings``."""
    policy, usual = settings.policy, read_table("duration")["behaviour"]
    limits = {"turns": settings.environment.max_turns, "opening": policy.max_prompt_tokens}
    limits["reply"] = policy.max_turn_tokens
    return usual | {name: min(usual[name], limit) for name, limit in limits.items()}


class StepEstimate(NamedTuple):
    """The estimate of a training step: ``seconds`` by phase, and the ``work`` of the servers, a row for each phase but
    the update (:func:`step_work`). It assumes that servers cache prompts, and that no continuation comes from the
    rollout cache of earlier steps. ``steps`` is the number of steps of the whole run, ``gpus`` that of its GPUs on all
    machines, with the GPU of a frozen server if it has one of its own. ``total`` are the seconds of a whole step, whose
    phases run one after another, ``hours`` those of the whole run, ``gpu_hours`` these times its GPUs."""

    seconds: dict[str, float]
    work: "pd.DataFrame"
    steps: int
    gpus: int
    total: float
    hours: float
    gpu_hours: float


def estimate_step(settings: Settings) -> StepEstimate:
    """Estimate the time and the work of a training step under these settings. Raises SettingsError where the model's
    ``config.json`` is missing or of another kind of model (:func:`~.memory.model_size`)."""
    verl, memory, table = settings.training.verl, memory_plan(settings), read_table("duration")
    values = step_values(settings, behaviour_within(settings))
    values |= {"model": memory.model, "card": nearest_card(settings)}
    work, seconds = step_work(values), {}
    for phase, amounts in work.iterrows():
        of_frozen = values["uses_frozen"] and phase in ("continuations", "forced diagnoses", "scoring")
        # The servers of the policy come first in the plan, those of the frozen policy last.
        serving = values | {"work": amounts, "server": memory.servers[-1 if of_frozen else 0]}
        seconds[phase] = add_quantities(table["serving"], serving)["seconds"]
    seconds["update"] = add_quantities(table["update"], values)["seconds"]
    total, steps, gpus = sum(seconds.values()), steps_of(settings), verl.nodes * verl.gpus_of_node
    hours = total * steps / 3600
    return StepEstimate(seconds, work, steps, gpus, total, hours, hours * gpus)


def step_values(settings: Settings, behaviour: Behaviour) -> dict[str, Any]:
    """Compute the quantities of ``duration.yaml`` for a policy with this ``behaviour``; returns them by name, with the
    values from which they were computed."""
    return add_quantities(read_table("duration")["quantities"], settings_values(settings) | dict(behaviour))


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


def steps_of(settings: Settings) -> int:
    """Return the number of iterations of a training: ``training.steps``, or where that is not set ``training.epochs``
    epochs of ``data.train_cases`` cases, in whole batches."""
    training = settings.training
    return training.steps or training.epochs * (settings.data.train_cases // training.prompts_per_batch)
