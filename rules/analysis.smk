"""Analysis: how good the credit of single decisions is, and what the inspector shows of it.

Needs  <results>/cases, policies, training, evaluations.
Makes  <results>/analysis.
"""


use rule evaluate_agent as measure_credit_quality with:
    """Measure how well process rewards estimate the true advantage, and at what price."""
    input:
        cases=f"<results>/cases/{IN_DOMAIN}.jsonl",
        policy=given(experiment.initial_policy()),
    output:
        quality="<results>/analysis/credit_quality.json",  # a row of measures per setting
        record="<results>/analysis/credit_quality.run.json",
    log:
        "<logs>/measure_credit_quality.log",
    wildcard_constraints:
        run=RUN,
    resources:
        **machines.acting_machine(settings),
        runtime=240,
    params:
        **job("measure_credit_quality"),


use rule measure_credit_quality as credit_workups with:
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
    params:
        **job("credit_workups", dataset=BENCHMARKS),
