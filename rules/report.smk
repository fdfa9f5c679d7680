"""Tables, figures, claims, results page and inspector. The page shows the results with a chapter, in the order of this file.

Needs  <results>/evaluations, training, study; what is behind each is in src/cdpr/pipeline/evidence.py.
Makes  <results>/tables, figures, claims.*, report.html, inspector. A figure or table is `{name}`, which its rule fixes.
"""


rule plot_frontier:
    """Draw accuracy against cost of every rule, swept over the weight of correctness."""
    input:
        behind,
    output:
        **result("<results>/figures/{figure}", "png", "pdf"),
    log:
        "<logs>/plot_{figure}.log",
    wildcard_constraints:
        figure="frontier",
    conda:
        "../envs/cdpr.yaml"
    params:
        **job(),
    shell:
        "cdpr {params.stage} --key {params.key} {params.flags} > {log:q} 2>&1"


use rule plot_frontier as write_frontier with:
    """Write the table of rules at matched cost."""
    output:
        **result("<results>/tables/{table}", "md", "csv", "tex"),
    log:
        "<logs>/write_{table}.log",
    wildcard_constraints:
        table="frontier",


use rule plot_frontier as plot_sensitivity_all with:
    """Draw the same six panels with every point that the experiments list."""
    output:
        **result("<results>/figures/{figure}", "png", "pdf", "csv"),
    wildcard_constraints:
        figure="sensitivity_all",


use rule write_frontier as write_comparators with:
    """Write the table of ways to assign credit: GRPO, VinePPO, GiGPO, CDPR, all actions."""
    wildcard_constraints:
        table="comparators",


use rule write_frontier as write_frontier_parts with:
    """Write what a rule's gain is made of, and the grid that chose the rules' settings."""
    input:
        behind,
        cases=HOSPITAL_CASES.get(IN_DOMAIN, []),
    wildcard_constraints:
        table="frontier_parts",


use rule write_frontier as write_judge_agreement with:
    """Write the table of how far two judges agree, and of the figures that hang on the judge."""
    wildcard_constraints:
        table="judge_agreement",


use rule write_frontier as write_leak_control with:
    """Write the table of agents on each benchmark and on its leak-controlled variant."""
    wildcard_constraints:
        table="leak_control",


use rule plot_sensitivity_all as plot_further_sensitivity with:
    """Draw sweeps of what the paper leaves open: n_s, lambdas, cost unit, ..."""
    wildcard_constraints:
        figure="further_sensitivity",


use rule plot_sensitivity_all as plot_engines with:
    """Draw the learning curves of verl beside the torch trainer's."""
    wildcard_constraints:
        figure="engines",


use rule plot_frontier as plot_credit_quality with:
    """Draw bias, variance and rank correlation of the process reward by setting and price."""
    input:
        quality="<results>/analysis/credit_quality.json",
    wildcard_constraints:
        figure="credit_quality",


use rule plot_frontier as plot_accuracy_cost with:
    """Draw accuracy against cost of six agents, in-domain: the first picture."""
    wildcard_constraints:
        **shown(figure="accuracy_cost", chapter="Accuracy against cost"),
    params:
        about="Accuracy against average cost per case, in-domain: the policy before training, the trained ones, and "
        "value of information, which knows the synthetic hospital.",


use rule plot_frontier as plot_every_agent with:
    """Draw accuracy against cost on the other data sets, and of every agent."""
    wildcard_constraints:
        **shown(figure="every_agent", chapter="Accuracy against cost"),
    params:
        about="The same on the other data sets; below every agent in-domain. The dotted line joins the best reference "
        "policies. It is not an upper bound.",


use rule write_frontier as write_main_table with:
    """Write Table 1: every agent on every benchmark, with intervals."""
    wildcard_constraints:
        **shown(table="main_results", chapter="Main table"),
    params:
        about="Every agent on every benchmark. Each number leads to the runs that made it.",


use rule write_frontier as write_open_cases with:
    """Write the table of open cases: every agent on AgentClinic's, and on your own in FHIR."""
    wildcard_constraints:
        **shown(table="open_cases", chapter="Open cases" if evidence("write_open_cases") else ""),
    params:
        about="Every agent on real cases that anyone may have, in the main table's layout; no part of it.",


use rule write_frontier as write_effort with:
    """Write the table of calls, tokens and dollars of every agent, and of its bad replies."""
    wildcard_constraints:
        **shown(table="effort", chapter="What the systems took"),
    params:
        about="Calls, tokens and dollars of every system, and what went wrong with its replies: a row whose replies "
        "often fail shows how a model keeps to the format rather than how it diagnoses.",


use rule write_frontier as write_ablations with:
    """Write Table 2: CDPR without one of its parts."""
    wildcard_constraints:
        **shown(table="ablations", chapter="Ablations"),
    params:
        about="CDPR without one of its parts, in-domain.",


use rule write_frontier as write_dynamic_vs_static with:
    """Write Table 3: CDPR against a diagnosis from the whole record at once."""
    wildcard_constraints:
        **shown(table="dynamic_vs_static", chapter="Dynamic against static diagnosis"),
    params:
        about="CDPR, which asks for one examination at a time, against a diagnosis from the whole record.",


use rule plot_frontier as plot_expert_study with:
    """Draw the radar of the expert study, with marks of significance."""
    input:
        study="<results>/study/analysis.json",
    wildcard_constraints:
        **shown(figure="expert_study", chapter="Expert study"),
    params:
        about="Means of the five dimensions per method, as a radar and with intervals; a star marks where ours is "
        "significantly above the next-best baseline. A line below it names the raters.",


use rule write_frontier as write_expert_study with:
    """Write the table of the expert study."""
    input:
        study="<results>/study/analysis.json",
    wildcard_constraints:
        **shown(table="expert_study", chapter="Expert study"),
    params:
        about="Decisions of several methods at the same states, rated blindly. In the demo the raters are simulated, "
        "and no physician has seen anything.",


use rule plot_frontier as plot_training_efficiency with:
    """Draw accuracy against generated tokens."""
    wildcard_constraints:
        **shown(figure="training_efficiency", chapter="Training efficiency"),
    params:
        about="Validation accuracy, utility and cost during training, against generated tokens; one line per method, "
        "a band over its seeds.",


use rule plot_frontier as plot_training_time with:
    """Draw accuracy against the time of training."""
    wildcard_constraints:
        **shown(figure="training_time", chapter="Training efficiency", apart=True),
    params:
        about="The same against the time of training, of the processor on a CPU.",


use rule plot_sensitivity_all as plot_sensitivity with:
    """Draw the six panels of the paper's sensitivity analysis: M, K, H, beta, eta, n."""
    wildcard_constraints:
        **shown(figure="sensitivity", chapter="Sensitivity"),
    params:
        about="In-domain results for each value of the paper's six settings M, K, H, β, η and n, the default marked. "
        "A setting of which only one value was trained has no panel.",


use rule plot_frontier as plot_learning_curves with:
    """Draw accuracy, AEN, AEC, unavailable requests and utility by iteration."""
    wildcard_constraints:
        **shown(figure="learning_curves", chapter="Learning curves"),
    params:
        about="Validation accuracy, examinations, cost, unavailable requests and utility by training step; one line "
        "per method, a band over its seeds.",


use rule plot_frontier as plot_learning_path with:
    """Draw accuracy against cost during training, by iteration."""
    wildcard_constraints:
        **shown(figure="learning_path", chapter="Learning curves"),
    params:
        about="Accuracy against cost during training, on the validation cases; one marker per validation.",


use rule plot_frontier as plot_cost_distribution with:
    """Draw how the cost of a workup is distributed over cases."""
    wildcard_constraints:
        **shown(figure="cost_distribution", chapter="Distribution of costs"),
    params:
        about="How the cost of a workup is distributed over cases, per data set and agent.",


use rule write_frontier as write_sample_case with:
    """Write the sample case: one test case with its prices, and what each agent did on it."""
    input:
        behind,
        cases=f"<results>/cases/{IN_DOMAIN}.jsonl",
    wildcard_constraints:
        **shown(table="sample_case", chapter="A sample case"),
    params:
        about="One test case, chosen by a digest and not by hand: its examinations, and what each agent did.",


use rule plot_frontier as plot_headroom with:
    """Draw accuracy split into evidence, reading errors and choice of examinations."""
    input:
        preflight="<results>/preflight.json",
    wildcard_constraints:
        **shown(figure="headroom", chapter="Can this experiment answer its question?"),
    params:
        about="What the policy gets right before training, when it must diagnose at once and on the evidence that it "
        "gathers; what it loses by reading that evidence wrongly; and what value of information reaches for no "
        "more money. The bracket is the smallest difference that the planned cases and seeds can show.",


use rule write_frontier as write_headroom with:
    """Write the table of headrooms and of the smallest differences that can be shown."""
    input:
        preflight="<results>/preflight.json",
    wildcard_constraints:
        **shown(table="headroom", chapter="Can this experiment answer its question?"),
    params:
        about="Measured on the policy before training: what there is to learn, and whether it could be seen. Where "
        "the largest gain is smaller than the smallest difference that can be shown, no result of this "
        "experiment means anything.",


use rule make_forms as write_claims with:
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
        "<logs>/write_claims.log",
    params:
        **job("write_claims"),


use rule write_claims as write_frames with:
    """Write all evaluations and all trainings as two tidy frames, for a notebook."""
    input:
        evidence("write_frames"),
    output:
        evaluations="<results>/evaluations.parquet",  # a row per run, data set, decoding and case
        trainings="<results>/trainings.parquet",  # a row per run and step
        record="<results>/evaluations.run.json",
    log:
        "<logs>/write_frames.log",
    params:
        **job("write_frames"),


use rule write_claims as write_report with:
    """Write one HTML page with all results, each linked to the run that made it."""
    input:
        evidence("write_report"),
        lambda wildcards: made(*(part["rule"] for part in PAGE)),
        rules.write_claims.output,
        lambda wildcards: rules.write_inspector.output.site if settings.inspector.runs else [],  # its links lead there
        rules.write_data_card.output,
    output:
        html=report("<results>/report.html", category="Results page"),
        record="<results>/report.run.json",
    log:
        "<logs>/write_report.log",
    params:
        **job("write_report", page=page),


use rule write_claims as write_inspector with:
    """Write the decision inspector: a site to step through workups and see why they went so."""
    input:
        evidence("write_inspector"),
        [f"<results>/analysis/credit/{run}/{dataset}.jsonl.gz" for run, dataset in inspected_credit(experiment)],
        **{f"cases_{dataset}": f"<results>/cases/{dataset}.jsonl" for dataset in BENCHMARKS},
        study="<results>/study/means.jsonl",
    output:
        site=directory("<results>/inspector"),  # open its index.html
        record="<results>/inspector.run.json",
    log:
        "<logs>/write_inspector.log",
    params:
        **job("write_inspector"),
