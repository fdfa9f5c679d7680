"""Policies.

Reads  `<results>/cases/mimic_iv.jsonl` (training and validation splits).
Writes `<results>/policies/warm_start/` and `<results>/training/<run>/policy/` (Hugging Face folders) with
       `metrics.jsonl`, `credit.jsonl.gz` (what credit assignment found, state by state) and `run.json`; a run is `<variant>-seed<n>`.
Checkpoints lie in `<state>/<run key>/`, outside the outputs: a killed run continues where it was.
"""


rule warm_start:
    input:
        cases="<results>/cases/mimic_iv.jsonl",
    output:
        policy=directory("<results>/policies/warm_start"),
        metrics="<results>/policies/warm_start.metrics.jsonl",
        record="<results>/policies/warm_start.run.json",
    log:
        "<logs>/warm_start.log",
    benchmark:
        "<benchmarks>/warm_start.tsv"
    conda:
        "../envs/cdpr.yaml"
    threads: plan.settings.warm_start.threads
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        key=plan.keyed("warm_start"),
    shell:
        "cdpr warm_start --key {params.key} --record {output.record}"
        " --cases {input.cases} --policy {output.policy} --metrics {output.metrics} 2>&1 | tee {log}"


rule train:
    input:
        cases="<results>/cases/mimic_iv.jsonl",
        init_policy=plan.at_hand(plan.init_policy),
        tracking=ancient("<results>/tracking.ready"),
    output:
        policy=directory("<results>/training/{run}/policy"),
        metrics="<results>/training/{run}/metrics.jsonl",
        credit="<results>/training/{run}/credit.jsonl.gz",
        record="<results>/training/{run}/run.json",
    log:
        "<logs>/train/{run}.log",
    benchmark:
        "<benchmarks>/train/{run}.tsv"
    conda:
        "../envs/cdpr.yaml"
    threads: plan.settings.training.threads
    resources:
        **plan.training_machine(),
        runtime=2880,
    params:
        key=plan.keyed("train"),
        init_policy=lambda w: plan.init_policy,
    shell:
        "cdpr train --key {params.key} --record {output.record}"
        " --run {wildcards.run} --cases {input.cases} --init_policy {params.init_policy}"
        " --policy {output.policy} --metrics {output.metrics} --credit {output.credit} 2>&1 | tee {log}"
