"""One job of one stage, with the frame around it: what a subcommand does, and a job that runs several."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import tracking
from ..records import RunRecord
from ..settings import load_settings
from ..settings.section import Section
from .experiment import Options
from .plan import Plan
from .stage import Stage

_PREPARED: dict[str, Plan] = {}


def planned(settings: Sequence[str]) -> Plan:
    """The plan of the settings in these files; later files override earlier ones. Raises SettingsError."""
    return _PREPARED.get(os.pathsep.join(settings)) or Plan(load_settings(*settings))


def prepare(stage: Stage, arguments: Sequence[str], settings: str) -> None:
    """Do the first work of every job of these settings once, in the process that jobs are forked from. Only resolved
    settings are cached, because the name of their file is the digest of their content."""
    if not Path(settings).name.startswith("resolved-"):
        return
    plan = _PREPARED.get(settings) or _PREPARED.setdefault(settings, Plan(load_settings(settings)))
    options = {name: arguments[arguments.index(f"--{name}") + 1] for name in stage.options}
    plan.code(stage.name, plan.settings_of(stage.name, options)[0], options)


def run_stage(
    plan: Plan, stage: Stage, options: Options, paths: Mapping[str, str | None] | None = None, server: Any = None
) -> None:
    """Run the stage's function on its files. ``paths`` may place inputs, outputs and ``record`` elsewhere than the
    workflow does, and may name the ``key`` and the folder of ``results``; ``server`` is passed on to the job.
    Raises StageError where the function reads a setting that the stage does not declare."""
    from ..tracking.mlflow_index import live_run

    paths = paths or {}
    outputs = {
        name: Path(paths.get(name) or plan.resolved(plan.output(stage.name, name, **options))) for name in stage.outputs
    }
    elsewhere = any(paths.get(name) for name in stage.outputs)
    beside = next(iter(outputs.values())).with_suffix(".run.json") if elsewhere else None
    record = paths.get("record") or beside or plan.resolved(plan.output(stage.name, "record", **options))
    inputs = {name: paths.get(name) or plan.place(plan.source(stage.name, name, options)) for name in stage.needs}
    existing = {name: Path(plan.resolved(path)) for name, path in inputs.items() if path}
    parameters, key = plan.parameters(stage.name, options), paths.get("key") or plan.key(stage.name, **options)
    settings, seed = plan.settings_of(stage.name, options)
    about = RunRecord(
        stage=stage.name, experiment=stage.experiment, run_key=key, tier=settings.tier, seed=seed, options=options,
        tags=_tags(options), parameters=parameters, code_digest=plan.code(stage.name, settings, options),
    )  # fmt: skip
    with tracking.stage(about, existing, outputs, Path(record), Path(plan.state)) as job:
        job.inputs["results"] = Path(paths.get("results") or plan.results)
        job.page, job.server = plan.page, server
        module, _, function = stage.target(settings).partition(":")
        following = live_run(settings, job, stage.experiment) if stage.live else contextlib.nullcontext()
        try:
            with following:
                getattr(importlib.import_module(module), function)(stage.view(settings, options), job)
        except AttributeError as error:
            if isinstance(error.obj, Section) and error.name in type(error.obj).model_fields:
                raise tracking.StageError(
                    f"reads the setting {type(error.obj).__name__}.{error.name}, which it does not declare; add it to "
                    "`reads` of the stage in src/cdpr/workflow/stages.py, or its run key would miss it"
                ) from error
            raise


def _tags(options: Options) -> dict[str, str]:
    variant, _, seed = options.get("run", "").partition("-seed")
    return {name: value for name, value in (("variant", variant), ("seed", seed)) if value}
