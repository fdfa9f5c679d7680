"""What a user asks for: `snakemake --cores all reproduce_paper`, `snakemake ablations`, ... (workflow/targets.yaml)"""

import difflib

# What no list of stages says.
MORE = {
    "figures": of(*(stage for stage in FIGURES if stage in plan.on_page)),
    "data_cards": cards(),
    "smoke": plan.smoke(),
}

for target, parts in TARGETS.items():
    if target != "reproduce_paper" and "command" not in parts:

        rule:
            name:
                target
            input:
                of(*parts.get("stages", [])),
                MORE.get(target, []),


def list_rules(only_targets=False):
    """What `--list-rules` prints; `--list-target-rules` leaves out the single stages."""
    abouts = {name: parts["about"] for name, parts in TARGETS.items()}
    stages = {} if only_targets else {name: stage.summary for name, stage in STAGES.items()}
    for name, about in sorted((stages | abouts).items()):
        print(f"{name:24} {about}")


workflow.list_rules = list_rules

# Of a mistyped target Snakemake says only that no rule makes it.
known = [*TARGETS, *(rule.name for rule in workflow.rules)]
for word in set(sys.argv[1:]) - set(known) if workflow.is_main_process else ():
    for near in difflib.get_close_matches(word, known, 1, 0.8):
        logger.warning(f"{word} is no target. Did you mean {near}? All targets: snakemake --list-target-rules")
