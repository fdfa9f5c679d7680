"""Analysis: how good the credit of single decisions is, and what the inspector shows of it.

Needs  <results>/cases, policies, training, evaluations.
Makes  <results>/analysis.
"""


rule measure_credit_quality:
    """Measure how well process rewards estimate the true advantage, and at what price."""
    input:
        cases=f"<results>/cases/{IN_DOMAIN}.jsonl",
        policy=given(experiment.initial_policy()),
    output:
        quality="<results>/analysis/credit_quality.json",  # a row of measures per setting
        record="<results>/analysis/credit_quality.run.json",
    log:
        "<logs>/measure_credit_quality.log",
    conda:
        "../envs/cdpr.yaml"
    threads: machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings),
        runtime=240,
    params:
        **job("measure_credit_quality"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule credit_workups:
    """Credit the decisions of a policy on test cases of all benchmarks, as CDPR's training would have done."""
    input:
        cases=expand("<results>/cases/{dataset}.jsonl", dataset=BENCHMARKS),
        evaluation=expand("<results>/evaluations/{{run}}/{dataset}.jsonl", dataset=BENCHMARKS),
        policy=lambda wildcards: given(experiment.acting_policy(wildcards.run)),
        init_policy=given(experiment.initial_policy()),
    output:
        # A JSON object a case: its workups, states, candidates, continuations and R_proc.
        credit=expand("<results>/analysis/credit/{{run}}/{dataset}.jsonl.gz", dataset=BENCHMARKS),
        record=expand("<results>/analysis/credit/{{run}}/{dataset}.jsonl.run.json", dataset=BENCHMARKS),
    log:
        "<logs>/credit_workups/{run}.log",
    conda:
        "../envs/cdpr.yaml"
    threads: machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings),
        runtime=240,
    params:
        **job("credit_workups", dataset=BENCHMARKS),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"
