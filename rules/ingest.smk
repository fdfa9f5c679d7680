"""Ingestion.

Reads  raw files: the user's own, or the synthetic hospital's.
Writes `<results>/records/<data set>.jsonl` (case records, split by patient, not yet priced)
       `<data set>.report.json` (how many cases each rule dropped, numbers only)
       and `<data set>.findings.csv` (which ones, and every leak; as private as the records).
"""


rule ingest_dataset:
    input:
        **inputs("ingest_dataset"),
    output:
        **outputs("ingest_dataset"),
    log:
        "<logs>/ingest_dataset/{dataset}.log",
    wildcard_constraints:
        dataset=BENCHMARK,
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        **params("ingest_dataset"),
    shell:
        COMMAND
