"""Prices.

Reads  `<results>/records/<data set>.jsonl`, and the user's own fee schedules and prices where there are any.
Writes `<results>/cases/<data set>.jsonl` (the same records with prices and billing groups),
       `<results>/cases/<data set>.review.csv` (examinations that nothing priced; as private as the cases)
       and `<results>/costs/<data set>.csv` (what every examination was priced by).
"""


rule build_catalogue:
    input:
        **inputs("build_catalogue"),
    output:
        **outputs("build_catalogue"),
    log:
        "<logs>/build_catalogue.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        **params("build_catalogue"),
    shell:
        COMMAND


rule map_costs:
    input:
        **inputs("map_costs"),
    output:
        **outputs("map_costs"),
    log:
        "<logs>/map_costs/{dataset}.log",
    wildcard_constraints:
        dataset=BENCHMARK,
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **params("map_costs"),
    shell:
        COMMAND
