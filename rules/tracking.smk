"""What is shown of a run, the MLflow index, and commands about whole folders.

Needs  every run.json and metrics.jsonl below <results>.
Makes  <results>/mlflow.db (or fills the server of `tracking.mlflow`), which is no output of a rule: it can be deleted
at any time, and `snakemake rebuild_tracking` makes it anew. Rules without output run each time.
"""

from snakemake.logging import logger

from cdpr.pipeline.outlook import Outlook, outcome

ACTING = ("evaluate_agent", "evaluate_on_benchmarks", "train_policy", "sample_states")


rule rebuild_tracking:
    """MLflow again from the records of all jobs."""
    log:
        "<logs>/rebuild_tracking.log",
    conda:
        "../envs/cdpr.yaml"
    params:
        command="rebuild_tracking",
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


use rule rebuild_tracking as index_runs with:
    """Bring the MLflow index up to date when the report page is written."""
    input:
        rules.check_headroom.output,
        rules.write_report.output,
    output:
        touch("<results>/tracking.indexed"),
    log:
        "<logs>/index_runs.log",


use rule rebuild_tracking as clean_state with:
    """Delete unfinished work of other configurations."""
    log:
        "<logs>/clean_state.log",
    params:
        command="clean_state",


use rule rebuild_tracking as write_timings with:
    """Time and memory of all finished jobs."""
    log:
        "<logs>/write_timings.log",
    params:
        command=f"write_timings --output md={experiment.results}/timings.md",


onstart:
    if not log:  # Snakemake has said why
        raise SettingsError("Nothing was started: the log of the run cannot be written below .snakemake/")
    jobs = list(workflow.dag.needrun_jobs())
    acting = {str(job.wildcards.get("run")): None for job in jobs if job.rule.name in ACTING}
    acting |= dict.fromkeys(study_runs(settings) if "propose_actions" in {job.rule.name for job in jobs} else ())
    experiment.begin(acting)
    cores = workflow.cores if workflow.local_exec else None
    rules_and_threads = [(job.rule.name, job.threads) for job in jobs]
    outlook = Outlook(experiment, rules_and_threads, cores, workflow.overwrite_configfiles)
    targets = ", ".join(sorted(job.rule.name for job in workflow.dag.targetjobs)[:5])
    logs = f"Full log: {os.path.relpath(log[0])}; each job's own: {experiment.results}/logs/"
    follows = machines.follow_jobs(workflow.executor_settings)
    logger.info(f"{targets}: {outlook}\n{logs}{follows}", extra={"outlook": outlook})


onsuccess:
    jobs = workflow.dag.targetjobs
    files = [str(file) for job in jobs for file in job.output or job.input]
    message = outcome(experiment, files, [str(file) for job in jobs for file in job.log])
    logger.info(message, extra={"outcome": True})


onerror:
    logger.info(
        "Not everything was made. When the cause is mended, the same command continues where the work stopped.\n"
        f"Full log: {os.path.relpath(log[0])}",
        extra={"outcome": False},
    )
