"""Evaluation.

Reads  `<results>/cases/<data set>.jsonl` (test split) and what the agent needs: a policy folder, a server, or nothing.
Writes `<results>/evaluations/<run>/<data set>.jsonl`: one line per case and decoding,
       and `<results>/preflight.json` (can the experiment answer its question?).
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
