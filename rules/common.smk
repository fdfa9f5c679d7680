"""Helpers of all rules. Memory is in MB, runtime in minutes.

Reads  `config` (config.yaml, workflow/{experiments,agents,models}.yaml, and overlays).
Offers `experiment` (runs, data sets, run keys), `settings`, and the functions below.
"""

import json
import os
import re
import shlex

from snakemake.settings.types import DeploymentMethod

try:
    from cdpr.settings import SettingsError
    from cdpr.settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN, LESSONS
    from cdpr.settings.queries import check_path
    from cdpr.settings.runs import RUN
    from cdpr.workflow import machines
    from cdpr.workflow.evidence import inspected_credit
    from cdpr.workflow.experiment import Experiment
except ImportError as error:
    raise WorkflowError(f"{error}. Install the package first: `make env`, or `pip install -e .`")

check_path("the folder of the project", str(HERE))
experiment = Experiment(config)
experiment.keep_private()
if workflow.is_main_process:
    experiment.check_plan()
settings, evidence = experiment.settings, experiment.evidence_files
PAGE = []  # what the results page shows, in its order
with_conda = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
shell.prefix(machines.shell_prefix(experiment.resolved_settings, HERE / "src" if with_conda else None))


def given(path):
    """An input that a job makes, or a file of the user's own, whose content counts and not its time. Where that is
    missing the workflow can be planned all the same; a run is refused before its first job."""
    if not path or path.startswith("<results>"):
        return path or []
    return [ancient(path)] if os.path.exists(path) else []


def job(stage):
    """Parameters of a job: its run key, and the flags of its command."""

    def named(files):
        paths = {name: [path] if isinstance(path, str) else list(path) for name, path in files.items()}
        return {name: str(single[0]) for name, single in paths.items() if len(single) == 1}

    def flags(wildcards, input, output):
        words = [f"--{name}={value}" for name, value in wildcards.items()]
        for flag, files in (("--input", named(input)), ("--output", named(output))):
            words += [flag, *(f"{name}={path}" for name, path in files.items())] if files else []
        return shlex.join(words)

    return {
        "stage": stage,
        "key": lambda wildcards: experiment.key(stage, **dict(wildcards)),
        "flags": flags,
    }


def result(stage, stem, chapter="", **more):
    """Files of a table (`write_...`) or figure (`plot_...`). With a chapter our page and `snakemake --report` show it,
    with the text `params.about`."""
    kinds = ("md", "csv", "tex") if stage.startswith("write_") else ("png", "pdf")
    files = {kind: f"{stem}.{kind}" for kind in kinds} | {"record": f"{stem}.run.json"}
    if chapter:
        first = files[kinds[0]]
        PAGE.append({"rule": stage, "file": first.removeprefix("<results>/"), "chapter": chapter, **more})
        files[kinds[0]] = report(first, caption="caption.rst", category=chapter)
    return files


def page():
    """What our page shows, as JSON."""
    return json.dumps([part | {"text": getattr(rules, part["rule"]).params.about} for part in PAGE])
