"""The expert study: decisions of several methods at the same states, rated blindly.

Reads  `<results>/cases/*.jsonl` (test split), the policies that are compared, and the forms that raters send back
       (`study.ratings`; in the demo simulated ones).
Writes `<results>/study/`: states, proposals, what raters fill in (`forms/`), the sealed key, and `analysis.json`.
The table and the figure are of rules/report.smk.
"""

for stage in ("sample_states", "propose_actions"):

    rule:
        name:
            stage
        input:
            **inputs(stage),
        output:
            **outputs(stage),
        log:
            f"<logs>/{stage}/{{run}}.log",
        conda:
            "../envs/cdpr.yaml"
        threads: plan.threads(stage)
        resources:
            **plan.machine(stage),
            runtime=240,
        params:
            **params(stage),
        shell:
            COMMAND


for stage in ("make_forms", "simulate_ratings", "rate_by_model", "analyse_study"):

    rule:
        name:
            stage
        input:
            **inputs(stage),
        output:
            **outputs(stage),
        log:
            f"<logs>/{stage}.log",
        localrule: True
        conda:
            "../envs/cdpr.yaml"
        resources:
            mem_mb=2000,
            runtime=60,
        params:
            **params(stage),
        shell:
            COMMAND
