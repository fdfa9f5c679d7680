"""Running jobs of a stage: the frame around each, its settings, its key and its files."""

import pkgutil
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from ..files import path_digest
from ..records import FileDigest, RunRecord
from ..settings import SettingsError, TrainedRun, digest
from . import frame, own_code
from .evidence import EVIDENCE
from .experiment import Experiment, stage_of
from .stages import Options


def run_jobs(
    experiment: Experiment, stage: str, jobs: Sequence[Options], inputs: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Sequence[str]], *, key: str | None = None,
    server_of: Callable[[Experiment, str, Options], AbstractContextManager[Any]] = lambda *job: nullcontext(),
) -> None:  # fmt: skip
    """Run jobs of a stage in this process, one after another. Inputs and outputs are paths by name: one for all jobs,
    or one for each, in their order.

    Snakemake deletes the outputs of a failed job. So the rows of finished evaluations stay under ``state`` until all
    have ended, and a rerun continues after them. ``server_of`` gives each job its server of models. Raises
    SettingsError for another number of paths, and as :func:`run_stage`.
    """
    if wrong := [name for name, paths in {**inputs, **outputs}.items() if len(paths) not in (1, len(jobs))]:
        raise SettingsError(f"{stage}: {', '.join(wrong)}: give one path, or one for each of the {len(jobs)} jobs")
    finished = []
    for n, options in enumerate(jobs):
        read, written = ({name: paths[n % len(paths)] for name, paths in files.items()} for files in (inputs, outputs))
        if len(jobs) > 1 and "run" in options and (policy := experiment.acting_policy(options["run"])):
            read.setdefault("policy", policy)
        with server_of(experiment, stage, options) as server:
            run_stage(experiment, stage, options, read, written, key=None if jobs[1:] else key, server=server)
        if jobs[1:] and "evaluation" in written:
            finished.append(keep_rows(experiment, written["evaluation"]))
    for rows in finished:
        rows.unlink()


def keep_rows(experiment: Experiment, evaluation: str) -> Path:
    """Put the rows of a finished evaluation where the next attempt looks for them."""
    written = Path(experiment.resolved(evaluation))
    rows = Path(experiment.state) / RunRecord.read(written.with_suffix(".run.json")).run_key / "evaluation.jsonl"
    rows.parent.mkdir(exist_ok=True)
    shutil.copyfile(written, rows)
    return rows


def run_stage(
    experiment: Experiment, name: str, options: Options, inputs: Mapping[str, str], outputs: Mapping[str, str], *,
    key: str | None = None, server: Any = None,
) -> None:  # fmt: skip
    """Run the stage ``name``. ``inputs`` and ``outputs`` are paths by name, ``<results>`` standing for the results
    folder; the output ``record`` is its run.json, by default beside the first output. ``key`` is its run key, computed
    when left out. ``server`` is the job's own server of models, if it has one.

    Raises StageError for a missing file, UndeclaredSetting and UndeclaredFile for reading what is not declared,
    SettingsError for an unknown stage, and what the stage raises.
    """
    from .mlflow_index import live_run

    stage = stage_of(name)
    paths = {label: Path(experiment.resolved(path)) for label, path in outputs.items()}
    if not paths.keys() - {"record"}:
        raise frame.StageError(f"{name}: name its outputs (--output NAME=PATH ...), as its rule in rules/ does; "
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
    known = [part for file in described.values() for part in contents(Path(file.path), file.sha256)]
    about.run_key += f"-{digest(known + _behind(experiment, name))}"
    with frame.stage(about, read, paths, record, Path(experiment.state)) as job:
        job.inputs["results"] = Path(experiment.results)
        job.page = tuple(experiment.page().values()) if name == "write_report" else ()
        job.server = server
        is_live = stage.live and settings.tracking.mlflow
        following = live_run(settings, about, job.state) if is_live else nullcontext()
        own_code.allow([*job.inputs.values(), *job.out.values(), job.state])
        with following:
            pkgutil.resolve_name(stage.target(settings))(stage.view(settings, options, name), job)
        own_code.check()


def contents(path: Path, sha256: str) -> list[str]:
    """What a run key takes of a file: its digest; of a run.json, which holds times, the digests of its outputs but for
    those that hold times themselves. So two runs of the same work have the same keys."""
    if not path.name.endswith("run.json"):
        return [sha256]
    return [output.sha256 for name, output in RunRecord.read(path).outputs.items() if name != "timings"]


def _behind(experiment: Experiment, name: str) -> list[str]:
    """Digests of the evaluations that a table or figure is made of, as their records state them."""
    if name not in EVIDENCE:
        return []
    files = (Path(experiment.resolved(path)) for path in experiment.files_behind(name))
    records = (path for path in files if path.name.endswith("run.json") and path.exists())
    return [part for path in records for part in contents(path, "")]
