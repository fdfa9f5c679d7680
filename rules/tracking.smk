"""MLflow, an index over every `run.json` and `metrics.jsonl` below `<results>`; and commands about the whole folder.

`<results>/mlflow.db` (or the server of `tracking.uri`) is no output of a rule: it can be deleted at any time, and
`snakemake rebuild_tracking` makes it anew. These rules have no output that other rules read, so `shell` runs each time
or after the files named as input.
"""


rule rebuild_tracking:
    log:
        "<logs>/rebuild_tracking.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        **LIGHT,
    params:
        command="rebuild_tracking",
    shell:
        f"cdpr {{params.command}} {LOG}"


use rule rebuild_tracking as index_runs with:
    input:
        of("check_headroom", "write_report"),
    output:
        touch("<results>/tracking.indexed"),
    log:
        "<logs>/index_runs.log",
    params:
        command="rebuild_tracking",


use rule rebuild_tracking as log_traces with:
    input:
        of("write_inspector"),
        tracking=ancient(plan.output("init_tracking", "ready")),
    output:
        touch("<results>/tracking.traced"),
    log:
        "<logs>/log_traces.log",
    params:
        command="log_traces",


use rule rebuild_tracking as write_timings with:
    log:
        "<logs>/write_timings.log",
    params:
        command="write_timings",


use rule rebuild_tracking as clean_state with:
    log:
        "<logs>/clean_state.log",
    params:
        command="clean_state",
