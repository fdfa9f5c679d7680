"""Training: cases -> policies.

Needs  <results>/cases, and the folder of a model where `policy.model` is not `tiny`.
Makes  <results>/policies, training.
"""


rule warm_start_policy:
    """Teach a policy medicine and the habits of clinicians; the tiny one is built first."""
    input:
        **{name: f"<results>/cases/{name}.jsonl" for name in LESSONS},
        model=given(settings.policy.model) if settings.policy.model != "tiny" else [],
    output:
        policy=directory("<results>/policies/warm_start"),
        metrics="<results>/policies/warm_start.metrics.jsonl",  # loss and validation by step
        record="<results>/policies/warm_start.run.json",
    log:
        "<logs>/warm_start_policy.log",
    conda:
        "../envs/cdpr.yaml"
    threads: max(settings.warm_start.threads, machines.acting_threads(settings))
    resources:
        **machines.acting_machine(settings),
        runtime=240,
    params:
        **job("warm_start_policy"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule train_policy:
    """Train a policy: a variant of workflow/experiments.yaml with one seed."""
    input:
        cases=f"<results>/cases/{IN_DOMAIN}.jsonl",
        init_policy=given(experiment.initial_policy()),
    output:
        policy=directory("<results>/training/{run}/policy"),
        metrics="<results>/training/{run}/metrics.jsonl",  # the learning curve
        timings="<results>/training/{run}/timings.jsonl",  # seconds by step, other ones at every run
        credit="<results>/training/{run}/credit.jsonl.gz",  # what credit assignment found, a JSON object an iteration
        record="<results>/training/{run}/run.json",
    log:
        "<logs>/train_policy/{run}.log",
    conda:
        "../envs/cdpr.yaml"
    threads: machines.training_threads(settings)
    resources:
        **machines.training_machine(settings),
        runtime=2880,  # a longer training goes on from its checkpoint in the next attempt (`retries` of the profile)
    params:
        **job("train_policy"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"
