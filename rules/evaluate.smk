"""Evaluation.

Reads  `<results>/cases/<data set>.jsonl` (test split) and a policy folder; reference policies need none.
Writes `<results>/evaluations/<run>/<data set>.jsonl`: one line per case and decoding,
       `<results>/preflight.json` (is there anything to learn?) and `<results>/smoke_real/` (real cases, real model).
"""


rule evaluate:
    input:
        cases="<results>/cases/{dataset}.jsonl",
        policy=lambda w: plan.at_hand(plan.policy_of(w.run)),
    output:
        evaluation=EVALUATION,
        record="<results>/evaluations/{run}/{dataset}.run.json",
    log:
        "<logs>/evaluate/{run}/{dataset}.log",
    benchmark:
        "<benchmarks>/evaluate/{run}/{dataset}.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        **plan.evaluation_machine(),
        runtime=720,
    params:
        key=plan.keyed("evaluate"),
        policy=lambda w: plan.policy_of(w.run),
    shell:
        "cdpr evaluate --key {params.key} --record {output.record}"
        " --run {wildcards.run} --dataset {wildcards.dataset} --cases {input.cases} --policy {params.policy}"
        " --evaluation {output.evaluation} 2>&1 | tee {log}"


rule preflight:
    input:
        warm_start="<results>/evaluations/warm_start/mimic_iv.jsonl",
        immediate="<results>/evaluations/immediate/mimic_iv.jsonl",
    output:
        report="<results>/preflight.json",
        record="<results>/preflight.run.json",
    log:
        "<logs>/preflight.log",
    benchmark:
        "<benchmarks>/preflight.tsv"
    priority: 100
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=500,
        runtime=5,
    params:
        key=plan.keyed("preflight"),
    shell:
        "cdpr preflight --key {params.key} --record {output.record}"
        " --warm_start {input.warm_start} --immediate {input.immediate} --report {output.report}"
        " 2>&1 | tee {log}"


rule smoke_real:
    input:
        cases="<results>/cases/agentclinic.jsonl" if plan.has_real_cases else [],
    output:
        evaluations=directory("<results>/smoke_real/evaluations"),
        summary="<results>/smoke_real/summary.json",
        md="<results>/smoke_real/summary.md",
        record="<results>/smoke_real/run.json",
    log:
        "<logs>/smoke_real.log",
    benchmark:
        "<benchmarks>/smoke_real.tsv"
    conda:
        "../envs/cdpr.yaml"
    threads: 2
    resources:
        mem_mb=6000,
        runtime=120,
    params:
        key=plan.keyed("smoke_real"),
    shell:
        "cdpr smoke_real --key {params.key} --record {output.record}"
        " --cases {input.cases} --evaluations {output.evaluations} --summary {output.summary} --md {output.md}"
        " 2>&1 | tee {log}"
