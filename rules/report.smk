"""Tables, figures, claims, results page and inspector, in the order of the page.

Needs  <results>/evaluations, training, study; what is behind each is in src/cdpr/workflow/evidence.py.
Makes  <results>/tables, figures, claims.*, report.html, inspector.
"""


rule plot_accuracy_cost:
    """Draw accuracy against cost of six agents, in-domain: the first picture."""
    input:
        evidence("plot_accuracy_cost"),
    output:
        **result("plot_accuracy_cost", "<results>/figures/accuracy_cost", "Accuracy against cost"),
    log:
        "<logs>/plot_accuracy_cost.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    params:
        **job("plot_accuracy_cost"),
        about="Accuracy against average cost per case, in-domain: the policy before training, the trained ones, and "
        "value of information, which knows the synthetic hospital.",
    shell:
        "cdpr {params.stage} --key {params.key} {params.flags} > {log:q} 2>&1"


use rule plot_accuracy_cost as plot_every_agent with:
    """Draw accuracy against cost on the other data sets, and of every agent."""
    input:
        evidence("plot_every_agent"),
    output:
        **result("plot_every_agent", "<results>/figures/every_agent", "Accuracy against cost"),
    log:
        "<logs>/plot_every_agent.log",
    params:
        **job("plot_every_agent"),
        about="The same on the other data sets; below every agent in-domain. The dotted line joins the best reference "
        "policies. It is not an upper bound.",


use rule plot_accuracy_cost as write_main_table with:
    """Write Table 1: every agent on every benchmark, with intervals."""
    input:
        evidence("write_main_table"),
    output:
        **result("write_main_table", "<results>/tables/main_results", "Main table"),
    log:
        "<logs>/write_main_table.log",
    params:
        **job("write_main_table"),
        about="Every agent on every benchmark. Each number leads to the runs that made it.",


use rule plot_accuracy_cost as write_open_cases with:
    """Write the table of open cases: every agent on AgentClinic's, and on your own in FHIR."""
    input:
        evidence("write_open_cases"),
    output:
        **result(
            "write_open_cases", "<results>/tables/open_cases", "Open cases" if evidence("write_open_cases") else ""
        ),
    log:
        "<logs>/write_open_cases.log",
    params:
        **job("write_open_cases"),
        about="Every agent on real cases that anyone may have, in the main table's layout; no part of it.",


use rule plot_accuracy_cost as write_effort with:
    """Write the table of calls, tokens and dollars of every agent, and of its bad replies."""
    input:
        evidence("write_effort"),
    output:
        **result("write_effort", "<results>/tables/effort", "What the systems took"),
    log:
        "<logs>/write_effort.log",
    params:
        **job("write_effort"),
        about="Calls, tokens and dollars of every system, and what went wrong with its replies: a row whose replies "
        "often fail shows how a model keeps to the format rather than how it diagnoses.",


use rule plot_accuracy_cost as write_ablations with:
    """Write Table 2: CDPR without one of its parts."""
    input:
        evidence("write_ablations"),
    output:
        **result("write_ablations", "<results>/tables/ablations", "Ablations"),
    log:
        "<logs>/write_ablations.log",
    params:
        **job("write_ablations"),
        about="CDPR without one of its parts, in-domain.",


use rule plot_accuracy_cost as write_dynamic_vs_static with:
    """Write Table 3: CDPR against a diagnosis from the whole record at once."""
    input:
        evidence("write_dynamic_vs_static"),
    output:
        **result(
            "write_dynamic_vs_static",
            "<results>/tables/dynamic_vs_static",
            "Dynamic against static diagnosis",
        ),
    log:
        "<logs>/write_dynamic_vs_static.log",
    params:
        **job("write_dynamic_vs_static"),
        about="CDPR, which asks for one examination at a time, against a diagnosis from the whole record.",


use rule plot_accuracy_cost as plot_expert_study with:
    """Draw the radar of the expert study, with marks of significance."""
    input:
        study="<results>/study/analysis.json",
    output:
        **result("plot_expert_study", "<results>/figures/expert_study", "Expert study"),
    log:
        "<logs>/plot_expert_study.log",
    params:
        **job("plot_expert_study"),
        about="Means of the five dimensions per method, as a radar and with intervals; a star marks where ours is "
        "significantly above the next-best baseline. A line below it names the raters.",


use rule plot_accuracy_cost as write_expert_study with:
    """Write the table of the expert study."""
    input:
        study="<results>/study/analysis.json",
    output:
        **result("write_expert_study", "<results>/tables/expert_study", "Expert study"),
    log:
        "<logs>/write_expert_study.log",
    params:
        **job("write_expert_study"),
        about="Decisions of several methods at the same states, rated blindly. In the demo the raters are simulated, "
        "and no physician has seen anything.",


use rule plot_accuracy_cost as plot_training_efficiency with:
    """Draw accuracy against generated tokens."""
    input:
        evidence("plot_training_efficiency"),
    output:
        **result("plot_training_efficiency", "<results>/figures/training_efficiency", "Training efficiency"),
    log:
        "<logs>/plot_training_efficiency.log",
    params:
        **job("plot_training_efficiency"),
        about="Validation accuracy, utility and cost during training, against generated tokens; one line per method, "
        "a band over its seeds.",


use rule plot_accuracy_cost as plot_training_time with:
    """Draw accuracy against the time of training."""
    input:
        evidence("plot_training_time"),
    output:
        **result("plot_training_time", "<results>/figures/training_time", "Training efficiency", apart=True),
    log:
        "<logs>/plot_training_time.log",
    params:
        **job("plot_training_time"),
        about="The same against the time of training, of the processor on a CPU.",


use rule plot_accuracy_cost as plot_sensitivity with:
    """Draw the six panels of the paper's sensitivity analysis: M, K, H, beta, eta, n."""
    input:
        evidence("plot_sensitivity"),
    output:
        **result("plot_sensitivity", "<results>/figures/sensitivity", "Sensitivity"),
        csv="<results>/figures/sensitivity.csv",
    log:
        "<logs>/plot_sensitivity.log",
    params:
        **job("plot_sensitivity"),
        about="In-domain results for each value of the paper's six settings M, K, H, β, η and n, the default marked. "
        "A setting of which only one value was trained has no panel.",


use rule plot_accuracy_cost as plot_learning_curves with:
    """Draw accuracy, AEN, AEC, unavailable requests and utility by iteration."""
    input:
        evidence("plot_learning_curves"),
    output:
        **result("plot_learning_curves", "<results>/figures/learning_curves", "Learning curves"),
    log:
        "<logs>/plot_learning_curves.log",
    params:
        **job("plot_learning_curves"),
        about="Validation accuracy, examinations, cost, unavailable requests and utility by training step; one line "
        "per method, a band over its seeds.",


use rule plot_accuracy_cost as plot_learning_path with:
    """Draw accuracy against cost during training, by iteration."""
    input:
        evidence("plot_learning_path"),
    output:
        **result("plot_learning_path", "<results>/figures/learning_path", "Learning curves"),
    log:
        "<logs>/plot_learning_path.log",
    params:
        **job("plot_learning_path"),
        about="Accuracy against cost during training, on the validation cases; one marker per validation.",


use rule plot_accuracy_cost as plot_cost_distribution with:
    """Draw how the cost of a workup is distributed over cases."""
    input:
        evidence("plot_cost_distribution"),
    output:
        **result("plot_cost_distribution", "<results>/figures/cost_distribution", "Distribution of costs"),
    log:
        "<logs>/plot_cost_distribution.log",
    params:
        **job("plot_cost_distribution"),
        about="How the cost of a workup is distributed over cases, per data set and agent.",


use rule plot_accuracy_cost as write_sample_case with:
    """Write the sample case: one test case with its prices, and what each agent did on it."""
    input:
        evidence("write_sample_case"),
        cases=f"<results>/cases/{IN_DOMAIN}.jsonl",
    output:
        **result("write_sample_case", "<results>/tables/sample_case", "A sample case"),
    log:
        "<logs>/write_sample_case.log",
    params:
        **job("write_sample_case"),
        about="One test case, chosen by a digest and not by hand: its examinations, and what each agent did.",


use rule plot_accuracy_cost as plot_headroom with:
    """Draw accuracy split into evidence, reading errors and choice of examinations."""
    input:
        preflight="<results>/preflight.json",
    output:
        **result("plot_headroom", "<results>/figures/headroom", "Can this experiment answer its question?"),
    log:
        "<logs>/plot_headroom.log",
    params:
        **job("plot_headroom"),
        about="What the policy gets right before training, when it must diagnose at once and on the evidence that it "
        "gathers; what it loses by reading that evidence wrongly; and what value of information reaches for no "
        "more money. The bracket is the smallest difference that the planned cases and seeds can show.",


use rule plot_accuracy_cost as write_headroom with:
    """Write the table of headrooms and of the smallest differences that can be shown."""
    input:
        preflight="<results>/preflight.json",
    output:
        **result("write_headroom", "<results>/tables/headroom", "Can this experiment answer its question?"),
    log:
        "<logs>/write_headroom.log",
    params:
        **job("write_headroom"),
        about="Measured on the policy before training: what there is to learn, and whether it could be seen. Where "
        "the largest gain is smaller than the smallest difference that can be shown, no result of this "
        "experiment means anything.",


use rule plot_accuracy_cost as write_comparators with:
    """Write the table of ways to assign credit: GRPO, VinePPO, GiGPO, CDPR, all actions."""
    input:
        evidence("write_comparators"),
    output:
        **result("write_comparators", "<results>/tables/comparators"),
    log:
        "<logs>/write_comparators.log",
    params:
        **job("write_comparators"),


use rule plot_accuracy_cost as write_frontier with:
    """Write the table of rules at matched cost."""
    input:
        evidence("write_frontier"),
    output:
        **result("write_frontier", "<results>/tables/frontier"),
    log:
        "<logs>/write_frontier.log",
    params:
        **job("write_frontier"),


use rule plot_accuracy_cost as write_frontier_parts with:
    """Write what a rule's gain is made of, and the grid that chose the rules' settings."""
    input:
        evidence("write_frontier_parts"),
        cases=HOSPITAL_CASES.get(IN_DOMAIN, []),
    output:
        **result("write_frontier_parts", "<results>/tables/frontier_parts"),
    log:
        "<logs>/write_frontier_parts.log",
    params:
        **job("write_frontier_parts"),


use rule plot_accuracy_cost as plot_frontier with:
    """Draw accuracy against cost of every rule, swept over the weight of correctness."""
    input:
        evidence("plot_frontier"),
    output:
        **result("plot_frontier", "<results>/figures/frontier"),
    log:
        "<logs>/plot_frontier.log",
    params:
        **job("plot_frontier"),


use rule plot_accuracy_cost as write_judge_agreement with:
    """Write the table of how far two judges agree, and of the figures that hang on the judge."""
    input:
        evidence("write_judge_agreement"),
    output:
        **result("write_judge_agreement", "<results>/tables/judge_agreement"),
    log:
        "<logs>/write_judge_agreement.log",
    params:
        **job("write_judge_agreement"),


use rule plot_accuracy_cost as write_leak_control with:
    """Write the table of agents on each benchmark and on its leak-controlled variant."""
    input:
        evidence("write_leak_control"),
    output:
        **result("write_leak_control", "<results>/tables/leak_control"),
    log:
        "<logs>/write_leak_control.log",
    params:
        **job("write_leak_control"),


use rule plot_accuracy_cost as plot_sensitivity_all with:
    """Draw the same six panels with every point that the experiments list."""
    input:
        evidence("plot_sensitivity_all"),
    output:
        **result("plot_sensitivity_all", "<results>/figures/sensitivity_all"),
        csv="<results>/figures/sensitivity_all.csv",
    log:
        "<logs>/plot_sensitivity_all.log",
    params:
        **job("plot_sensitivity_all"),


use rule plot_accuracy_cost as plot_further_sensitivity with:
    """Draw sweeps of what the paper leaves open: n_s, lambdas, cost unit, ..."""
    input:
        evidence("plot_further_sensitivity"),
    output:
        **result("plot_further_sensitivity", "<results>/figures/further_sensitivity"),
        csv="<results>/figures/further_sensitivity.csv",
    log:
        "<logs>/plot_further_sensitivity.log",
    params:
        **job("plot_further_sensitivity"),


use rule plot_accuracy_cost as plot_engines with:
    """Draw the learning curves of verl beside the torch trainer's."""
    input:
        evidence("plot_engines"),
    output:
        **result("plot_engines", "<results>/figures/engines"),
        csv="<results>/figures/engines.csv",
    log:
        "<logs>/plot_engines.log",
    params:
        **job("plot_engines"),


use rule plot_accuracy_cost as plot_credit_quality with:
    """Draw bias, variance and rank correlation of the process reward by setting and price."""
    input:
        quality="<results>/analysis/credit_quality.json",
    output:
        **result("plot_credit_quality", "<results>/figures/credit_quality"),
    log:
        "<logs>/plot_credit_quality.log",
    params:
        **job("plot_credit_quality"),


use rule plot_accuracy_cost as write_claims with:
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


use rule plot_accuracy_cost as write_frames with:
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


rule write_report:
    """Write one HTML page with all results, each linked to the run that made it."""
    input:
        evidence("write_report"),
        lambda wildcards: [file for part in PAGE for file in getattr(rules, part["rule"]).output],
        rules.write_claims.output,
        rules.data_cards.input,
        lambda wildcards: rules.write_inspector.output.site if settings.inspector.runs else [],  # its links lead there
    output:
        html=report("<results>/report.html", category="Results page"),
        record="<results>/report.run.json",
    log:
        "<logs>/write_report.log",
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    params:
        **job("write_report"),
        page=lambda wildcards: page(),
    shell:
        "cdpr {params.stage} --key {params.key} {params.flags} --page {params.page:q} > {log:q} 2>&1"


use rule plot_accuracy_cost as write_inspector with:
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
