"""MLflow, an index over every `run.json` and `metrics.jsonl` below `<results>`; and commands about whole folders.

`<results>/mlflow.db` (or the server of `tracking.mlflow`) is no output of a rule: it can be deleted at any time, and
`snakemake rebuild_tracking` makes it anew. These rules have no output that other rules read, so `shell` runs each time
or after the files named as input.
"""

COMMANDS = {name: parts["command"] for name, parts in TARGETS.items() if "command" in parts and name != "beyond_paper"}

for name, command in {"index_runs": "cdpr rebuild_tracking", **COMMANDS}.items():
    follows_the_page = name == "index_runs"

    rule:
        name:
            name
        input:
            of("check_headroom", "write_report") if follows_the_page else [],
        output:
            touch("<results>/tracking.indexed") if follows_the_page else [],
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
        "{params.command} --nolock --cores {threads} 2>&1 | tee -- {log:q}"
