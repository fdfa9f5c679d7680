"""Data: raw files -> case records -> priced cases.

Needs  raw files: the user's own (`data.NAME.path`), or those of the synthetic hospital.
Makes  <results>/raw, records, cases, costs, cards.
"""


rule ingest_dataset:
    """Read a data set's raw files into case records, split by patient."""
    input:
        # Without raw data of the user's own, those that the synthetic hospital writes.
        raw=lambda wildcards: given(
            settings.data.source(wildcards.dataset).path or f"<results>/raw/{wildcards.dataset}"
        ),
    output:
        records="<results>/records/{dataset}.jsonl",
        report="<results>/records/{dataset}.report.json",  # how many cases each rule dropped
        findings="<results>/records/{dataset}.findings.csv",  # every dropped case and leak; as private as the records
        record="<results>/records/{dataset}.run.json",
    log:
        "<logs>/ingest_dataset/{dataset}.log",
    wildcard_constraints:
        dataset="|".join(DATASETS),  # not a leak-controlled variant
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        **job("ingest_dataset"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule make_hospital:
    """Write the synthetic hospital's raw files, each data set in its own native format."""
    input:
        [],
    output:
        mimic_iv=directory("<results>/raw/mimic_iv"),
        clinicalbench=directory("<results>/raw/clinicalbench"),
        private=directory("<results>/raw/private"),
        textbook=directory("<results>/raw/textbook"),
        record="<results>/raw/run.json",
    log:
        "<logs>/make_hospital.log",
    conda:
        "../envs/cdpr.yaml"
    threads: 2
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        **job("make_hospital"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule build_catalogue:
    """Make the price catalogue from your own year or locality of the Medicare fee schedules."""
    input:
        **{name: given(path) for name, path in settings.data.fee_schedules.files.items()},
    output:
        catalogue=directory("<results>/costs/catalogue"),
        record="<results>/costs/catalogue.run.json",
    log:
        "<logs>/build_catalogue.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=8000,
        runtime=120,
    params:
        **job("build_catalogue"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule map_costs:
    """Attach prices and billing groups to the examinations of case records."""
    input:
        records="<results>/records/{dataset}.jsonl",
        catalogue=rules.build_catalogue.output.catalogue if settings.data.fee_schedules.files else [],
        overrides=given(settings.data.price_overrides),
    output:
        cases="<results>/cases/{dataset}.jsonl",
        coverage="<results>/costs/{dataset}.csv",  # what each examination was priced by
        review="<results>/cases/{dataset}.review.csv",  # what nothing priced; as private as the cases
        record="<results>/cases/{dataset}.run.json",
    log:
        "<logs>/map_costs/{dataset}.log",
    wildcard_constraints:
        dataset="|".join(DATASETS),
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("map_costs"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule remove_leaks:
    """Make the leak-controlled variant of a benchmark's test cases."""
    input:
        cases="<results>/cases/{dataset}.jsonl",
    output:
        controlled="<results>/cases/{dataset}_controlled.jsonl",
        report="<results>/cases/{dataset}_controlled.report.json",  # what was taken out
        record="<results>/cases/{dataset}_controlled.run.json",
    log:
        "<logs>/remove_leaks/{dataset}.log",
    wildcard_constraints:
        dataset="|".join(DATASETS),
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("remove_leaks"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule data_cards:
    """Write the data sets' cards: counts, attrition, leaks, distributions, price coverage, licence."""
    input:
        cases=expand("<results>/cases/{dataset}.jsonl", dataset=experiment.datasets),
        report=expand("<results>/records/{dataset}.report.json", dataset=experiment.datasets),
        coverage=expand("<results>/costs/{dataset}.csv", dataset=experiment.datasets),
        ingested=expand("<results>/records/{dataset}.run.json", dataset=experiment.datasets),
    output:
        md=report(expand("<results>/cards/{dataset}.md", dataset=experiment.datasets), category="Data sets"),
        json=expand("<results>/cards/{dataset}.json", dataset=experiment.datasets),
        record=expand("<results>/cards/{dataset}.run.json", dataset=experiment.datasets),
    log:
        "<logs>/data_cards.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("write_data_card", dataset=experiment.datasets),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"
