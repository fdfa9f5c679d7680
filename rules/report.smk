"""Tables, figures, the ledger of claims and the page that shows them all.

Reads  `<results>/evaluations/` and `<results>/training/`; which runs, `workflow/experiments.yaml` says.
Writes `<results>/tables/*.{csv,md,tex}`, `<results>/figures/*.{png,pdf}`, `<results>/claims.{json,md,csv}`,
       `<results>/report.html` and `<results>/timings.{md,json}`.
"""

# write_main_table, plot_sensitivity, ...: all tables and figures of the table of stages, and the ledger.
for stage in (*TABLES, *FIGURES, "plot_credit_quality", "write_claims"):

    rule:
        name:
            stage
        input:
            **inputs(stage),
            evidence=plan.evidence_files(stage),
        output:
            **outputs(stage),
        log:
            f"<logs>/{stage}.log",
        localrule: True
        conda:
            "../envs/cdpr.yaml"
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            **params(stage),
        shell:
            COMMAND


rule write_report:
    input:
        **inputs("write_report"),
        evidence=plan.evidence_files("write_report"),
        shown=[plan.outputs(stage) for stage in (*plan.on_page, "write_claims")],
        cards=[plan.outputs("write_data_card", dataset=d) for d in plan.datasets],
    output:
        **outputs("write_report"),
    log:
        "<logs>/write_report.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **params("write_report"),
    shell:
        COMMAND


# Always anew: timings change with every job, and depend on none in particular.
rule write_timings:
    log:
        "<logs>/write_timings.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    shell:
        f"cdpr write_timings {SAYS}"
