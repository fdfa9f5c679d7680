"""Prices.

Reads  `<results>/records/<data set>.jsonl`, and the user's own fee schedules and prices where there are any.
Writes `<results>/cases/<data set>.jsonl` (the same records with prices and billing groups),
       `<results>/cases/<data set>.review.csv` (examinations that nothing priced; as private as the cases)
       and `<results>/costs/<data set>.csv` (what every examination was priced by).
"""

FEE_SCHEDULES = plan.fee_schedules
CATALOGUE = ["<results>/costs/catalogue"] if FEE_SCHEDULES else []
OVERRIDES = plan.price_overrides


rule build_catalogue:
    input:
        [path for name in FEE_SCHEDULES for path in plan.at_hand(FEE_SCHEDULES[name])],
    output:
        catalogue=directory("<results>/costs/catalogue"),
        record="<results>/costs/catalogue.run.json",
    log:
        "<logs>/build_catalogue.log",
    benchmark:
        "<benchmarks>/build_catalogue.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        key=plan.keyed("build_catalogue"),
        schedules=" ".join(
            f"--{name} {shlex.quote(FEE_SCHEDULES[name])}" for name in FEE_SCHEDULES
        ),
    shell:
        "cdpr build_catalogue --key {params.key} --record {output.record} {params.schedules}"
        " --catalogue {output.catalogue} 2>&1 | tee {log}"


rule map_costs:
    input:
        plan.at_hand(OVERRIDES),
        records="<results>/records/{dataset}.jsonl",
        catalogue=CATALOGUE,
    output:
        cases="<results>/cases/{dataset}.jsonl",
        review="<results>/cases/{dataset}.review.csv",
        coverage="<results>/costs/{dataset}.csv",
        record="<results>/cases/{dataset}.run.json",
    log:
        "<logs>/map_costs/{dataset}.log",
    benchmark:
        "<benchmarks>/map_costs/{dataset}.tsv"
    wildcard_constraints:
        dataset=BENCHMARK,
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("map_costs"),
        overrides=shlex.quote(OVERRIDES) if OVERRIDES else "",
    shell:
        "cdpr map_costs --key {params.key} --record {output.record}"
        " --dataset {wildcards.dataset} --records {input.records}"
        " --catalogue {input.catalogue} --overrides {params.overrides}"
        " --cases {output.cases} --coverage {output.coverage} --review {output.review} 2>&1 | tee {log}"
