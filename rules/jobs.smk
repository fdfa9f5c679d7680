"""The jobs: every stage of `src/cdpr/workflow/stages.py` is a rule of this one shape.

The table of stages says what a rule reads and writes, and which settings and code its run key covers. This file adds what
only a scheduler needs. Memory is in MB, runtime in minutes.
"""

# A policy acts, on a GPU if there is one and the agent needs one.
ACTS = machines.acting_machine(
    plan.settings, lambda run: run in plan.settings.agents and plan.settings.agents[run].knows_hospital
)
# All other stages are light and run on the machine that submits.
HEAVY = {
    "make_hospital": {"mem_mb": 2000, "runtime": 10},
    "ingest_dataset": {"mem_mb": 8000, "runtime": 120},
    **dict.fromkeys(("map_costs", "remove_leaks"), {"mem_mb": 2000, "runtime": 30}),
    # A longer training continues from its checkpoint in the next attempt (`retries` of the profile).
    "train_policy": machines.training_machine(plan.settings) | {"runtime": 2880},
    "evaluate_agent": ACTS | {"runtime": 720},
    **dict.fromkeys(("measure_credit_quality", "credit_workups"), ACTS | {"runtime": 120}),
    **dict.fromkeys(("warm_start_policy", "sample_states", "propose_actions"), ACTS | {"runtime": 240}),
}
LIGHT = {"mem_mb": 2000, "runtime": 60}
THREADS = {
    "make_hospital": 2,
    "warm_start_policy": max(plan.settings.warm_start.threads, machines.acting_threads(plan.settings)),
    "train_policy": machines.training_threads(plan.settings),
}
# Runs that a job with a server evaluates are not evaluated by a job of their own.
SERVED_RUNS = "|".join(re.escape(run) for job in SERVED.values() for run in job.runs)
CONSTRAINTS = {"evaluate_agent": {"run": (rf"(?!(?:{SERVED_RUNS})/)" if SERVED else "") + RUN}}
for stage in ("ingest_dataset", "map_costs", "remove_leaks", "write_data_card"):
    CONSTRAINTS[stage] = {"dataset": "|".join(DATASETS)}  # not a leak-controlled variant

# `write_timings` depends on no job in particular: rules/tracking.smk has it.
for stage in (name for name in STAGES if name != "write_timings"):

    rule:
        name:
            stage
        input:
            **inputs(stage),
        output:
            **outputs(stage),
        log:
            log_file(stage),
        wildcard_constraints:
            **CONSTRAINTS.get(stage, {}),
        priority: 100 if stage == "check_headroom" else 0  # it says whether the experiment can show a difference
        localrule: stage not in HEAVY
        conda:
            "../envs/cdpr.yaml"
        threads: THREADS.get(stage) or machines.acting_threads(plan.settings) if stage in HEAVY else 1
        resources:
            **HEAVY.get(stage, LIGHT),
        params:
            **params(stage),
        shell:
            COMMAND


# One job, one server: all evaluations of a model whose server the job starts itself (`serving` in config.yaml).
for job in SERVED.values():
    machine = served.machine_of(plan, job)

    rule:
        name:
            job.rule
        input:
            served.files_of(plan, job)[0],
        output:
            served.files_of(plan, job)[1],
        log:
            f"<logs>/evaluate_served/{job.name}.log",
        conda:
            "../envs/cdpr.yaml"
        threads: machine.cpus
        resources:
            **machines.serving_machine(machine),
        params:
            key=lambda wildcards, job=job: served.key_of(plan, job),
            job=job.name,
        shell:
            f"cdpr evaluate_served {{params.job}} {LOG}"
