"""Common ground: settings are checked and written once, every job gets its run key.

Reads  `config` (config.yaml, workflow/{experiments,agents,models}.yaml, and overlays).
Writes `<state>/resolved-<digest>.json`, which every job reads.
Offers `plan` (jobs, files and keys, see src/cdpr/workflow) and what rules are made of.

Rules hold no logic: a rule, its command `cdpr NAME` and its entry in src/cdpr/workflow/stages.py bear one name, and the
entry says what it needs and writes. `params.key` digests the settings, code and data that a job depends on: an edit
reruns exactly the jobs that it concerns, a `touch` none.
"""

import os
import re
import shlex
import sys

import yaml
from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod

try:
    from cdpr.settings import SettingsError, project_folder
    from cdpr.settings.datasets import BENCHMARKS, DATASETS
    from cdpr.settings.queries import check_path
    from cdpr.settings.runs import RUN
    from cdpr.workflow import forkserver, machines, served
    from cdpr.workflow.outlook import Outlook, outcome
    from cdpr.workflow.plan import KEEP_MEMORY, Plan
    from cdpr.workflow.stages import FIGURES, STAGES, TABLES
except ImportError as error:
    raise WorkflowError(f"{error}. Install the package first: `make env`, or `pip install -e .`")

check_path("the folder of the project", str(HERE))
plan = Plan(config)
# Jobs that start a server of their model (rules/jobs.smk), by their rule.
SERVED = {job.rule: job for job in served.served_jobs(plan)}

with open(project_folder() / "workflow/targets.yaml", encoding="utf-8") as file:
    TARGETS = yaml.safe_load(file)

# The main process writes when work begins (`onstart`), which the workflow that uses this one as a module does not call.
if not workflow.is_main_process or Path(workflow.main_snakefile).resolve().parent not in (HERE, HERE / "workflow"):
    plan.write_settings()


def inputs(stage):
    """Input files by name, as functions of the wildcards."""
    files = {need: lambda options, need=need: plan.input(stage, need, dict(options)) for need in STAGES[stage].needs}
    files["evidence"] = plan.evidence_files(stage)
    if stage == "train_policy":
        files["tracking"] = ancient(plan.output("init_tracking", "ready"))
    return files


def outputs(stage):
    """Output files by name, and the job's run.json."""
    files = {name: directory(out.path) if out.folder else out.path for name, out in STAGES[stage].outputs.items()}
    return files | {"record": plan.output(stage, "record")}


def params(stage):
    """The run key, and the flags that name the job and its files."""
    return {
        "key": lambda wildcards: plan.key(stage, **{k: str(v) for k, v in dict(wildcards).items()}),
        "files": lambda wildcards, input, output: plan.flags(stage, dict(wildcards), input, output),
        "stage": stage,
        "environment": plan.environment(stage),
    }


def of(*stages):
    """Outputs of stages with one job."""
    return [path for stage in stages for path in plan.outputs(stage)]


def cards():
    """Data cards of all data sets."""
    return [path for d in plan.datasets for path in plan.outputs("write_data_card", dataset=d)]


def log_file(stage):
    """The log of a job: a folder per stage, a file per job."""
    wildcards = (f"{{{option}}}" for option in STAGES[stage].options)
    return f"<logs>/{'/'.join([stage, *wildcards])}.log"


# The command of every stage: the subcommand of the rule's name. Its output goes to its log; on another machine also to
# the log of the scheduler.
LOG = "> {log:q} 2>&1" if workflow.is_main_process else "2>&1 | tee -- {log:q}"
COMMAND = f"{{params.environment}}cdpr {{params.stage}} --key {{params.key}} {{params.files}} {LOG}"

ACTING = ("evaluate_agent", "train_policy", "sample_states", "propose_actions")
# Every job reads the resolved settings. Without an activated environment the `cdpr` beside this Python serves. A conda
# environment has all packages but this one, which is that of the checkout.
PREFIX = f"set -euo pipefail; export CDPR_SETTINGS={shlex.quote(plan.resolved_settings)}; "
if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method:
    PREFIX += f"export PYTHONPATH={shlex.quote(str(HERE / 'src'))}; cdpr() {{ python -m cdpr.command \"$@\"; }}; "
else:
    PREFIX += f'export PATH="$PATH":{shlex.quote(os.path.dirname(sys.executable))}; '
shell.prefix(PREFIX.replace("{", "{{").replace("}", "}}"))  # a folder's name is no pattern


pathvars:
    results=plan.results,
    logs=f"{plan.results}/logs",


wildcard_constraints:
    dataset="[a-z_]+",
    run=RUN,


def show(message, **details):
    """Show a message to the user, and write it to the full log (see src/snakemake_logger_plugin_cdpr)."""
    logger.info(str(message), extra=details)


def acting_runs(jobs):
    """Runs whose agents act in these jobs: what they lack stops the run before its first job."""
    for job in jobs:
        if job.rule.name in SERVED:
            yield from SERVED[job.rule.name].runs
        elif job.rule.name in ACTING:
            yield job.wildcards.run


onstart:
    if not log:  # Snakemake has said why
        raise SettingsError("Nothing was started: the log of the run cannot be written below .snakemake/")
    jobs = list(workflow.dag.needrun_jobs())
    rules_and_threads = [(job.rule.name, job.threads) for job in jobs]
    plan.begin(dict.fromkeys(acting_runs(jobs)))
    if workflow.local_exec:
        # The limit of jobs per second protects schedulers of clusters. Here it would wake Snakemake's scheduler a
        # hundred times a second, on the cores that jobs need.
        workflow.scheduler.job_rate_limiter = None
        # Jobs of the tiny policy are short. Other policies may use a GPU, which does not survive a fork.
        if plan.settings.policy.model == "tiny" and not workflow.deployment_settings.deployment_method:
            tensors = any(rule in STAGES and STAGES[rule].tensors for rule, _ in rules_and_threads)
            workflow.forkserver = forkserver.start(KEEP_MEMORY, tensors)
    cores = workflow.cores if workflow.local_exec else None
    outlook = Outlook(plan, rules_and_threads, cores, workflow.overwrite_configfiles)
    targets = ", ".join(sorted(job.rule.name for job in workflow.dag.targetjobs)[:5])
    logs = f"Full log: {os.path.relpath(log[0])}; each job's own: {plan.results}/logs/"
    follows = machines.follow_jobs(workflow.executor_settings)
    show(f"{targets}: {outlook}\n{logs}{follows}", outlook=outlook)


onsuccess:
    jobs = workflow.dag.targetjobs
    files = [str(file) for job in jobs for file in job.output or job.input]
    show(outcome(plan, files, [str(file) for job in jobs for file in job.log]), outcome=True)


onerror:
    show(
        "Not everything was made. When the cause is mended, the same command continues where the work stopped.\n"
        f"Full log: {os.path.relpath(log[0])}",
        outcome=False,
    )
