"""What the data are, and the benchmarks without leaks.

Reads  `<results>/cases/`, and what `ingest_dataset` and `map_costs` tell of them.
Writes `<results>/cards/<data set>.{md,json,png,pdf}`: counts, attrition, leaks, distributions, prices, licence;
       `<results>/cases/<data set>_controlled.jsonl`: the benchmark without whatever gives a diagnosis away.
"""


rule write_data_card:
    input:
        **inputs("write_data_card"),
    output:
        **outputs("write_data_card"),
    log:
        "<logs>/write_data_card/{dataset}.log",
    wildcard_constraints:
        dataset=BENCHMARK,
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        **params("write_data_card"),
    shell:
        COMMAND


rule remove_leaks:
    input:
        **inputs("remove_leaks"),
    output:
        **outputs("remove_leaks"),
    log:
        "<logs>/remove_leaks/{dataset}.log",
    wildcard_constraints:
        dataset=BENCHMARK,
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **params("remove_leaks"),
    shell:
        COMMAND
