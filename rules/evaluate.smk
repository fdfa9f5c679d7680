"""Evaluation.

Reads  `<results>/cases/<data set>.jsonl` (test split) and what the agent needs: a policy folder, a server, or nothing.
Writes `<results>/evaluations/<run>/<data set>.jsonl`: one line per case and decoding,
       and `<results>/preflight.json` (can the experiment answer its question?).
"""


rule evaluate_agent:
    input:
        **inputs("evaluate_agent"),
    output:
        **outputs("evaluate_agent"),
    log:
        "<logs>/evaluate_agent/{run}/{dataset}.log",
    wildcard_constraints:
        run=UNSERVED,
    conda:
        "../envs/cdpr.yaml"
    threads: plan.threads("evaluate_agent")
    resources:
        **plan.machine("evaluate_agent"),
        runtime=720,
    params:
        **params("evaluate_agent"),
    shell:
        COMMAND


# One job, one server: all evaluations of a model that is served by the job itself (`serving` in config.yaml).
for job in SERVED.values():
    files, machine = serving(job), served.machine_of(plan, job)

    rule:
        name:
            job.rule
        input:
            files["input"],
        output:
            files["output"],
        log:
            f"<logs>/evaluate_served/{job.name}.log",
        conda:
            "../envs/cdpr.yaml"
        threads: machine.cpus
        resources:
            **serving_machine(machine),
        params:
            key=files["key"],
            job=job.name,
        shell:
            f"cdpr evaluate_served {{params.job}} {SAYS}"


rule check_headroom:
    input:
        **inputs("check_headroom"),
    output:
        **outputs("check_headroom"),
    log:
        "<logs>/check_headroom.log",
    priority: 100
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        **params("check_headroom"),
    shell:
        COMMAND
