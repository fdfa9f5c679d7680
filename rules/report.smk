"""Tables, figures, claims, results page, inspector and MLflow index. workflow/page.yaml says what the page shows.

Needs  <results>/evaluations, training, study; what is behind each is in src/cdpr/pipeline/evidence.yaml.
Makes  <results>/tables, figures, claims.*, report.html, inspector, mlflow.db. The index is no output of a rule: it can
be deleted at any time, and `cdpr rebuild_tracking` makes it again.
"""

# What tables and figures read beside evaluations and trainings.
FURTHER = {
    "credit_quality": {"quality": "<results>/analysis/credit_quality.json"},
    "expert_study": {"study": "<results>/study/analysis.json"},
    "frontier_parts": {"cases": HOSPITAL_CASES.get(IN_DOMAIN, [])},
    "headroom": {"preflight": "<results>/preflight.json"},
    "sample_case": {"cases": f"<results>/cases/{IN_DOMAIN}.jsonl"},
}


rule write_table:
    """Write a table: `sheet_NAME` of cdpr.report makes tables/NAME."""
    input:
        lambda wildcards: evidence(stage_of(wildcards)),
        unpack(lambda wildcards: FURTHER.get(wildcards[0], {})),  # the only wildcard: the name of the table or figure
    output:
        md=shown("<results>/tables/{table}.md"),
        csv="<results>/tables/{table}.csv",
        tex="<results>/tables/{table}.tex",
        record="<results>/tables/{table}.run.json",
    log:
        "<logs>/write_table/{table}.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job(stage_of),
        about=lambda wildcards: on_page(wildcards).text,
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


# rule plot_figure and rule plot_points: as write_table, with the files of a figure.
use rule write_table as plot_figure with:
    """Draw a figure: `plot_NAME` of cdpr.report draws figures/NAME."""
    output:
        png=shown("<results>/figures/{figure}.png"),
        pdf="<results>/figures/{figure}.pdf",
        record="<results>/figures/{figure}.run.json",
    log:
        "<logs>/plot_figure/{figure}.log",
    wildcard_constraints:
        figure=rf"(?!({'|'.join(WITH_POINTS)})\.)[a-z_]+",
    localrule: True


use rule plot_figure as plot_points with:
    """Draw a figure of sweeps or curves, and write its points."""
    output:
        png=shown("<results>/figures/{figure}.png"),
        pdf="<results>/figures/{figure}.pdf",
        csv="<results>/figures/{figure}.csv",
        record="<results>/figures/{figure}.run.json",
    wildcard_constraints:
        figure="|".join(WITH_POINTS),
    localrule: True


rule claims:
    """Judge every claim of the paper by what was measured."""
    input:
        evidence("write_claims"),
        study="<results>/study/analysis.json",
    output:
        json="<results>/claims.json",
        md=report("<results>/claims.md", category="Claims of the paper"),
        csv="<results>/claims.csv",  # one row per claim
        time="<results>/claims_of_time.md",  # the claims about time, judged on this machine
        record="<results>/claims.run.json",
    log:
        "<logs>/claims.log",
    priority: 10
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("write_claims"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule write_frames:
    """Write all evaluations and all trainings as two tidy frames, for a notebook."""
    input:
        evidence("write_frames"),
    output:
        evaluations="<results>/evaluations.parquet",  # a row per run, data set, decoding and case
        trainings="<results>/trainings.parquet",  # a row per run and step
        record="<results>/evaluations.run.json",
    log:
        "<logs>/write_frames.log",
    priority: -1  # nothing waits for it: beside the results page, which leaves the other cores idle
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("write_frames"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule write_report:
    """Write one HTML page with all results, each linked to the run that made it."""
    input:
        evidence("write_report"),
        made(*PAGE),
        rules.claims.output,
        lambda wildcards: rules.inspector.output.site if settings.inspector.runs else [],  # its links lead there
        rules.data_cards.output,
    output:
        html=report("<results>/report.html", category="Results page"),
        record="<results>/report.run.json",
    log:
        "<logs>/write_report.log",
    priority: 10
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("write_report"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule inspector:
    """Write the decision inspector: a site to step through workups and see why they went so."""
    input:
        evidence("write_inspector"),
        [f"<results>/analysis/credit/{run}/{dataset}.jsonl.gz" for run, dataset in credited_evaluations(experiment)],
        **{f"cases_{dataset}": f"<results>/cases/{dataset}.jsonl" for dataset in BENCHMARKS},
        study="<results>/study/means.jsonl",
    output:
        site=directory("<results>/inspector"),  # open its index.html
        record="<results>/inspector.run.json",
    log:
        "<logs>/inspector.log",
    priority: 10
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("write_inspector"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule index_runs:
    """Bring the MLflow index up to date when the report page is written."""
    input:
        rules.write_report.output,
    output:
        touch("<results>/tracking.indexed"),
    log:
        "<logs>/index_runs.log",
    priority: 10
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        command="rebuild_tracking",
    shell:
        "cdpr {params.command} > {log:q} 2>&1"
