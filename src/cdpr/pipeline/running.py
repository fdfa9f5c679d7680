"""Runs jobs of a stage: finds the settings, key and files of each, and calls the stage's function."""

import pkgutil
import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from ..records import RunRecord
from ..settings import SettingsError, TrainedRun, digest
from . import frame, own_code
from .evidence import EVIDENCE
from .experiment import Experiment, stage_of
from .mlflow_index import live_run
from .served import EVALUATION_STAGE, own_server, served_jobs, server_of
from .stages import Options

PathLists = Mapping[str, Sequence[str]]


class JobRequest(NamedTuple):
    """A job to run: its stage, its options (such as ``{"run": "cdpr-seed0"}``), and the path of each input and output
    by its name in the rule. In a path ``<results>`` means the results folder. The output ``record`` is the job's
    run.json, by default beside the first output. ``key`` is the run key; None: it is computed when the job runs."""

    stage: str
    options: Options
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    key: str | None = None


def run_jobs(
    experiment: Experiment, stage: str, jobs: Sequence[Options], inputs: PathLists, outputs: PathLists, key: str | None
) -> None:
    """Run one or several jobs of a stage in this process, one after another, each with the model server that it needs.

    ``jobs`` has the options of each job. Every input and output has one path for all jobs, or one for each job in their
    order; any other number of paths raises SettingsError. ``key`` is the run key of a single job; for several it is not
    used, and each computes its own. Raises what :func:`run_stage` raises.

    Where there are several jobs, each also gets the policy of its own run as the input ``policy``, unless ``inputs``
    have one. The rows that an evaluation saves in its folder of unfinished work are removed when all jobs have ended:
    Snakemake deletes the outputs of all jobs when one fails, and the next attempt finds the rows of the others.
    """
    if wrong := [name for name, paths in {**inputs, **outputs}.items() if len(paths) not in (1, len(jobs))]:
        raise SettingsError(f"{stage}: {', '.join(wrong)}: give one path, or one for each of the {len(jobs)} jobs")
    several = len(jobs) > 1
    states = []
    for number, options in enumerate(jobs):
        # The paths of this job, by name: each is its own, or the only one.
        reads = {name: paths[number if len(paths) > 1 else 0] for name, paths in inputs.items()}
        writes = {name: paths[number if len(paths) > 1 else 0] for name, paths in outputs.items()}
        if several and "run" in options and (policy := experiment.acting_policy(options["run"])):
            reads = {"policy": policy, **reads}
        with own_server(experiment, stage, options) as server:
            request = JobRequest(stage, options, reads, writes, None if several else key)
            states.append(run_stage(experiment, request, server))
    for state in states:
        (state / "evaluation.jsonl").unlink(missing_ok=True)


def evaluate_served(experiment: Experiment, name: str) -> None:
    """Run the episodes of all evaluations of the served job ``name`` (:mod:`.served`). The rows that each saves in its
    folder of unfinished work stay there, where the job `evaluate_agent` of the evaluation finds them.

    The server starts at the first question that no recording answers. When an evaluation fails, the rows of finished
    ones stay, and a rerun continues after them. Raises SettingsError for an unknown job, and what the evaluations
    raise.
    """
    jobs = {job.name: job for job in served_jobs(experiment)}
    if name not in jobs:
        raise SettingsError(f"{name!r} is no job with a server of its own; there are: {', '.join(jobs) or 'none'} "
                            "(serving.program, serving.models, serving.policies)")  # fmt: skip
    scratch = Path(experiment.state) / "servers" / name
    with server_of(experiment, jobs[name]) as server:
        for run, dataset in jobs[name].evaluations:
            inputs = {"cases": f"<results>/cases/{dataset}.jsonl"}
            if policy := experiment.acting_policy(run):
                inputs["policy"] = policy
            options, outputs = {"run": run, "dataset": dataset}, {"evaluation": f"{scratch}/{run}/{dataset}.jsonl"}
            run_stage(experiment, JobRequest(EVALUATION_STAGE, options, inputs, outputs), server)
    shutil.rmtree(scratch, ignore_errors=True)


def run_stage(experiment: Experiment, request: JobRequest, server: Any) -> Path:
    """Run one job; returns its folder of unfinished work. ``server`` is its model server, None if it has none.

    Raises StageError for a missing file, UndeclaredSetting and UndeclaredFile for reading what is not declared,
    SettingsError for an unknown stage, and what the stage raises.
    """
    name, options = request.stage, request.options
    stage = stage_of(name)
    inputs = {label: Path(experiment.resolve_path(path)) for label, path in request.inputs.items()}
    outputs = {label: Path(experiment.resolve_path(path)) for label, path in request.outputs.items()}
    record = outputs.pop("record", None)
    if not outputs:
        raise frame.StageError(f"{name}: name its outputs (--output NAME=PATH ...), as its rule in rules/ does; "
                               "snakemake does it for you: snakemake --cores all FILE")  # fmt: skip
    record = record or next(iter(outputs.values())).with_suffix(".run.json")  # beside the first output
    begun = _describe_job(experiment, request, inputs)
    settings = experiment.settings_of(name, options)
    with frame.stage(begun, inputs, outputs, record, Path(experiment.state)) as job:
        job.inputs["results"] = Path(experiment.results)
        job.page = tuple(experiment.page().values()) if name == "write_report" else ()
        job.server = server
        # Lets modules of the user, such as an algorithm, read the files of this job.
        own_code.allow([*job.inputs.values(), *job.out.values(), job.state])
        with live_run(settings, begun, job.state) if stage.live and settings.tracking.mlflow else nullcontext():
            function, view = pkgutil.resolve_name(stage.target(settings)), stage.view(settings, options, name)
            if ":sheet_" in stage.target(settings):  # a table: made from the results folder, and returned
                function(view, job.inputs["results"]).write(job.out)
            else:
                function(view, job)
        own_code.check()
    return job.state


def _describe_job(experiment: Experiment, request: JobRequest, inputs: Mapping[str, Path]) -> RunRecord:
    """Write the record of a job as far as it is known before the job runs. The run key in it is KEY-DIGEST, the key of
    the job and a digest of its inputs, because unfinished work of other inputs must not be continued."""
    name, options = request.stage, request.options
    training = experiment.training_of(name, options)
    # By these tags MLflow groups all jobs of a variant, its evaluations too; an agent counts as a variant.
    tags = {"variant": options["run"]} if "run" in options else {}
    if trained := TrainedRun.parse(options.get("run", "")):
        tags = {"variant": trained.variant, "seed": str(trained.seed)}
    # An input that does not exist is left out here; `frame.stage` raises an error for it.
    files = frame.describe_files({label: path for label, path in inputs.items() if path.exists()})
    contents = [sha256 for file in files.values() for sha256 in list_contents(Path(file.path), file.sha256)]
    # The rule of a table or figure lists the results that it shows as inputs without a name. A job is given only the
    # inputs that have a name, so `inputs` lacks these results. Here the run.json of each of them is added.
    shown = map(experiment.resolve_path, experiment.files_behind(name) if name in EVIDENCE else [])
    records = [Path(path) for path in shown if path.endswith("run.json") and Path(path).exists()]
    # "": a run.json is represented by the digests of the outputs that it lists, so its own is not needed.
    contents += [sha256 for record in records for sha256 in list_contents(record, "")]
    run_key = f"{request.key or experiment.key(name, **options)}-{digest(contents)}"
    return RunRecord(stage=name, experiment=stage_of(name).experiment, run_key=run_key,
                     tier=experiment.settings_of(name, options).tier, seed=training and training.seed,
                     options=dict(options), tags=tags, parameters=experiment.parameters(name, options),
                     code_digest=experiment.code(name, options), inputs=files)  # fmt: skip


def list_contents(path: Path, sha256: str) -> list[str]:
    """List the digests that represent a file in a run key, so that two runs of the same work have the same key. Most
    files are represented by their own digest ``sha256``. A run.json holds times, so it is represented by the digests of
    the outputs that it lists, without that of ``timings``; ``sha256`` is then not used."""
    if not path.name.endswith("run.json"):
        return [sha256]
    return [output.sha256 for name, output in RunRecord.read(path).outputs.items() if name != "timings"]
