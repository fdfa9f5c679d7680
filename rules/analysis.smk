"""The method under the microscope.

Reads  `<results>/cases/mimic_iv.jsonl` (validation split) and the policy that training starts from.
Writes `<results>/analysis/credit_quality.json`: bias, variance, rank correlation and price of the process reward as an
       estimate of the advantage, under one setting after the other, beside VinePPO's.
The figure of it is one of rules/report.smk.
"""


rule measure_credit_quality:
    input:
        **inputs("measure_credit_quality"),
    output:
        **outputs("measure_credit_quality"),
    log:
        "<logs>/measure_credit_quality.log",
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        **params("measure_credit_quality"),
    shell:
        COMMAND
