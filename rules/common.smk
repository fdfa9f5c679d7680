"""Helpers of all rules. Memory is in MB, runtime in minutes.

Reads  `config` (config.yaml, workflow/{experiments,agents,models}.yaml, and overlays).
Offers `experiment` (runs, data sets, run keys), `settings`, and the functions below.
"""

import json
import os
import re
import shlex
from itertools import product

from snakemake.settings.types import DeploymentMethod

try:
    from cdpr.settings import SettingsError, digest
    from cdpr.settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN, LESSONS
    from cdpr.settings.queries import check_path
    from cdpr.settings.runs import RUN
    from cdpr.pipeline import machines
    from cdpr.pipeline.evidence import inspected_credit
    from cdpr.pipeline.experiment import Experiment
    from cdpr.pipeline.stages import STAGES
except ImportError as error:
    raise WorkflowError(f"{error}. Install the package first: `make env`, or `pip install -e .`")

check_path("the folder of the project", str(HERE))
experiment = Experiment(config)
experiment.keep_private()
if workflow.is_main_process:
    experiment.check_plan()
settings, evidence = experiment.settings, experiment.files_behind
PAGE = []  # what the results page shows, in its order
MAIN = ("main_table", "main_results")  # the one table whose files have another name
with_conda = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
shell.prefix(machines.shell_prefix(experiment.resolved_settings, HERE / "src" if with_conda else None))


def given(path):
    """An input that a job makes, or a file of the user's own, whose content counts and not its time. Where that is
    missing the workflow can be planned all the same; a run is refused before its first job."""
    if not path or path.startswith("<results>"):
        return [path] if path else []
    return [ancient(path)] if os.path.exists(path) else []


def job(stage=None, page=None, **options):
    """Parameters of a job: its command, its run key, and the flags of its command. Of a job that does the work of several
    in one process the `options` are lists; a name then has a file for all of them, or one for each."""

    def options_of(wildcards):
        of_wildcards = {name: [value] for name, value in wildcards.items() if name in ("run", "dataset")}
        return of_wildcards | options

    def key(wildcards):
        chosen, name = options_of(wildcards), stage or result_stage(wildcards)
        keys = [experiment.key(name, **dict(zip(chosen, values))) for values in product(*chosen.values())]
        return digest(keys) if keys[1:] else keys[0]

    def flags(wildcards, input, output):
        words = [word for name, values in options_of(wildcards).items() for word in (f"--{name}", *values)]
        for flag, files in (("--input", input), ("--output", output)):
            paths = {name: [path] if isinstance(path, str) else path for name, path in files.items()}
            words += [flag] * any(paths.values()) + [f"{name}={path}" for name in paths for path in paths[name]]
        return shlex.join(words + (["--page", page()] if page else []))

    return {"stage": stage or result_stage, "key": key, "flags": flags}


def result_stage(wildcards):
    """The command that writes a table or draws a figure."""
    [(kind, name)] = wildcards.items()
    return {"table": "write_", "figure": "plot_"}[kind] + (MAIN[0] if name == MAIN[1] else name)


def behind(wildcards):
    """The evaluations and trainings behind a table or figure."""
    return evidence(result_stage(wildcards))


def result(stem, *kinds):
    """Files of a table or figure."""

    def chapter(wildcards):
        return next((part["chapter"] for part in PAGE if part["rule"] == result_stage(wildcards)), "Further results")

    files = {kind: f"{stem}.{kind}" for kind in kinds} | {"record": f"{stem}.run.json"}
    return files | {kinds[0]: report(files[kinds[0]], caption="caption.rst", category=chapter)}


def made(*stages):
    """All files of tables and figures."""
    names = {stage: stage.partition("_")[2].replace(*MAIN) for stage in stages}
    stems = {s: f"<results>/{'tables' if s.startswith('write_') else 'figures'}/{names[s]}" for s in stages}
    return [stems[s] + str(file).partition("}")[2] for s in stages for file in getattr(rules, s).output]


def shown(chapter, apart=False, **named):
    """Name of a table or figure that our page and `snakemake --report` show in a chapter, with the text `params.about`."""
    [(kind, name)] = named.items()
    file = f"{kind}s/{name}.{'md' if kind == 'table' else 'png'}"
    part = {"rule": result_stage(named), "file": file, "chapter": chapter, "apart": apart}
    PAGE.extend([part] if chapter else [])
    return named


def page():
    """What our page shows, as JSON."""
    return json.dumps([part | {"text": getattr(rules, part["rule"]).params.about} for part in PAGE])
