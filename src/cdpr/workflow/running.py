"""One job of one stage, with the frame around it: what a subcommand does, and a job that runs several."""

import contextlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import tracking
from ..records import RunRecord
from ..settings import TrainedRun
from ..settings.section import Section
from .experiment import Options
from .plan import Plan
from .stage import Stage


def run_stage(
    plan: Plan, stage: Stage, options: Options, paths: Mapping[str, str | None] | None = None, server: Any = None
) -> None:
    """Run the stage's function on its files. ``paths`` may place inputs, outputs and ``record`` elsewhere than the
    workflow does, and may name the ``key`` and the folder of ``results``; ``server`` is passed on to the job.
    Raises StageError where the function reads a setting that the stage does not declare."""
    from ..tracking.mlflow_index import live_run

    paths = paths or {}
    files = {name: paths.get(name) or plan.file(stage.name, name, options) for name in (*stage.needs, *stage.outputs)}
    inputs = {name: Path(files[name]) for name in stage.needs if files[name]}
    outputs = {name: Path(files[name]) for name in stage.outputs}
    elsewhere = any(paths.get(name) for name in stage.outputs)
    beside = next(iter(outputs.values())).with_suffix(".run.json") if elsewhere else None
    record = paths.get("record") or beside or plan.file(stage.name, "record", options)
    parameters, key = plan.parameters(stage.name, options), paths.get("key") or plan.key(stage.name, **options)
    settings, seed = plan.settings_of(stage.name, options)
    trained = TrainedRun.parse(options.get("run", ""))
    tags = {"variant": trained.variant, "seed": str(trained.seed)} if trained else {"variant": options.get("run", "")}
    about = RunRecord(
        stage=stage.name, experiment=stage.experiment, run_key=key, tier=settings.tier, seed=seed, options=options,
        tags={name: value for name, value in tags.items() if value},
        parameters=parameters, code_digest=plan.code(stage.name, options),
    )  # fmt: skip
    with tracking.stage(about, inputs, outputs, Path(record), Path(plan.state)) as job:
        job.inputs["results"] = Path(paths.get("results") or plan.results)
        # The page is listed for the stage that shows it alone: to list it is to resolve every variant.
        job.page, job.server = plan.page if "page" in parameters else (), server
        is_live = stage.live and settings.tracking.mlflow
        following = live_run(settings, about, job.state) if is_live else contextlib.nullcontext()
        try:
            with following:
                pkgutil.resolve_name(stage.target(settings))(stage.view(settings, options), job)
        except AttributeError as error:
            if isinstance(error.obj, Section) and error.name in type(error.obj).model_fields:
                raise tracking.StageError(
                    f"reads the setting {type(error.obj).__name__}.{error.name}, which it does not declare; add it to "
                    "`reads` of the stage in src/cdpr/workflow/stages.py, or its run key would miss it"
                ) from error
            raise
