"""Prices.

Reads  `<results>/records/<data set>.jsonl`.
Writes `<results>/cases/<data set>.jsonl` (the same records with prices and billing groups)
       and `<results>/costs/<data set>.csv` (what every examination was priced by).
"""


rule map_costs:
    input:
        records="<results>/records/{dataset}.jsonl",
    output:
        cases="<results>/cases/{dataset}.jsonl",
        coverage="<results>/costs/{dataset}.csv",
        record="<results>/cases/{dataset}.run.json",
    log:
        "<logs>/map_costs/{dataset}.log",
    benchmark:
        "<benchmarks>/map_costs/{dataset}.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("map_costs"),
    shell:
        "cdpr map_costs --key {params.key} --record {output.record}"
        " --dataset {wildcards.dataset} --records {input.records}"
        " --cases {output.cases} --coverage {output.coverage} 2>&1 | tee {log}"
