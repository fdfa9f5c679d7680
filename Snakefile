"""Counterfactual diagnostic process rewards: the paper as a table of contents.

snakemake --cores all                                       everything, from raw files to tables and figures
snakemake --cores all main_table                            one target (rules/targets.smk)
snakemake --cores all --configfile config/ci.yaml           the same in miniature
snakemake --list-rules                                      all rules, with what they make
"""

import atexit
import gc
from pathlib import Path

from snakemake.logging import logger
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import min_version

min_version("9.20")
# What modules and the graph define is no garbage: looking for it takes a third of the time that planning takes.
gc.set_threshold(50_000, 20, 50)
atexit.register(gc.freeze)

try:
    from cdpr.pipeline import machines, outlook, page, served
    from cdpr.pipeline.evidence import credited_evaluations
    from cdpr.pipeline.experiment import Experiment
    from cdpr.settings import SettingsError, digest
    from cdpr.settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN, LESSONS
    from cdpr.settings.queries import check_path
    from cdpr.settings.runs import RUN
    from cdpr.study.methods import all_synthetic, study_run, study_runs
except ImportError as error:
    raise WorkflowError(f"{error}. Install the package first: `make env`, or `pip install -e .`")

# Beside this file, so that `snakemake -s` and `module` work from any folder; results go to the working directory.
HERE = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).resolve()


configfile: HERE / "workflow/experiments.yaml"
configfile: HERE / "workflow/agents.yaml"
configfile: HERE / "workflow/models.yaml"
configfile: HERE / "config.yaml"


check_path("the folder of the project", str(HERE))
experiment = Experiment(config)
experiment.keep_private()
settings, evidence = experiment.settings, experiment.files_behind
with_conda = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
shell.prefix(machines.shell_prefix(experiment.resolved_settings, HERE / "src" if with_conda else None))


pathvars:
    results=experiment.results,
    logs=f"{experiment.results}/logs",


wildcard_constraints:
    dataset="[a-z_]+",
    run=RUN,


# The main process writes the settings when work begins (`onstart`). Other processes write them here, and so does a
# workflow that uses this one as a module, since Snakemake does not call the `onstart` of a module.
IS_MAIN = Path(workflow.main_snakefile).resolve().parent in (HERE, HERE / "workflow")
if not (workflow.is_main_process and IS_MAIN):
    experiment.write_settings()


include: "rules/common.smk"  #      helpers
include: "rules/data.smk"  #        raw files -> priced cases
include: "rules/training.smk"  #    cases -> policies
include: "rules/evaluation.smk"  #  policies and agents -> evaluations
include: "rules/analysis.smk"  #    evaluations -> quality of credit
include: "rules/study.smk"  #       decisions -> blind ratings
include: "rules/report.smk"  #      all of them -> tables, figures, claims, page
include: "rules/targets.smk"  #     what a user asks for


rule reproduce_paper:
    """The report page, everything that it shows, and the inspector."""
    default_target: True
    input:
        rules.check_headroom.output,
        rules.write_report.input,
        rules.write_report.output,
        rules.inspector.output,
        rules.write_frames.output,
        rules.index_runs.output,
        # Snakemake does not remake a deleted file between two existing ones: so each result is named.
        rules.make_hospital.output if HOSPITAL_CASES else [],
        expand(
            "<results>/records/{dataset}.{kind}",
            dataset=experiment.datasets,
            kind=["jsonl", "report.json", "findings.csv", "run.json"],
        ),
        expand(
            "<results>/cases/{dataset}.{kind}", dataset=experiment.datasets, kind=["jsonl", "review.csv", "run.json"]
        ),
        expand("<results>/costs/{dataset}.csv", dataset=experiment.datasets),
        rules.warm_start_policy.output if settings.policy.warm_started else [],
        experiment.files_behind("write_report", ("policy", "credit.jsonl.gz", "timings.jsonl"), evaluations=False),


rule unknown_target:
    """Answer a mistyped target; it makes nothing."""
    input:
        nearest_targets,
    output:
        "{target}",
    wildcard_constraints:
        target="[a-z_]+" if IS_MAIN else "(?!)",  # (?!) matches nothing


onstart:
    if not log:  # Snakemake has said why
        raise SettingsError("Nothing was started: the log of the run cannot be written below .snakemake/")
    jobs = list(workflow.dag.needrun_jobs())
    # The agents and trained runs that will act. `propose_actions` has no wildcard: it runs all agents of the study.
    acting_rules = ("evaluate_agent", "evaluate_on_benchmarks", "train_policy", "sample_states")
    acting = {str(job.wildcards.get("run")): None for job in jobs if job.rule.name in acting_rules}
    acting |= dict.fromkeys(study_runs(settings) if "propose_actions" in {job.rule.name for job in jobs} else ())
    experiment.begin(acting)
    cores = workflow.cores if workflow.local_exec else None
    rules_and_threads = [(job.rule.name, job.threads) for job in jobs]
    time = outlook.forecast(rules_and_threads, cores, workflow.overwrite_configfiles)
    targets = ", ".join(sorted(job.rule.name for job in workflow.dag.targetjobs)[:5])
    logs = f"Full log: {os.path.relpath(log[0])}; each job's own: {experiment.results}/logs/"
    follows = machines.follow_jobs(workflow.executor_settings)
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    logger.info(f"{targets}: {count}, {time}.\n{logs}{follows}", extra={"job_count": len(jobs)})


onsuccess:
    jobs = workflow.dag.targetjobs
    files = [str(file) for job in jobs for file in job.output or job.input]
    message = outlook.outcome(experiment, files, [str(file) for job in jobs for file in job.log])
    logger.info(message, extra={"outcome": True})


onerror:
    logger.info(
        "Not everything was made. When the cause is mended, the same command continues where the work stopped.\n"
        f"Full log: {os.path.relpath(log[0])}",
        extra={"outcome": False},
    )
