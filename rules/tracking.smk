"""MLflow, an index over every `run.json` and `metrics.jsonl` below `<results>`; and commands about whole folders.

`<results>/mlflow.db` (or the server of `tracking.uri`) is no output of a rule: it can be deleted at any time, and
`snakemake rebuild_tracking` makes it anew. These rules have no output that other rules read, so `shell` runs each time
or after the files named as input.
"""

COMMANDS = {name: parts["command"] for name, parts in TARGETS.items() if "command" in parts and name != "beyond_paper"}
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
        resources:
            **LIGHT,
        params:
            command=command,  # a shell line is read when its job runs, and `command` is then that of the last rule
        shell:
            f"{{params.command}} {LOG}"


# Another hospital, and rules beyond the paper: a workflow of its own, whose progress is shown like any other's.
rule beyond_paper:
    log:
        "<logs>/beyond_paper.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    threads: workflow.cores or 1
    params:
        command=TARGETS["beyond_paper"]["command"],
    shell:
        "{params.command} --nolock --cores {threads} 2>&1 | tee {log}"
