"""The method under the microscope.

Reads  `<results>/cases/mimic_iv.jsonl` (validation split) and the warm-start policy.
Writes `<results>/analysis/credit_quality.json`: bias, variance, rank correlation and price of the process reward as an
       estimate of the advantage, under one setting after the other, beside VinePPO's;
       `<results>/figures/credit_quality.{png,pdf}`.
"""


rule measure_credit_quality:
    input:
        cases="<results>/cases/mimic_iv.jsonl",
        policy=plan.at_hand(plan.init_policy),
    output:
        quality="<results>/analysis/credit_quality.json",
        record="<results>/analysis/credit_quality.run.json",
    log:
        "<logs>/credit_quality.log",
    benchmark:
        "<benchmarks>/credit_quality.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        key=plan.keyed("credit_quality"),
        policy=lambda w: plan.init_policy,
    shell:
        "cdpr credit_quality --key {params.key} --record {output.record}"
        " --cases {input.cases} --policy {params.policy} --quality {output.quality} 2>&1 | tee {log}"


rule plot_credit_quality:
    input:
        quality=rules.measure_credit_quality.output.quality,
    output:
        png=report(
            "<results>/figures/credit_quality.png",
            caption="../workflow/report/credit_quality.rst",
            category="Figures",
        ),
        pdf="<results>/figures/credit_quality.pdf",
        record="<results>/figures/credit_quality.run.json",
    log:
        "<logs>/plot_credit_quality.log",
    benchmark:
        "<benchmarks>/plot_credit_quality.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("plot_credit_quality"),
    shell:
        "cdpr plot_credit_quality --key {params.key} --record {output.record}"
        " --quality {input.quality} --png {output.png} --pdf {output.pdf} 2>&1 | tee {log}"
