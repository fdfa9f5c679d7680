"""What a user asks for: `snakemake --cores all main_table`. `snakemake --list-rules` prints all rules."""


rule figures:
    """All figures of the report page."""
    input:
        [getattr(rules, part["rule"]).output for part in PAGE if part["rule"].startswith("plot_")],


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
        rules.write_main_table.output,
        rules.write_effort.output,
        rules.check_headroom.output,


rule headroom:
    """What the policy can still learn."""
    input:
        rules.write_headroom.output,
        rules.plot_headroom.output,


rule ablations:
    """Table 2: CDPR without one of its parts."""
    input:
        rules.write_ablations.output,


rule dynamic_vs_static:
    """Table 3: CDPR against a diagnosis from the whole record."""
    input:
        rules.write_dynamic_vs_static.output,


rule sensitivity:
    """The sensitivity figure of the paper."""
    input:
        rules.plot_sensitivity.output,


rule sensitivity_all:
    """Every point of every sweep."""
    input:
        rules.plot_sensitivity_all.output,
        rules.plot_further_sensitivity.output,


rule efficiency:
    """Accuracy against tokens and against time."""
    input:
        rules.plot_training_efficiency.output,
        rules.plot_training_time.output,


rule learning_curves:
    """Validation metrics by iteration."""
    input:
        rules.plot_learning_curves.output,


rule claims:
    """The claims of the paper against our results."""
    input:
        rules.write_claims.output,


rule comparators:
    """Other ways to assign credit."""
    input:
        rules.write_comparators.output,


rule frontier:
    """Rules at matched cost."""
    input:
        rules.write_frontier.output,
        rules.plot_frontier.output,
        rules.write_frontier_parts.output,


rule credit_quality:
    """Process rewards against the true advantage."""
    input:
        rules.measure_credit_quality.output,
        rules.plot_credit_quality.output,


rule inspector:
    """A site that shows single decisions."""
    input:
        rules.write_inspector.output,


rule judge_agreement:
    """A second judge against the first one."""
    input:
        rules.write_judge_agreement.output,


rule leak_control:
    """Evaluation on cases without any name of the diagnosis."""
    input:
        rules.write_leak_control.output,


rule expert_study:
    """Blind ratings of single decisions."""
    input:
        rules.write_expert_study.output,
        rules.plot_expert_study.output,


rule engines:
    """The engine verl against the engine torch."""
    input:
        rules.plot_engines.output,


rule open_cases:
    """All agents on AgentClinic and on your FHIR cases."""
    input:
        rules.write_open_cases.output,
