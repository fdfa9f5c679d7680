"""MLflow, an index over what the stages wrote.

Reads  every `run.json` and `metrics.jsonl` below `<results>`.
Writes `<results>/mlflow.db` (or the server of `tracking.uri`), which is no output of any rule: it can be deleted at any
       time and made anew by `snakemake rebuild_tracking`. `<results>/tracking.ready` says that it was created before
       jobs run side by side, `<results>/tracking.indexed` that all runs of the main results stand in it.
"""


localrules:
    init_tracking,
    index_runs,
    rebuild_tracking,
    clean_state,


rule init_tracking:
    output:
        ready="<results>/tracking.ready",
        record=temp("<results>/tracking.init.json"),
    log:
        "<logs>/init_tracking.log",
    benchmark:
        "<benchmarks>/init_tracking.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        key=plan.keyed("init_tracking"),
    shell:
        "cdpr init_tracking --key {params.key} --record {output.record}"
        " --ready {output.ready} 2>&1 | tee {log}"


rule index_runs:
    input:
        rules.main_table.input,
        rules.report_page.output,
    output:
        touch("<results>/tracking.indexed"),
    log:
        "<logs>/index_runs.log",
    benchmark:
        "<benchmarks>/index_runs.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    shell:
        "cdpr rebuild_tracking 2>&1 | tee {log}"


rule rebuild_tracking:
    log:
        "<logs>/rebuild_tracking.log",
    conda:
        "../envs/cdpr.yaml"
    shell:
        "cdpr rebuild_tracking 2>&1 | tee {log}"


rule clean_state:
    log:
        "<logs>/clean_state.log",
    conda:
        "../envs/cdpr.yaml"
    shell:
        "cdpr clean_state 2>&1 | tee {log}"
