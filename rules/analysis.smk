"""The method under the microscope, and a window into every decision.

Reads  `<results>/cases/mimic_iv.jsonl` (validation split) and the policy that training starts from.
Writes `<results>/analysis/credit_quality.json`: bias, variance, rank correlation and price of the process reward as an
       estimate of the advantage, under one setting after the other, beside VinePPO's.
The figure of it is one of rules/report.smk.

Reads  `<results>/evaluations/`, the cases, and the policies that acted.
Writes `<results>/analysis/credit/<run>/<data set>.jsonl.gz` (what CDPR's rule finds in workups of test cases) and
       `<results>/inspector/` (the site that shows it).
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
    threads: plan.threads("measure_credit_quality")
    resources:
        **plan.machine("measure_credit_quality"),
        runtime=120,
    params:
        **params("measure_credit_quality"),
    shell:
        COMMAND


rule credit_workups:
    input:
        **inputs("credit_workups"),
    output:
        **outputs("credit_workups"),
    log:
        "<logs>/credit_workups/{run}/{dataset}.log",
    conda:
        "../envs/cdpr.yaml"
    threads: plan.threads("credit_workups")
    resources:
        **plan.machine("credit_workups"),
        runtime=120,
    params:
        **params("credit_workups"),
    shell:
        COMMAND


rule write_inspector:
    input:
        **inputs("write_inspector"),
        evidence=plan.evidence_files("write_inspector"),
        credit=plan.credit_files(),
    output:
        **outputs("write_inspector"),
    log:
        "<logs>/write_inspector.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **params("write_inspector"),
    shell:
        COMMAND
