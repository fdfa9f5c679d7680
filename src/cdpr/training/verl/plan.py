"""Estimates, before a training with verl starts, how long it takes, from the work of a step (``duration.yaml``), and
writes what ``cdpr plan_training`` prints: memory, time and verl's configuration of a training (``plan.txt``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from ...escape import environment
from ...settings import Settings, add_quantities, evaluate, judging_models, read_table
from .. import verl as templates
from .configuration import hydra_arguments, translate_settings, why_not_run
from .memory import cpus_of_ray, memory_plan, settings_values

Behaviour = Mapping[str, float]  # of a policy: ``behaviour`` of ``duration.yaml``, by name


def write_plan(
    settings: Settings, policy: Path, state: Path, columns: Mapping[str, Settings], runs: Sequence[Settings]
) -> str:
    """Write the plan of the training with these ``settings``, a text of several lines. Its initial policy is in the
    folder ``policy``, its unfinished work would be in ``state``.

    ``columns`` are the settings whose times are compared, by the name of their column, GRPO's first. ``runs`` are the
    settings of all trainings of the target ``reproduce_paper``. Raises SettingsError for settings with which verl
    cannot run, or whose memory does not fit."""
    values: dict[str, Any] = {"configuration": hydra_arguments(translate_settings(settings, policy, state))}
    if not settings.training.verl.without_gpu:
        values |= {
            "memory": memory_plan(settings),
            "cpus": cpus_of_ray(settings),
            "table": _compare({name: estimate_step(column) for name, column in columns.items()}),
            "reasons": {name: why_not_run(column) for name, column in columns.items()},
            "step": estimate_step(settings),
            "judge": judging_models(settings).get("judge.model"),
            "runs": [estimate_step(run) for run in runs],
        }
    return environment(templates).get_template("plan.txt").render(values, settings=settings)


def _compare(columns: Mapping[str, SimpleNamespace]) -> str:
    """Write a table that compares the time of a step and of the whole run. ``columns`` has the estimates by the name of
    their column; the first one, GRPO's, is that to which others are compared."""
    rows = read_table(__package__, "duration")["comparison"]
    grpo, *_ = columns.values()
    seconds = pd.DataFrame({name: step.seconds for name, step in columns.items()}).add_suffix(", s", axis=0)
    totals = {
        name: {row: evaluate(expression, {"step": step, "grpo": grpo}) for row, expression in rows.items()}
        for name, step in columns.items()
    }
    return pd.concat([seconds, pd.DataFrame(totals)]).to_string(float_format="{:,.1f}".format, na_rep="")


def estimate_step(settings: Settings) -> SimpleNamespace:
    """Estimate the time and the work of a training step under these settings. It assumes that servers cache prompts,
    and that no continuation comes from the rollout cache of earlier steps. Returns an object with all values of
    ``duration.yaml``: ``seconds`` by phase; ``work``, the work of the servers, a row for each phase but the update
    (:func:`step_work`); what follows for the step and the whole run (``total`` seconds, ``steps``, ``hours``,
    ``all_gpus``, ``gpu_hours``); and the GPU ``card``.

    Raises SettingsError where the model's ``config.json`` is missing or of another kind of model
    (:func:`~.memory.model_size`)."""
    memory, table = memory_plan(settings), read_table(__package__, "duration")
    values = step_values(settings) | {"parameters": memory.parameters, "card": nearest_card(settings)}
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
    table = read_table(__package__, "duration")
    return add_quantities(table["quantities"], settings_values(settings) | dict(behaviour or table["behaviour"]))


def step_work(values: Mapping[str, Any]) -> pd.DataFrame:
    """Estimate the work of the servers in a step from ``values``, those of :func:`step_values`. There is a row for each
    phase: rollouts, then the continuations or scored replies from which the algorithm computes credit. Columns: the
    number of ``sequences`` that are generated at the same time, of generated ``tokens``, of ``prompt`` tokens that are
    not cached, of ``requests``, and of ``diagnoses`` that the judge gets."""
    rows = {
        phase: {amount: evaluate(expression, values) for amount, expression in row.items() if amount != "if"}
        for phase, row in read_table(__package__, "duration")["work"].items()
        if evaluate(row["if"], values)
    }
    return pd.DataFrame.from_dict(rows, orient="index").fillna(0.0)


def nearest_card(settings: Settings) -> dict[str, Any]:
    """Return the GPU in ``duration.yaml`` whose memory is nearest to ``training.verl.gpu_memory_gb``: its ``name``, its
    ``memory`` in GB, its speed in dense bfloat16 TFLOP/s, ``tflops``, and its memory's ``bandwidth`` in GB/s."""
    cards = read_table(__package__, "duration")["cards"]
    return min(cards, key=lambda card: abs(card["memory"] - settings.training.verl.gpu_memory_gb))
