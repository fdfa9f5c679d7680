"""MLflow, an index over every `run.json` and `metrics.jsonl` below `<results>`; and commands about whole folders.

`<results>/mlflow.db` (or the server of `tracking.uri`) is no output of a rule: it can be deleted at any time, and
`snakemake rebuild_tracking` makes it anew. These rules have no output that other rules read, so `shell` runs each time
or after the files named as input.
"""

COMMANDS = {name: parts["command"] for name, parts in TARGETS.items() if "command" in parts}
# Name: input, output. All other commands have none.
FILES = {
    "index_runs": (of("check_headroom", "write_report"), touch("<results>/tracking.indexed")),
    "log_traces": (of("write_inspector"), touch("<results>/tracking.traced")),
}

for name, command in {"index_runs": "cdpr rebuild_tracking", **COMMANDS}.items():
    needs, marker = FILES.get(name, ([], []))

    rule:
        name:
            name
        input:
            needs,
            tracking=ancient(plan.output("init_tracking", "ready")) if name == "log_traces" else [],
        output:
            marker,
        log:
            f"<logs>/{name}.log",
        localrule: True
        conda:
            "../envs/cdpr.yaml"
        threads: (workflow.cores or 1) if "{threads}" in command else 1
        resources:
            **LIGHT,
        shell:
            command if "{log}" in command else f"{command} {LOG}"
