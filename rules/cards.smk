"""What the data are, and the benchmarks without leaks.

Reads  `<results>/cases/`, and what `ingest` and `map_costs` tell of them.
Writes `<results>/cards/<data set>.{md,json,png,pdf}`: counts, selection, leaks, distributions, prices, licence;
       `<results>/cases/<data set>_controlled.jsonl`: the benchmark without whatever gives a diagnosis away.
"""


rule data_card:
    input:
        cases="<results>/cases/{dataset}.jsonl",
        report="<results>/records/{dataset}.report.json",
        coverage="<results>/costs/{dataset}.csv",
        ingested="<results>/records/{dataset}.run.json",
    output:
        md=report(
            "<results>/cards/{dataset}.md",
            caption="../workflow/report/data_card.rst",
            category="Data",
            labels={"data set": "{dataset}", "form": "card"},
        ),
        json="<results>/cards/{dataset}.json",
        png=report(
            "<results>/cards/{dataset}.png",
            caption="../workflow/report/data_card.rst",
            category="Data",
            labels={"data set": "{dataset}", "form": "figure"},
        ),
        pdf="<results>/cards/{dataset}.pdf",
        record="<results>/cards/{dataset}.run.json",
    log:
        "<logs>/data_card/{dataset}.log",
    benchmark:
        "<benchmarks>/data_card/{dataset}.tsv"
    wildcard_constraints:
        dataset=BENCHMARK,
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=10,
    params:
        key=plan.keyed("data_card"),
    shell:
        "cdpr data_card --key {params.key} --record {output.record} --dataset {wildcards.dataset}"
        " --cases {input.cases} --report {input.report} --coverage {input.coverage} --ingested {input.ingested}"
        " --md {output.md} --json {output.json} --png {output.png} --pdf {output.pdf} 2>&1 | tee {log}"


rule control_leaks:
    input:
        cases="<results>/cases/{dataset}.jsonl",
    output:
        controlled="<results>/cases/{dataset}_controlled.jsonl",
        report="<results>/cases/{dataset}_controlled.report.json",
        record="<results>/cases/{dataset}_controlled.run.json",
    log:
        "<logs>/control_leaks/{dataset}.log",
    benchmark:
        "<benchmarks>/control_leaks/{dataset}.tsv"
    wildcard_constraints:
        dataset=BENCHMARK,
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("control_leaks"),
    shell:
        "cdpr control_leaks --key {params.key} --record {output.record} --dataset {wildcards.dataset}"
        " --cases {input.cases} --controlled {output.controlled} --report {output.report} 2>&1 | tee {log}"


rule data_cards:
    input:
        expand(rules.data_card.output, dataset=plan.datasets),
