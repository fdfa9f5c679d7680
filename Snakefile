"""Counterfactual diagnostic process rewards: the paper as a table of contents.

snakemake --cores all                                       everything, from raw files to tables and figures
snakemake --cores all main_table                            one public target (all stand in rules/targets.smk)
snakemake --cores all --configfile config/ci.yaml           the same in miniature
"""

from snakemake.utils import min_version

min_version("9.20")


configfile: "workflow/experiments.yaml"
configfile: "workflow/agents.yaml"
configfile: "workflow/models.yaml"
configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "rules/common.smk"
include: "rules/hospital.smk"  #  raw files of the synthetic hospital
include: "rules/ingest.smk"  #    raw files -> case records
include: "rules/costs.smk"  #     case records -> priced cases
include: "rules/train.smk"  #     warm start, GRPO, utility-GRPO, CDPR, ablations
include: "rules/evaluate.smk"  #  every agent on every benchmark; headroom; real cases
include: "rules/analysis.smk"  #  what process rewards are worth as estimates of the advantage
include: "rules/study.smk"  #     the expert study: states, forms, ratings, tests
include: "rules/cards.smk"  #     data cards; benchmarks without leaks
include: "rules/report.smk"  #    tables, figures, claims, page
include: "rules/tracking.smk"  #  the MLflow index
include: "rules/targets.smk"  #   what a user asks for


rule reproduce_paper:
    default_target: True
    input:
        of("check_headroom", *plan.on_page, "write_claims", "write_report"),
        rules.index_runs.output,
        [plan.outputs("write_data_card", dataset=d) for d in plan.datasets],
        made=plan.made(),
