"""What a user asks for: `snakemake --cores all reproduce_paper`, `snakemake ablations`, ..."""


rule main_table:
    input:
        of("write_main_table", "write_effort", "check_headroom"),


rule headroom:
    input:
        of("write_headroom", "plot_headroom"),


rule ablations:
    input:
        of("write_ablations"),


rule dynamic_vs_static:
    input:
        of("write_dynamic_vs_static"),


rule sensitivity:
    input:
        of("plot_sensitivity"),


rule sensitivity_all:
    input:
        of("plot_sensitivity_all", "plot_further_sensitivity"),


rule efficiency:
    input:
        of("plot_training_efficiency"),


rule learning_curves:
    input:
        of("plot_learning_curves"),


rule figures:
    input:
        of(*(stage for stage in FIGURES if stage in plan.on_page)),


rule claims:
    input:
        of("write_claims"),


rule data_cards:
    input:
        [plan.outputs("write_data_card", dataset=d) for d in plan.datasets],


rule comparators:
    input:
        of("write_comparators"),


rule credit_quality:
    input:
        of("measure_credit_quality", "plot_credit_quality"),


rule inspector:
    input:
        of("write_inspector"),
        rules.log_traces.output,


rule judge_agreement:
    input:
        of("write_judge_agreement"),


rule leak_control:
    input:
        of("write_leak_control"),


rule expert_study:
    input:
        of("write_expert_study", "plot_expert_study"),


rule engines:
    input:
        of("plot_engines"),


rule smoke:
    input:
        plan.smoke(),


rule open_cases:
    input:
        of("write_open_cases"),
