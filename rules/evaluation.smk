"""Evaluation: agents and policies on the test cases of every data set.

Needs  <results>/cases, policies, training; for other agents their models.
Makes  <results>/evaluations, preflight.json.
"""

# The jobs that start a model server, by name; and of each evaluation (run, data set) that one of them runs, its name.
SERVED = {job.name: job for job in served.served_jobs(experiment)}
SERVED_BY = {pair: job.name for job in SERVED.values() for pair in job.evaluations}
# Matches the runs that one job evaluates on all benchmarks; (?!) matches nothing.
TOGETHER = "|".join(map(re.escape, experiment.evaluated_together())) or "(?!)"


rule evaluate_agent:
    """Let an agent work up the test cases of a data set and judge it."""
    input:
        # The job whose server the run needs, if it needs one; the wildcards are run and data set.
        lambda wildcards: [f"<results>/served/{SERVED_BY[pair]}" for pair in [tuple(wildcards)] if pair in SERVED_BY],
        cases="<results>/cases/{dataset}.jsonl",
        policy=lambda wildcards: given(experiment.acting_policy(wildcards.run)),
    output:
        evaluation="<results>/evaluations/{run}/{dataset}.jsonl",  # a line per case and decoding
        record="<results>/evaluations/{run}/{dataset}.run.json",
    log:
        "<logs>/evaluate_agent/{run}/{dataset}.log",
    wildcard_constraints:
        # Any run, but not what `evaluate_on_benchmarks` makes: one of its runs on a benchmark.
        run=rf"(?!(?:{TOGETHER})/(?:{'|'.join(BENCHMARKS)})\.){RUN}",
    conda:
        "../envs/cdpr.yaml"
    threads: lambda wildcards: 1 if tuple(wildcards) in SERVED_BY else machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings, {run for run, _ in SERVED_BY}),
        runtime=720,
    params:
        **job("evaluate_agent"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule evaluate_on_benchmarks:
    """Evaluate a run on all benchmarks, where the start of a job takes longer than its work."""
    input:
        cases=expand("<results>/cases/{dataset}.jsonl", dataset=BENCHMARKS),
        policy=lambda wildcards: given(experiment.acting_policy(wildcards.run)),
    output:
        evaluation=expand("<results>/evaluations/{{run}}/{dataset}.jsonl", dataset=BENCHMARKS),
        record=expand("<results>/evaluations/{{run}}/{dataset}.run.json", dataset=BENCHMARKS),
    log:
        "<logs>/evaluate_on_benchmarks/{run}.log",
    wildcard_constraints:
        run=TOGETHER,
    conda:
        "../envs/cdpr.yaml"
    threads: machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings, {run for run, _ in SERVED_BY}),
        runtime=720,
    params:
        **job("evaluate_agent", dataset=BENCHMARKS),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule evaluate_served:
    """Start the server of a model, run the episodes of all agents that use it, end the server."""
    input:
        lambda wildcards: [f"<results>/cases/{dataset}.jsonl" for _, dataset in SERVED[wildcards.model].evaluations],
        lambda wildcards: sum([given(experiment.acting_policy(run)) for run in SERVED[wildcards.model].runs], []),
    output:
        temp(touch("<results>/served/{model}")),  # `evaluate_agent` writes the rows that this job leaves
    log:
        "<logs>/evaluate_served/{model}.log",
    wildcard_constraints:
        model="|".join(map(re.escape, SERVED)) or "(?!)",
    conda:
        "../envs/cdpr.yaml"
    threads: lambda wildcards: served.machine_of(experiment, SERVED[wildcards.model]).cpus
    resources:
        **machines.serving_machines(lambda wildcards: served.machine_of(experiment, SERVED[wildcards.model])),
    params:
        command=lambda wildcards: f"evaluate_served {shlex.quote(wildcards.model)}",
        key=lambda wildcards: served.key_of(experiment, SERVED[wildcards.model].evaluations),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


UNTRAINED = ("warm_start", "immediate", "value_of_information", "discounted_information", "zero_test")
UNTRAINED = experiment.evaluations(UNTRAINED)  # pairs (run, data set)
# The cases of benchmarks that the synthetic hospital writes, in place of the user's data.
HOSPITAL_CASES = {d: f"<results>/cases/{d}.jsonl" for d in BENCHMARKS if settings.data.source(d).path is None}


rule check_headroom:
    """Measure what the policy leaves to learn, and the smallest difference that can be shown."""
    input:
        **{f"{run}_{data}": f"<results>/evaluations/{run}/{data}.jsonl" for run, data in UNTRAINED},
        **{f"cases_{dataset}": path for dataset, path in HOSPITAL_CASES.items()},
    output:
        preflight="<results>/preflight.json",  # headrooms, obstacles, and what can be shown
        record="<results>/preflight.run.json",
    log:
        "<logs>/check_headroom.log",
    priority: 100  # it says whether the experiment can show a difference
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("check_headroom"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"
