"""Policies.

Reads  `<results>/cases/mimic_iv.jsonl` (training and validation splits).
Writes `<results>/policies/warm_start/` and `<results>/training/<run>/policy/` (Hugging Face folders) with
       `metrics.jsonl`, `credit.jsonl.gz` (what credit assignment found, state by state) and `run.json`; a run is
       `<variant>-seed<n>`, and its variant a line of `workflow/experiments.yaml`.
Checkpoints lie in `<state>/<run key>/`, outside the outputs: a killed run continues where it was.
"""


rule warm_start_policy:
    input:
        **inputs("warm_start_policy"),
    output:
        **outputs("warm_start_policy"),
    log:
        "<logs>/warm_start_policy.log",
    conda:
        "../envs/cdpr.yaml"
    threads: max(plan.settings.warm_start.threads, plan.threads("warm_start_policy"))
    resources:
        **plan.machine("warm_start_policy"),
        runtime=240,
    params:
        **params("warm_start_policy"),
    shell:
        COMMAND


rule train_policy:
    input:
        **inputs("train_policy"),
        tracking=ancient(plan.output("init_tracking", "ready")),
    output:
        **outputs("train_policy"),
    log:
        "<logs>/train_policy/{run}.log",
    conda:
        "../envs/cdpr.yaml"
    threads: plan.threads("train_policy")
    resources:
        **plan.machine("train_policy"),
        runtime=2880,  # a longer training goes on from its checkpoint in the next attempt (`retries` of the profile)
    params:
        **params("train_policy"),
    shell:
        COMMAND
