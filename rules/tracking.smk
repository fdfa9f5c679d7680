"""MLflow, an index over what the stages wrote.

Reads  every `run.json` and `metrics.jsonl` below `<results>`.
Writes `<results>/mlflow.db` (or the server of `tracking.uri`), which is no output of any rule: it can be deleted at any
       time and made anew by `snakemake rebuild_tracking`. `<results>/tracking.ready` says that it was created before
       jobs run side by side, `<results>/tracking.indexed` that all runs of the main results stand in it,
       `<results>/tracking.traced` that the workups of the inspector do.
"""


rule init_tracking:
    input:
        **inputs("init_tracking"),
    output:
        **outputs("init_tracking"),
    log:
        "<logs>/init_tracking.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        **params("init_tracking"),
    shell:
        COMMAND


rule index_runs:
    input:
        rules.check_headroom.output,
        rules.write_report.output,
    output:
        touch("<results>/tracking.indexed"),
    log:
        "<logs>/index_runs.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    shell:
        f"cdpr rebuild_tracking {SAYS}"


rule log_traces:
    input:
        of("write_inspector"),
        tracking=ancient(plan.output("init_tracking", "ready")),
    output:
        touch("<results>/tracking.traced"),
    log:
        "<logs>/log_traces.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    shell:
        f"cdpr log_traces {SAYS}"


rule rebuild_tracking:
    log:
        "<logs>/rebuild_tracking.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    shell:
        f"cdpr rebuild_tracking {SAYS}"


rule clean_state:
    log:
        "<logs>/clean_state.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    shell:
        f"cdpr clean_state {SAYS}"
