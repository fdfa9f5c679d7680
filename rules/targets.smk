"""What a user asks for: `snakemake --cores all main_table`. `snakemake --list-rules` prints all rules."""


rule figures:
    """All figures of the report page."""
    input:
        made(*(part["rule"] for part in PAGE if part["rule"].startswith("plot_"))),


rule smoke:
    """One small training and its evaluation."""
    input:
        expand(
            f"<results>/evaluations/{{run}}/{IN_DOMAIN}.jsonl",
            run=["warm_start", "zero_test", experiment.trained("cdpr")[0]],
        ),


rule main_table:
    """Table 1, the effort of each agent, the smallest difference that can be shown."""
    input:
        made("write_main_table", "write_effort"),
        rules.check_headroom.output,


rule headroom:
    """What the policy can still learn."""
    input:
        made("write_headroom", "plot_headroom"),


rule ablations:
    """Table 2: CDPR without one of its parts."""
    input:
        made("write_ablations"),


rule dynamic_vs_static:
    """Table 3: CDPR against a diagnosis from the whole record."""
    input:
        made("write_dynamic_vs_static"),


rule sensitivity:
    """The sensitivity figure of the paper."""
    input:
        made("plot_sensitivity"),


rule sensitivity_all:
    """Every point of every sweep."""
    input:
        made("plot_sensitivity_all", "plot_further_sensitivity"),


rule efficiency:
    """Accuracy against tokens and against time."""
    input:
        made("plot_training_efficiency", "plot_training_time"),


rule learning_curves:
    """Validation metrics by iteration."""
    input:
        made("plot_learning_curves"),


rule claims:
    """The claims of the paper against our results."""
    input:
        rules.write_claims.output,


rule comparators:
    """Other ways to assign credit."""
    input:
        made("write_comparators"),


rule frontier:
    """Rules at matched cost."""
    input:
        made("write_frontier", "plot_frontier", "write_frontier_parts"),


rule credit_quality:
    """Process rewards against the true advantage."""
    input:
        rules.measure_credit_quality.output,
        made("plot_credit_quality"),


rule inspector:
    """A site that shows single decisions."""
    input:
        rules.write_inspector.output,


rule judge_agreement:
    """A second judge against the first one."""
    input:
        made("write_judge_agreement"),


rule leak_control:
    """Evaluation on cases without any name of the diagnosis."""
    input:
        made("write_leak_control"),


rule expert_study:
    """Blind ratings of single decisions."""
    input:
        made("write_expert_study", "plot_expert_study"),


rule engines:
    """The engine verl against the engine torch."""
    input:
        made("plot_engines"),


rule open_cases:
    """All agents on AgentClinic and on your FHIR cases."""
    input:
        made("write_open_cases"),
