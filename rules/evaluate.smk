"""Evaluation.

Reads  `<results>/cases/<data set>.jsonl` (test split) and what the agent needs: a policy folder, a server, or nothing.
Writes `<results>/evaluations/<run>/<data set>.jsonl`: one line per case and decoding,
       `<results>/preflight.json` (can the experiment answer its question?)
       and `<results>/smoke_real/` (real cases, real model).
"""


rule evaluate_agent:
    input:
        **inputs("evaluate_agent"),
    output:
        **outputs("evaluate_agent"),
    log:
        "<logs>/evaluate_agent/{run}/{dataset}.log",
    conda:
        "../envs/cdpr.yaml"
    resources:
        **plan.machine("evaluate_agent"),
        runtime=720,
    params:
        **params("evaluate_agent"),
    shell:
        COMMAND


rule check_headroom:
    input:
        **inputs("check_headroom"),
    output:
        **outputs("check_headroom"),
    log:
        "<logs>/check_headroom.log",
    priority: 100
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        **params("check_headroom"),
    shell:
        COMMAND


rule try_real_model:
    input:
        **inputs("try_real_model"),
    output:
        **outputs("try_real_model"),
    log:
        "<logs>/try_real_model.log",
    conda:
        "../envs/cdpr.yaml"
    threads: 2
    resources:
        mem_mb=6000,
        runtime=120,
    params:
        **params("try_real_model"),
    shell:
        COMMAND
