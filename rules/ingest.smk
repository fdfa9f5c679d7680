"""Ingestion.

Reads  raw files: the user's own, or the synthetic hospital's.
Writes `<results>/records/<data set>.jsonl` (case records, split by patient, not yet priced)
       `<data set>.report.json` (how many cases each rule dropped, numbers only)
       and `<data set>.findings.csv` (which ones, and every leak; as private as the records).
"""


rule ingest:
    input:
        raw=lambda w: plan.at_hand(plan.raw_input(w.dataset)),
    output:
        records="<results>/records/{dataset}.jsonl",
        report="<results>/records/{dataset}.report.json",
        findings="<results>/records/{dataset}.findings.csv",
        record="<results>/records/{dataset}.run.json",
    log:
        "<logs>/ingest/{dataset}.log",
    benchmark:
        "<benchmarks>/ingest/{dataset}.tsv"
    wildcard_constraints:
        dataset=BENCHMARK,
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
        " --records {output.records} --report {output.report}"
        " --findings {output.findings} 2>&1 | tee {log}"
