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

from snakemake.logging import logger

try:
    from cdpr.settings import SettingsError
    from cdpr.settings.datasets import BENCHMARKS, DATASETS
    from cdpr.workflow import forkserver, served
    from cdpr.workflow.machines import serving_machine
    from cdpr.workflow.outlook import Outlook, outcome
    from cdpr.workflow.plan import KEEP_MEMORY, Plan
    from cdpr.workflow.stages import FIGURES, STAGES, TABLES
except ImportError as error:
    raise WorkflowError(
        f"{error}. Install the package first: `make env`, or `pip install -e .`"
    )

try:
    plan = Plan(config)
    # Jobs that start a server of their model (rules/evaluate.smk), by their rule.
    SERVED = {job.rule: job for job in served.served_jobs(plan)}
except SettingsError as error:
    raise WorkflowError(str(error))

if (
    not workflow.is_main_process
):  # a job on another machine; the main process writes when work begins
    plan.write_settings()


def inputs(stage):
    """Input files by name, as functions of the wildcards."""
    return {
        need: lambda wildcards, need=need: plan.input(stage, need, dict(wildcards))
        for need in STAGES[stage].needs
    }


def outputs(stage):
    """Output files by name, and the job's run.json."""
    made = {}
    for name, output in STAGES[stage].outputs.items():
        made[name] = directory(output.path) if output.folder else output.path
        if output.report:
            category, labels = output.report
            caption = f"../workflow/report/{caption_of(stage)}.rst"
            made[name] = report(
                made[name], caption=caption, category=category, labels=labels
            )
    return made | {"record": plan.output(stage, "record")}


def params(stage):
    """The run key, and the flags that name the job and its files."""
    return {
        "key": lambda wildcards: plan.key(
            stage, **{k: str(v) for k, v in dict(wildcards).items()}
        ),
        "files": lambda wildcards, input, output: plan.flags(
            stage, dict(wildcards), input, output
        ),
        "stage": stage,
        "environment": plan.environment(stage),
    }


def serving(job):
    """What a job with a server of its own reads and writes, by the name of a rule's part."""
    inputs, outputs = served.files_of(plan, job)
    return {
        "input": inputs,
        "output": outputs,
        "key": lambda wildcards: served.key_of(plan, job),
    }


def of(*stages):
    """Outputs of stages with one job."""
    return [path for stage in stages for path in plan.outputs(stage)]


def caption_of(stage):
    """File name of a caption: the stage's name without its verb."""
    return stage.partition("_")[2]


# The command of every stage: the subcommand of the rule's name. What it says goes to its log; a job on another machine
# also says it to its scheduler.
SAYS = "> {log} 2>&1" if workflow.is_main_process else "2>&1 | tee {log}"
COMMAND = f"{{params.environment}}cdpr {{params.stage}} --key {{params.key}} {{params.files}} {SAYS}"

RUN = r"[a-z][a-z0-9_.]*(-seed\d+)?"
# Runs that no job with a server evaluates.
SERVED_RUNS = "|".join(re.escape(run) for job in SERVED.values() for run in job.runs)
UNSERVED = (rf"(?!(?:{SERVED_RUNS})/)" if SERVED else "") + RUN

# A data set itself, not its leak-controlled variant.
BENCHMARK = "|".join(DATASETS)

# Every job reads the resolved settings. Without an activated environment the `cdpr` beside this Python serves; that of
# a conda environment comes first.
shell.prefix(
    f"set -euo pipefail; export CDPR_SETTINGS={shlex.quote(plan.resolved_settings)}; "
    f'export PATH="$PATH:{os.path.dirname(sys.executable)}"; '
)


pathvars:
    results=plan.results,
    logs=f"{plan.results}/logs",


wildcard_constraints:
    dataset="[a-z_]+",
    run=RUN,


def tell(message, **details):
    """Say something to the user, and to the full log (see src/snakemake_logger_plugin_cdpr)."""
    logger.info(str(message), extra=details)


onstart:
    judged = (
        j
        for j in workflow.dag.needrun_jobs()
        if j.rule.name
        in ("evaluate_agent", "train_policy", "sample_states", "propose_actions")
    )
    behind = (
        SERVED[j.rule.name]
        for j in workflow.dag.needrun_jobs()
        if j.rule.name in SERVED
    )
    plan.begin(
        dict.fromkeys(
            [
                *(j.wildcards.run for j in judged),
                *(run for job in behind for run in job.runs),
            ]
        )
    )
    jobs = [(job.rule.name, job.threads) for job in workflow.dag.needrun_jobs()]
    # Jobs of the tiny policy are short; those of others may use a GPU, which does not survive a fork.
    if (
        plan.settings.policy.model == "tiny"
        and workflow.local_exec
        and not workflow.deployment_settings.deployment_method
    ):
        needed = {rule for rule, _ in jobs}
        workflow.forkserver = forkserver.start(
            KEEP_MEMORY, [stage for stage in STAGES if stage in needed]
        )
    # Snakemake limits jobs per second for the sake of schedulers of clusters. To that end every look at what is ready
    # brings another one a second later: after a hundred jobs a hundred looks a second, on the cores that jobs need.
    if workflow.local_exec:
        workflow.scheduler.job_rate_limiter = None
    cores = workflow.cores if workflow.local_exec else None
    outlook = Outlook(plan, jobs, cores, workflow.overwrite_configfiles)
    asked = ", ".join(sorted(job.rule.name for job in workflow.dag.targetjobs)[:5])
    logs = (
        f"Full log: {os.path.relpath(log[0])}; each job's own: {plan.results}/logs/"
    )
    tell(f"{asked}: {outlook}\n{logs}", outlook=outlook)


onsuccess:
    asked = workflow.dag.targetjobs
    made = [str(file) for job in asked for file in job.output or job.input]
    logs = [str(file) for job in asked for file in job.log]
    tell(outcome(plan, made, logs), outcome=True)


onerror:
    tell(
        "Not everything was made. When the cause is mended, the same command continues where the work stopped.\n"
        f"Full log: {os.path.relpath(log[0])}",
        outcome=False,
    )
