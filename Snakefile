"""Counterfactual diagnostic process rewards: the paper as a table of contents.

snakemake --cores all                                       everything, from raw files to tables and figures
snakemake --cores all main_table                            one public target (all stand in rules/targets.smk)
snakemake --cores all --configfile config/ci.yaml           the same in miniature
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
include: "rules/jobs.smk"  #     raw files -> cases -> policies -> evaluations -> tables, figures, claims, page
include: "rules/tracking.smk"  # the MLflow index
include: "rules/targets.smk"  #  what a user asks for


rule reproduce_paper:
    default_target: True
    input:
        of("check_headroom", *plan.on_page, "write_claims", "write_report", "write_inspector"),
        rules.index_runs.output,
        cards(),
        results=plan.all_results(),
