"""Running one stage: the frame around it, its settings, its key and its files."""

import contextlib
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import tracking
from ..files import path_digest
from ..job import PageEntry
from ..records import FileDigest, RunRecord
from ..settings import TrainedRun, digest
from . import own_code
from .evidence import EVIDENCE
from .experiment import Experiment, stage_of
from .stages import TABLES, Options


def run_stage(
    experiment: Experiment, name: str, options: Options, inputs: Mapping[str, str], outputs: Mapping[str, str], *,
    key: str | None = None, page: tuple[Mapping[str, Any], ...] = (), server: Any = None,
) -> None:  # fmt: skip
    """Run the stage ``name``. ``inputs`` and ``outputs`` are paths by name, ``<results>`` standing for the results
    folder; the output ``record`` is its run.json, by default beside the first output. ``key`` is its run key, computed
    when left out; ``page`` lists the tables and figures of the results page. ``server`` is the job's own server of
    models, if it has one.

    Raises StageError for a missing file, UndeclaredSetting and UndeclaredFile for reading what is not declared,
    SettingsError for an unknown stage, and what the stage raises.
    """
    from ..tracking.mlflow_index import live_run

    stage = stage_of(name)
    paths = {label: Path(experiment.resolved(path)) for label, path in outputs.items()}
    if not paths.keys() - {"record"}:
        raise tracking.StageError(f"{name}: name its outputs (--output NAME=PATH ...), as its rule in rules/ does; "
                                  "snakemake does it for you: snakemake --cores all FILE")  # fmt: skip
    record = paths.pop("record", next(iter(paths.values())).with_suffix(".run.json"))
    settings, seed = experiment.settings_of(name, options)
    trained = TrainedRun.parse(options.get("run", ""))
    tags = {"variant": trained.variant, "seed": str(trained.seed)} if trained else {"variant": options.get("run", "")}
    read = {label: Path(experiment.resolved(path)) for label, path in inputs.items()}
    described = {label: FileDigest(path=str(path), sha256=path_digest(path)) for label, path in read.items()
                 if path.exists()}  # fmt: skip
    about = RunRecord(
        stage=name, experiment=stage.experiment, run_key=key or experiment.key(name, **options), tier=settings.tier,
        seed=seed, options=dict(options), tags={label: value for label, value in tags.items() if value},
        parameters=experiment.parameters(name, options), code_digest=experiment.code(name, options), inputs=described,
    )  # fmt: skip
    # What a job has begun belongs to its inputs too.
    about.run_key += f"-{digest([file.sha256 for file in described.values()] + _behind(experiment, name))}"
    with tracking.stage(about, read, paths, record, Path(experiment.state)) as job:
        job.inputs["results"] = Path(experiment.results)
        modules = {part["rule"]: TABLES.get(part["rule"].removeprefix("write_"), "") for part in page}
        job.page = tuple(PageEntry(**{n: part[n] for n in part.keys() - {"rule"}}, module=modules[part["rule"]])
                         for part in page)  # fmt: skip
        job.server = server
        is_live = stage.live and settings.tracking.mlflow
        following = live_run(settings, about, job.state) if is_live else contextlib.nullcontext()
        own_code.allow([*job.inputs.values(), *job.out.values(), job.state])
        with following:
            pkgutil.resolve_name(stage.target(settings))(stage.view(settings, options, name), job)
        own_code.check()


def _behind(experiment: Experiment, name: str) -> list[str]:
    """Digests of the evaluations that a table or figure is made of, as their records state them."""
    if name not in EVIDENCE:
        return []
    files = (Path(experiment.resolved(path)) for path in experiment.files_behind(name))
    records = [RunRecord.read(path) for path in files if path.name.endswith("run.json") and path.exists()]
    return [output.sha256 for record in records for output in record.outputs.values()]
