"""Counterfactual diagnostic process rewards: the paper as a table of contents.

snakemake --cores all                                       everything, from raw files to tables and figures
snakemake --cores all main_table                            one public target (all are listed below)
snakemake --cores all --configfile config/ci.yaml           the same in miniature
"""

from snakemake.utils import min_version

min_version("9.20")


configfile: "workflow/experiments.yaml"
configfile: "workflow/agents.yaml"
configfile: "config.yaml"


report: "workflow/report/workflow.rst"


include: "rules/common.smk"
include: "rules/hospital.smk"  #  raw files of the synthetic hospital
include: "rules/ingest.smk"  #    raw files -> case records
include: "rules/costs.smk"  #     case records -> priced cases
include: "rules/train.smk"  #     warm start, GRPO, utility-GRPO, CDPR, ablations
include: "rules/evaluate.smk"  #  every agent on every benchmark; preflight; real cases
include: "rules/analysis.smk"  #  what process rewards are worth as estimates of the advantage
include: "rules/cards.smk"  #     data cards; leak-controlled variants of the benchmarks
include: "rules/report.smk"  #    tables and figures
include: "rules/tracking.smk"  #  the MLflow index


rule ablations:
    input:
        rules.write_ablations.output,


rule dynamic_vs_static:
    input:
        rules.write_dynamic_vs_static.output,


rule claims:
    input:
        rules.write_claims.output,


rule sensitivity:
    input:
        rules.plot_sensitivity.output,
        rules.plot_further_sensitivity.output,


rule reproduce_paper:
    default_target: True
    input:
        rules.main_table.input,
        rules.ablations.input,
        rules.dynamic_vs_static.input,
        rules.write_sample_case.output,
        rules.figures.input,
        rules.claims.input,
        rules.report_page.output,
        rules.data_cards.input,
        rules.index_runs.output,
        made=plan.made(),


rule credit_quality:
    input:
        rules.measure_credit_quality.output,
        rules.plot_credit_quality.output,


rule efficiency:
    input:
        rules.plot_training_efficiency.output,


rule engines:
    input:
        rules.plot_engines.output,


rule comparators:
    input:
        rules.write_comparators.output,


rule leak_control:
    input:
        rules.write_leak_control.output,


rule smoke:
    input:
        plan.files(EVALUATION, plan.evaluations(plan.smoke_runs(), ["mimic_iv"])),


onstart:
    plan.lock()


onerror:
    print(
        "The log of the failed job stands above. The same command continues where the work stopped."
    )
