"""Evaluation: agents and policies on the test cases of every data set.

Needs  <results>/cases, policies, training; for other agents their models.
Makes  <results>/evaluations, preflight.json.
"""

from cdpr.workflow import served

# Runs of a model whose server a job starts are evaluated by that job, all at once; others on all benchmarks by one job.
SERVED = {job.rule: job for job in served.served_jobs(experiment)}
SERVED_RUNS = "|".join(re.escape(run) for job in SERVED.values() for run in job.runs) or "(?!)"
TOGETHER = "|".join(map(re.escape, experiment.evaluated_together())) or "(?!)"


rule evaluate_agent:
    """Let an agent work up the test cases of a data set and judge it."""
    input:
        cases="<results>/cases/{dataset}.jsonl",
        policy=lambda wildcards: given(experiment.acting_policy(wildcards.run)),
    output:
        evaluation="<results>/evaluations/{run}/{dataset}.jsonl",  # a line per case and decoding
        record="<results>/evaluations/{run}/{dataset}.run.json",
    log:
        "<logs>/evaluate_agent/{run}/{dataset}.log",
    wildcard_constraints:
        run=rf"(?!(?:{SERVED_RUNS})/)(?!(?:{TOGETHER})/(?:{'|'.join(BENCHMARKS)})\.){RUN}",
    conda:
        "../envs/cdpr.yaml"
    threads: machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings),
        runtime=720,
    params:
        **job("evaluate_agent"),
    shell:
        "cdpr {params.stage} --key {params.key} {params.flags} > {log:q} 2>&1"


rule evaluate_on_benchmarks:
    """Evaluate a run on all benchmarks, where the start of a job takes longer than its work."""
    input:
        expand("<results>/cases/{dataset}.jsonl", dataset=BENCHMARKS),
        lambda wildcards: given(experiment.acting_policy(wildcards.run)),
    output:
        expand("<results>/evaluations/{{run}}/{dataset}.{kind}", dataset=BENCHMARKS, kind=["jsonl", "run.json"]),
    log:
        "<logs>/evaluate_on_benchmarks/{run}.log",
    wildcard_constraints:
        run=TOGETHER,
    conda:
        "../envs/cdpr.yaml"
    resources:
        **machines.acting_machine(settings),
        runtime=720,
    params:
        key=lambda wildcards: served.key_of(experiment, [(wildcards.run, dataset) for dataset in BENCHMARKS]),
    shell:
        "cdpr evaluate_on_benchmarks {wildcards.run} > {log:q} 2>&1"


for served_job in SERVED.values():

    rule:
        name:
            served_job.rule
        input:
            [f"<results>/cases/{dataset}.jsonl" for _, dataset in served_job.evaluations],
            [given(experiment.acting_policy(run)) for run in served_job.runs],
        output:
            [path for pair in served_job.evaluations for path in experiment.evaluation_files(*pair)[1].values()],
        log:
            f"<logs>/evaluate_served/{served_job.name}.log",
        conda:
            "../envs/cdpr.yaml"
        threads: served.machine_of(experiment, served_job).cpus
        resources:
            **machines.serving_machine(served.machine_of(experiment, served_job)),
        params:
            key=lambda wildcards, job=served_job: served.key_of(experiment, job.evaluations),
            job=served_job.name,
        shell:
            "cdpr evaluate_served {params.job} > {log:q} 2>&1"


UNTRAINED = ("warm_start", "immediate", "value_of_information", "discounted_information", "zero_test")
HOSPITAL_CASES = {d: f"<results>/cases/{d}.jsonl" for d in BENCHMARKS if experiment.raw_path(d) is None}


rule check_headroom:
    """Measure what the policy leaves to learn, and the smallest difference that can be shown."""
    input:
        **{
            f"{run}_{dataset}": f"<results>/evaluations/{run}/{dataset}.jsonl"
            for run, dataset in experiment.evaluations(UNTRAINED)
        },
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
    params:
        **job("check_headroom"),
    shell:
        "cdpr {params.stage} --key {params.key} {params.flags} > {log:q} 2>&1"
