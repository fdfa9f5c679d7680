"""Ingestion.

Reads  raw files: the user's own, or the synthetic hospital's.
Writes `<results>/records/<data set>.jsonl` (case records, split by patient, not yet priced)
       and `<data set>.report.json` (how many cases each rule dropped).
"""


rule ingest:
    input:
        raw=lambda w: plan.at_hand(plan.raw_input(w.dataset)),
    output:
        records="<results>/records/{dataset}.jsonl",
        report="<results>/records/{dataset}.report.json",
        record="<results>/records/{dataset}.run.json",
    log:
        "<logs>/ingest/{dataset}.log",
    benchmark:
        "<benchmarks>/ingest/{dataset}.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        key=plan.keyed("ingest"),
        raw=lambda w: plan.raw_input(w.dataset),
    shell:
        "cdpr ingest --key {params.key} --record {output.record}"
        " --dataset {wildcards.dataset} --raw {params.raw}"
        " --records {output.records} --report {output.report} 2>&1 | tee {log}"
