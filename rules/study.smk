"""The expert study: blind ratings of single decisions.

Needs  <results>/cases, policies, training; forms that came back (`study.ratings`).
Makes  <results>/study.
"""

STATES = f"states/{study_run(settings, settings.study.source)}.jsonl"
SIMULATED = "<results>/study/simulated" if all_synthetic(settings) else []  # simulated raters know the hospital alone
# The study that was handed out: a copy (`study.kept`), or what this configuration makes.
STUDY = settings.study.kept or "<results>/study"
HANDED_OUT = {"states": given(f"{STUDY}/{STATES}"), "cards": given(f"{STUDY}/cards.json")}


rule sample_states:
    """Sample decision states of one policy's workups, for the expert study."""
    input:
        **{name: f"<results>/cases/{name}.jsonl" for name in BENCHMARKS},
        policy=lambda wildcards: given(experiment.acting_policy(wildcards.run)),
    output:
        states="<results>/study/states/{run}.jsonl",  # one state a line; as private as the cases
        record="<results>/study/states/{run}.run.json",
    log:
        "<logs>/sample_states/{run}.log",
    conda:
        "../envs/cdpr.yaml"
    threads: machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings),
        runtime=240,
    params:
        **job("sample_states"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule propose_actions:
    """Ask the compared agents what they would do at every state of the expert study."""
    input:
        [given(experiment.acting_policy(run)) for run in study_runs(settings)],
        **{name: f"<results>/cases/{name}.jsonl" for name in BENCHMARKS},
        states=f"<results>/study/{STATES}",
    output:
        proposals=expand("<results>/study/proposals/{run}.jsonl", run=study_runs(settings)),  # one proposal a line
        record=expand("<results>/study/proposals/{run}.run.json", run=study_runs(settings)),
    log:
        "<logs>/propose_actions.log",
    conda:
        "../envs/cdpr.yaml"
    threads: machines.acting_threads(settings)
    resources:
        **machines.acting_machine(settings),
        runtime=240,
    params:
        **job("propose_actions", run=study_runs(settings)),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule make_forms:
    """Blind the proposals, and write what raters fill in."""
    input:
        **{f"proposals_{n}": f"<results>/study/proposals/{run}.jsonl" for n, run in enumerate(study_runs(settings), 1)},
        states=f"<results>/study/{STATES}",
    output:
        cards="<results>/study/cards.json",  # the forms of each rater, without the agents behind the proposals
        forms=directory("<results>/study/forms"),  # a page of HTML per rater
        sealed="<results>/study/sealed/key.json",  # who proposed what; the analysis alone opens it
        protocol="<results>/study/protocol.md",  # sample, load and power; not for raters
        record="<results>/study/cards.run.json",
    log:
        "<logs>/make_forms.log",
    priority: 10  # before tables and figures, since two more jobs wait for it
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("make_forms"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule simulate_ratings:
    """Let simulated raters, who know the synthetic hospital, fill in the forms."""
    input:
        **HANDED_OUT,
    output:
        ratings=directory("<results>/study/simulated"),
        record="<results>/study/simulated.run.json",
    log:
        "<logs>/simulate_ratings.log",
    priority: 10
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("simulate_ratings"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"


rule analyse_study:
    """Read the forms that came back, open the key, and test."""
    input:
        **HANDED_OUT,
        sealed=given(f"{STUDY}/sealed/key.json"),
        ratings=given(settings.study.ratings) if settings.study.ratings else SIMULATED,
    output:
        analysis="<results>/study/analysis.json",  # agreement, means, tests
        means="<results>/study/means.jsonl",  # means by state and run, unsealed; as private as the cases
        record="<results>/study/analysis.run.json",
    log:
        "<logs>/analyse_study.log",
    priority: 10
    localrule: True
    conda:
        "../envs/cdpr.yaml"
    resources:
        mem_mb=2000,
        runtime=30,
    params:
        **job("analyse_study"),
    shell:
        "cdpr {params.command} > {log:q} 2>&1"
