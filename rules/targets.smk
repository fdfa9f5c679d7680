"""What a user asks for: `snakemake --cores all main_table`. `snakemake --list-rules` prints all rules."""


rule smoke:
    """One small training and its evaluation."""
    input:
        [f"<results>/evaluations/{run}/{IN_DOMAIN}.jsonl" for run in ("warm_start", "zero_test")],
        f"<results>/evaluations/{experiment.training_runs('cdpr')[0]}/{IN_DOMAIN}.jsonl",


rule main_table:
    """Table 1, the effort of each agent, the smallest difference that can be shown."""
    input:
        made("tables/main_results", "tables/effort"),
        rules.check_headroom.output,


rule headroom:
    """What the policy can still learn."""
    input:
        made("tables/headroom"),


rule ablations:
    """Table 2: CDPR without one of its parts."""
    input:
        made("tables/ablations"),


rule dynamic_vs_static:
    """Table 3: CDPR against a diagnosis from the whole record."""
    input:
        made("tables/dynamic_vs_static"),


rule sensitivity:
    """The sensitivity figure of the paper."""
    input:
        made("figures/sensitivity"),


rule sensitivity_all:
    """Every point of every sweep."""
    input:
        made("figures/sensitivity_all", "figures/further_sensitivity"),


rule efficiency:
    """Accuracy against tokens and against time."""
    input:
        made("figures/training_efficiency", "figures/training_time"),


rule learning_curves:
    """Validation metrics by iteration."""
    input:
        made("figures/learning_curves"),


rule comparators:
    """Other ways to assign credit."""
    input:
        made("tables/comparators"),


rule frontier:
    """Rules at matched cost."""
    input:
        made("tables/frontier", "tables/frontier_parts", "figures/frontier"),


rule beyond_paper:
    """The tables and figures of docs/beyond-the-paper.md: `frontier` of both steps, each on a hospital of its own."""
    log:
        "<logs>/beyond_paper.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    threads: workflow.cores
    params:
        snakefile=HERE / "Snakefile",
        overlays=[HERE / f"config/{name}.yaml" for name in ("beyond_paper", "beyond_paper_records")],
    shell:
        "for overlay in {params.overlays:q}; do "
        "snakemake --snakefile {params.snakefile:q} --cores {threads} --configfile $overlay -- frontier; done"
        " 2>&1 | tee {log:q}"


rule credit_quality:
    """Process rewards against the true advantage."""
    input:
        rules.measure_credit_quality.output,
        made("figures/credit_quality"),


rule judge_agreement:
    """A second judge against the first one."""
    input:
        made("tables/judge_agreement"),


rule leak_control:
    """Evaluation on cases without any name of the diagnosis."""
    input:
        made("tables/leak_control"),


rule expert_study:
    """Blind ratings of single decisions."""
    input:
        made("tables/expert_study", "figures/expert_study"),


rule engines:
    """The engine verl against the engine torch."""
    input:
        made("figures/engines"),


rule open_cases:
    """All agents on AgentClinic and on your FHIR cases."""
    input:
        made("tables/open_cases"),
