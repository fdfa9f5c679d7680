"""Tables, figures, the ledger of claims and the page that shows them all.

Reads  `<results>/evaluations/` and `<results>/training/`; which runs, `workflow/experiments.yaml` says.
Writes `<results>/tables/*.{csv,md,tex}`, `<results>/figures/*.{png,pdf}`, `<results>/claims.{json,md,csv}`,
       `<results>/report.html` and `<results>/timings.{md,json}`.
"""

for stage, name in TABLES.items():

    rule:
        name:
            f"write_{stage}"
        input:
            evidence=plan.evidence_files(stage),
            cases="<results>/cases/mimic_iv.jsonl" if stage == "sample_case" else [],
        output:
            csv=f"<results>/tables/{name}.csv",
            md=report(
                f"<results>/tables/{name}.md",
                caption=f"../workflow/report/{name}.rst",
                category="Tables",
                labels={"table": name.replace("_", " ")},
            ),
            tex=f"<results>/tables/{name}.tex",
            record=f"<results>/tables/{name}.run.json",
        log:
            f"<logs>/{name}.log",
        benchmark:
            f"<benchmarks>/{name}.tsv"
        conda:
            "../envs/cdpr.yaml"
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            key=plan.keyed(stage),
            stage=stage,
            cases=lambda w, input: f"--cases {input.cases}" if input.cases else "",
        shell:
            "cdpr {params.stage} --key {params.key} --record {output.record} {params.cases}"
            " --csv {output.csv} --md {output.md} --tex {output.tex} 2>&1 | tee {log}"


for name in (*FIGURES, ENGINES):

    rule:
        name:
            f"plot_{name}"
        input:
            evidence=plan.evidence_files(name),
        output:
            [f"<results>/figures/{name}.csv"] if name in (*SWEPT, ENGINES) else [],
            png=report(
                f"<results>/figures/{name}.png",
                caption=f"../workflow/report/{name}.rst",
                category="Figures",
                labels={"figure": name.replace("_", " ")},
            ),
            pdf=f"<results>/figures/{name}.pdf",
            record=f"<results>/figures/{name}.run.json",
        log:
            f"<logs>/plot_{name}.log",
        benchmark:
            f"<benchmarks>/plot_{name}.tsv"
        conda:
            "../envs/cdpr.yaml"
        resources:
            mem_mb=2000,
            runtime=30,
        params:
            key=plan.keyed(f"plot_{name}"),
            name=name,
            csv=lambda w, output: (
                f"--csv {output[0]}" if output[0].endswith(".csv") else ""
            ),
        shell:
            "cdpr plot_{params.name} --key {params.key} --record {output.record}"
            " --png {output.png} --pdf {output.pdf} {params.csv} 2>&1 | tee {log}"


rule write_claims:
    input:
        evidence=plan.evidence_files("claims"),
    output:
        json="<results>/claims.json",
        md=report(
            "<results>/claims.md",
            caption="../workflow/report/claims.rst",
            category="Claims",
            labels={"table": "claims of the paper"},
        ),
        csv="<results>/claims.csv",
        record="<results>/claims.run.json",
    log:
        "<logs>/claims.log",
    benchmark:
        "<benchmarks>/claims.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("claims"),
    shell:
        "cdpr claims --key {params.key} --record {output.record}"
        " --json {output.json} --md {output.md} --csv {output.csv} 2>&1 | tee {log}"


rule report_page:
    input:
        evidence=plan.evidence_files("claims"),
        tables=[getattr(rules, f"write_{stage}").output for stage in PAPER_TABLES],
        figures=[getattr(rules, f"plot_{name}").output for name in FIGURES],
        claims=rules.write_claims.output,
        cards=rules.data_cards.input,
    output:
        html=report(
            "<results>/report.html",
            caption="../workflow/report/report_page.rst",
            category="Report",
            labels={"page": "all results"},
        ),
        record="<results>/report.run.json",
    log:
        "<logs>/report_page.log",
    benchmark:
        "<benchmarks>/report_page.tsv"
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        key=plan.keyed("report_page"),
    shell:
        "cdpr report_page --key {params.key} --record {output.record} --html {output.html} 2>&1 | tee {log}"


# Always anew: timings change with every job, and depend on none in particular.
rule timings:
    log:
        "<logs>/timings.log",
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        page=f"{plan.results}/timings",
        key=plan.keyed("timings"),
    shell:
        "cdpr timings --key {params.key} --record {params.page}.run.json"
        " --md {params.page}.md --json {params.page}.json 2>&1 | tee {log}"


rule main_table:
    input:
        rules.write_main_table.output,
        rules.preflight.output if plan.raw_path("mimic_iv") is None else [],


rule figures:
    input:
        [getattr(rules, f"plot_{name}").output for name in FIGURES],
