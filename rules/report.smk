"""Tables and figures.

Reads  `<results>/evaluations/` and `<results>/training/`.
Writes `<results>/tables/{main_results,comparators}.{csv,md,tex}` and `<results>/figures/*.{png,pdf}`.
"""


rule write_main_table:
    input:
        evaluations=plan.files(EVALUATION, plan.evaluations(plan.main_runs())),
    output:
        csv="<results>/tables/main_results.csv",
        md=report(
            "<results>/tables/main_results.md",
            caption="../workflow/report/main_results.rst",
            category="Tables",
        ),
        tex="<results>/tables/main_results.tex",
        record="<results>/tables/main_results.run.json",
    log:
        "<logs>/main_table.log",
    benchmark:
        "<benchmarks>/main_table.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("main_table"),
    shell:
        "cdpr main_table --key {params.key} --record {output.record}"
        " --csv {output.csv} --md {output.md} --tex {output.tex} 2>&1 | tee {log}"


rule write_comparators:
    input:
        evaluations=plan.files(
            EVALUATION, [(run, "mimic_iv") for run in plan.comparator_runs()]
        ),
    output:
        csv="<results>/tables/comparators.csv",
        md=report(
            "<results>/tables/comparators.md",
            caption="../workflow/report/comparators.rst",
            category="Tables",
        ),
        tex="<results>/tables/comparators.tex",
        record="<results>/tables/comparators.run.json",
    log:
        "<logs>/comparators.log",
    benchmark:
        "<benchmarks>/comparators.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("comparators"),
    shell:
        "cdpr comparators --key {params.key} --record {output.record}"
        " --csv {output.csv} --md {output.md} --tex {output.tex} 2>&1 | tee {log}"


rule plot_training_efficiency:
    input:
        metrics=expand(
            "<results>/training/{run}/metrics.jsonl",
            run=plan.trained(*EFFICIENCY),
        ),
    output:
        png=report(
            "<results>/figures/training_efficiency.png",
            caption="../workflow/report/training_efficiency.rst",
            category="Figures",
        ),
        pdf="<results>/figures/training_efficiency.pdf",
        record="<results>/figures/training_efficiency.run.json",
    log:
        "<logs>/plot_training_efficiency.log",
    benchmark:
        "<benchmarks>/plot_training_efficiency.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("plot_training_efficiency"),
    shell:
        "cdpr plot_training_efficiency --key {params.key} --record {output.record}"
        " --png {output.png} --pdf {output.pdf} 2>&1 | tee {log}"


rule plot_learning_curves:
    input:
        metrics=expand(
            "<results>/training/{run}/metrics.jsonl", run=plan.trained(*MAIN)
        ),
    output:
        png=report(
            "<results>/figures/learning_curves.png",
            caption="../workflow/report/learning_curves.rst",
            category="Figures",
        ),
        pdf="<results>/figures/learning_curves.pdf",
        record="<results>/figures/learning_curves.run.json",
    log:
        "<logs>/plot_learning_curves.log",
    benchmark:
        "<benchmarks>/plot_learning_curves.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("plot_learning_curves"),
    shell:
        "cdpr plot_learning_curves --key {params.key} --record {output.record}"
        " --png {output.png} --pdf {output.pdf} 2>&1 | tee {log}"


rule plot_accuracy_cost:
    input:
        evaluations=plan.files(EVALUATION, plan.evaluations(plan.main_runs())),
    output:
        png=report(
            "<results>/figures/accuracy_cost.png",
            caption="../workflow/report/accuracy_cost.rst",
            category="Figures",
        ),
        pdf="<results>/figures/accuracy_cost.pdf",
        record="<results>/figures/accuracy_cost.run.json",
    log:
        "<logs>/plot_accuracy_cost.log",
    benchmark:
        "<benchmarks>/plot_accuracy_cost.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("plot_accuracy_cost"),
    shell:
        "cdpr plot_accuracy_cost --key {params.key} --record {output.record}"
        " --png {output.png} --pdf {output.pdf} 2>&1 | tee {log}"


rule main_table:
    input:
        rules.write_main_table.output,
        rules.preflight.output if plan.raw_path("mimic_iv") is None else [],


rule figures:
    input:
        rules.plot_training_efficiency.output,
        rules.plot_learning_curves.output,
        rules.plot_accuracy_cost.output,
