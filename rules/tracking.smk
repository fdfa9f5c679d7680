"""MLflow, an index over every `run.json` and `metrics.jsonl` below `<results>`; and commands about the whole folder.

`<results>/mlflow.db` (or the server of `tracking.uri`) is no output of a rule: it can be deleted at any time, and
`snakemake rebuild_tracking` makes it anew. These rules have no output that other rules read, so `shell` runs each time
or after the files named as input.
"""

# Name: command, input, output.
COMMANDS = {
    "rebuild_tracking": ("rebuild_tracking", [], []),
    "index_runs": ("rebuild_tracking", of("check_headroom", "write_report"), touch("<results>/tracking.indexed")),
    "log_traces": ("log_traces", of("write_inspector"), touch("<results>/tracking.traced")),
    "write_timings": ("write_timings", [], []),
    "clean_state": ("clean_state", [], []),
}

for name, (command, files, marker) in COMMANDS.items():

    rule:
        name:
            name
        input:
            files,
            tracking=ancient(plan.output("init_tracking", "ready")) if name == "log_traces" else [],
        output:
            marker,
        log:
            f"<logs>/{name}.log",
        localrule: True
        conda:
            "../envs/cdpr.yaml"
        resources:
            **LIGHT,
        params:
            command=command,
        shell:
            f"cdpr {{params.command}} {LOG}"
