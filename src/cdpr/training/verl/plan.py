"""Writes what ``cdpr plan_training`` prints: memory, time and verl's configuration of a training (``plan.txt``)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...escape import environment
from ...settings import Settings, judging_models
from .. import verl as templates
from .configuration import hydra_arguments, translate_settings, why_not_run
from .duration import estimate_step
from .memory import cpus_of_ray, memory_plan
from .tables import evaluate, read_table


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
    import pandas as pd

    rows = read_table("duration")["comparison"]
    grpo, *_ = columns.values()
    seconds = pd.DataFrame({name: step.seconds for name, step in columns.items()}).add_suffix(", s", axis=0)
    totals = {
        name: {row: evaluate(expression, {"step": step, "grpo": grpo}) for row, expression in rows.items()}
        for name, step in columns.items()
    }
    return pd.concat([seconds, pd.DataFrame(totals)]).to_string(float_format="{:,.1f}".format, na_rep="")
