"""What a user asks for: `snakemake --cores all reproduce_paper`, `snakemake ablations`, ..."""

TARGETS = {
    "main_table": of("write_main_table", "write_effort", "check_headroom"),
    "headroom": of("write_headroom", "plot_headroom"),
    "ablations": of("write_ablations"),
    "dynamic_vs_static": of("write_dynamic_vs_static"),
    "sensitivity": of("plot_sensitivity"),
    "sensitivity_all": of("plot_sensitivity_all", "plot_further_sensitivity"),
    "efficiency": of("plot_training_efficiency", "plot_training_time"),
    "learning_curves": of("plot_learning_curves"),
    "figures": of(*(stage for stage in FIGURES if stage in plan.on_page)),
    "claims": of("write_claims"),
    "data_cards": cards(),
    "comparators": of("write_comparators"),
    "frontier": of("write_frontier", "plot_frontier", "write_frontier_parts"),
    "credit_quality": of("measure_credit_quality", "plot_credit_quality"),
    "inspector": [*of("write_inspector"), "<results>/tracking.traced"],
    "judge_agreement": of("write_judge_agreement"),
    "leak_control": of("write_leak_control"),
    "expert_study": of("write_expert_study", "plot_expert_study"),
    "engines": of("plot_engines"),
    "open_cases": of("write_open_cases"),
    "smoke": plan.smoke(),
}

for target, files in TARGETS.items():

    rule:
        name:
            target
        input:
            files,


# Another hospital, and rules beyond the paper: a workflow of its own, whose progress is shown like any other's.
rule beyond_paper:
    log:
        "<logs>/beyond_paper.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    threads: workflow.cores or 1
    shell:
        "snakemake --nolock --cores {threads} --configfile config/beyond_paper.yaml -- frontier 2>&1 | tee {log}"
