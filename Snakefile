"""Counterfactual diagnostic process rewards: the paper as a table of contents.

snakemake --cores all                                       everything, from raw files to tables and figures
snakemake --cores all main_table                            one target (rules/targets.smk)
snakemake --cores all --configfile config/ci.yaml           the same in miniature
snakemake --list-rules                                      all rules, with what they make
"""

from pathlib import Path

from snakemake.utils import min_version

min_version("9.20")

# Beside this file, so that `snakemake -s` and `module` work from any folder; results go to the working directory.
HERE = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).resolve()


configfile: HERE / "workflow/experiments.yaml"
configfile: HERE / "workflow/agents.yaml"
configfile: HERE / "workflow/models.yaml"
configfile: HERE / "config.yaml"


include: "rules/common.smk"


pathvars:
    results=experiment.results,
    logs=f"{experiment.results}/logs",


wildcard_constraints:
    dataset="[a-z_]+",
    run=RUN,


# The main process writes when work begins (`onstart`), which the workflow that uses this one as a module does not call.
if not workflow.is_main_process or Path(workflow.main_snakefile).resolve().parent not in (HERE, HERE / "workflow"):
    experiment.write_settings()


include: "rules/data.smk"  #        raw files -> priced cases
include: "rules/training.smk"  #    cases -> policies
include: "rules/evaluation.smk"  #  policies and agents -> evaluations
include: "rules/analysis.smk"  #    evaluations -> quality of credit
include: "rules/study.smk"  #       decisions -> blind ratings
include: "rules/report.smk"  #      all of them -> tables, figures, claims, page
include: "rules/tracking.smk"  #    the MLflow index; what is shown of a run
include: "rules/targets.smk"  #     what a user asks for


# Other jobs take seconds and run on the machine that submits. `use rule` does not inherit `localrule: True`.
HEAVY = {"make_hospital", "ingest_dataset", "map_costs", "remove_leaks", "warm_start_policy", "train_policy"}
HEAVY |= {"evaluate_agent", "measure_credit_quality", "credit_workups", "sample_states", "propose_actions"}
workflow.localrules(*STAGES.keys() - HEAVY, "rebuild_tracking", "index_runs", "clean_state")


rule reproduce_paper:
    """The report page, everything that it shows, and the inspector."""
    default_target: True
    input:
        rules.check_headroom.output,
        rules.write_report.input,
        rules.write_report.output,
        rules.write_inspector.output,
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
