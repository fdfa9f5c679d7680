"""The rows of each table: agents of the registry and trained variants, with their runs.

Nothing here reads results, so the plan of jobs asks the same functions which evaluations a table is made of.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..settings import (
    AgentEntry,
    ModelEntry,
    Settings,
    TrainedRun,
    datasets,
    job_of,
    judging_models,
    labels_of,
    model_of,
    seeds_of,
    variants,
    why_not_run,
    why_not_trained,
)

DATASETS = {name: datasets.DATASETS[name].column for name in datasets.BENCHMARKS}
IN_DOMAIN = datasets.IN_DOMAIN
# The data sets that make up the paper's average; a further benchmark is no part of it.
AVERAGED = datasets.AVERAGED
AVERAGE = "average"

# The sections of the main table, by the group of the registry.
GROUPS = {
    "closed": "Closed-Source LLMs",
    "open": "Open-Source LLMs",
    "medical": "Medical Agents",
    "trained": "Reinforcement Variants",
    "own": "Own agents",
    "reference": "Reference policies (they know the synthetic hospital's model)",
}
CLOSED, OPEN, AGENTS, TRAINED, OWN, REFERENCE = GROUPS.values()
OURS = "cdpr"
# Minimum seeds to report a sweep peak: at the default point (True) and at other points (False).
LEAST_SEEDS = {True: 3, False: 2}


@dataclass(frozen=True)
class Method:
    """A row of a table. ``runs`` are its evaluated runs, one per seed; without any, ``why`` says why it is not run.
    ``paper`` names the row of the paper's Table 1 that it stands for."""

    name: str
    label: str
    group: str
    runs: tuple[str, ...] = ()
    paper: str = ""
    why: str = ""

    @property
    def knows_hospital(self) -> bool:
        """Whether it reads cases by the synthetic hospital's model: real cases have none. Such a policy is
        deterministic and has one figure whatever the decoding."""
        return self.group == REFERENCE

    @property
    def learned(self) -> bool:
        """Whether it is run and does not know the model that made the cases: such rows compete for the marks."""
        return bool(self.runs) and not self.knows_hospital


def main_methods(settings: Settings) -> list[Method]:
    """List all rows of the main table: agents in the order of the registry, group by group, our own method last."""
    others, ours = list[Method](), list[Method]()
    for variant in [name for name, entry in settings.experiments.variants.items() if "main_table" in entry.feeds]:
        (ours if variant == OURS else others).append(trained(settings, variant))
    agents = [agent(settings, name) for name in settings.agents]
    rows = [*others, *agents, *ours]
    return [row for group in GROUPS.values() for row in rows if row.group == group]


def pictured_methods(settings: Settings) -> list[Method]:
    """List the rows of the main table, and further variants that the figure of accuracy and cost compares with them."""
    return [*main_methods(settings), *_methods_named(settings, names=("@accuracy_cost",))]


def page_methods(settings: Settings) -> list[Method]:
    """List the methods with runs that the results page shows, each once: the rows of the main table, then every other
    variant that feeds more than the table of comparators."""
    entries = settings.experiments.variants
    others = [v for v in variants(settings) if v not in entries or set(entries[v].feeds) - {"comparators"}]
    methods = {m.name: m for m in (*main_methods(settings), *(trained(settings, v) for v in others))}
    return [method for method in methods.values() if method.runs]


def open_methods(settings: Settings) -> list[Method]:
    """List the rows of the table of open cases: those of the main table without the reference policies, and without the
    trained ones unless the settings include them."""
    left_out = {} if settings.evaluation.open_cases.trained else variants(settings)
    return [m for m in main_methods(settings) if m.group != REFERENCE and m.name not in left_out]


def open_datasets(settings: Settings) -> dict[str, str]:
    """Return the columns of the table of open cases: data sets beside the benchmarks that have a path, and their
    labels."""
    return {name: datasets.DATASETS[name].column for name in datasets.FURTHER if not synthetic(settings, name)}


def unfit(settings: Settings, run: str, dataset: str) -> str:
    """Say why a run cannot diagnose the cases of a data set; empty where it can. Reference policies need the model that
    made the cases. The tiny policy knows no word that it was not trained on: on open cases it would say nothing of the
    method."""
    entry = settings.agents.get(run)
    if entry is not None and entry.knows_hospital:
        return "" if synthetic(settings, dataset) else "not run: real cases have no known model"
    tiny = settings.policy.model == "tiny" and (entry is None or entry.own_policy)
    if tiny and dataset in datasets.FURTHER:
        return "not run: the tiny policy reads only the words that it was trained on; set policy.model"
    return ""


def _methods_named(settings: Settings, *, names: tuple[str, ...]) -> list[Method]:
    """List the methods ``names``, each once. A name ``@FIGURE`` stands for all variants of that figure that can be
    trained, in the order of workflow/experiments.yaml."""
    single_names: dict[str, None] = {}
    for name in names:
        single_names |= dict.fromkeys(labels_of(settings, name[1:]) if name.startswith("@") else [name])
    return [agent(settings, name) if name in settings.agents else trained(settings, name) for name in single_names]


# Of Table 2: ours, then its ablations.
ablation_methods = partial(_methods_named, names=(OURS, "@ablations"))
# Of Table 3.
dynamic_methods = partial(_methods_named, names=("static", OURS))
# Ways to assign credit, between the policy that they start from and the best that can be done.
comparator_methods = partial(_methods_named, names=("warm_start", "@comparators", "value_of_information"))
# Diagnosis at once, where every frontier begins, and the points of all rules.
frontier_methods = partial(_methods_named, names=("immediate", "@frontier"))
# The policy before training, and what a rule is compared with in part.
part_methods = partial(_methods_named, names=("warm_start", "@frontier_parts"))
# Variants that are trained and validated to choose the settings of others.
grid_methods = partial(_methods_named, names=("@frontier_grid",))
# The untrained policy, GRPO, ours, and the references with no and with all examinations.
leak_methods = partial(_methods_named, names=("warm_start", "grpo", OURS, "zero_test", "all_tests"))


def trained(settings: Settings, variant: str) -> Method:
    """Make the row of a variant, with one run per seed. Variants that train the same thing share all runs of their job,
    so that no table or claim has fewer of them than another. One that cannot be trained has the reason instead."""
    entry = variants(settings)[variant]
    if why := why_not_trained(settings, variant):
        return Method(variant, entry.label, TRAINED, (), entry.paper, f"not run: {why}")
    job = job_of(settings, variant)
    seeds = max(seeds_of(settings, variant), seeds_of(settings, job), key=len)
    runs = tuple(str(TrainedRun(job, seed)) for seed in seeds)
    return Method(variant, entry.label, TRAINED, runs, entry.paper)


def agent(settings: Settings, name: str) -> Method:
    """Make the row of an agent of the registry: one run of its name, or the reason why it is not run; such a row has
    the paper's name."""
    entry = settings.agents[name]
    label = entry.label or _called(settings, entry)
    if why := why_not_run(settings, name):
        return Method(entry.paper or name, label, GROUPS[entry.group], (), entry.paper, why)
    return Method(name, label, GROUPS[entry.group], (name,), entry.paper)


def _called(settings: Settings, entry: AgentEntry) -> str:
    """Return the name of a row without a label: that of its model, with the paper's name where that differs."""
    model = model_of(settings, entry)
    label = _model_name(model) if model else backbone(settings)
    return f"{label} (paper: {entry.paper})" if model and entry.paper not in ("", label) else label


def _model_name(model: ModelEntry) -> str:
    return model.label or model.id or Path(str(model.folder)).name


def backbone(settings: Settings) -> str:
    """Return the name of the policy before reinforcement learning."""
    model = settings.policy.model
    return "Warm-started tiny policy" if model == "tiny" else f"Backbone {Path(model).name}"


def synthetic(settings: Settings, dataset: str) -> bool:
    """Tell whether a data set comes from the synthetic hospital instead of the user's own files."""
    return settings.data.source(dataset).path is None


def domain(dataset: str) -> str:
    """Return ``in-domain`` or ``OOD``."""
    return "in-domain" if dataset == IN_DOMAIN else "OOD"


def tier_mark(settings: Settings) -> str:
    """Say where the cases come from, as every table and figure must."""
    made_up = [label for name, label in DATASETS.items() if synthetic(settings, name)]
    if len(made_up) == len(DATASETS):
        return f"tier: {settings.tier} — synthetic hospital"
    return f"tier: {settings.tier}" + (f" — synthetic: {', '.join(made_up)}" if made_up else "")


def judges(settings: Settings) -> tuple[str, str]:
    """Return the names of the judge whose verdicts count, and of the second one."""
    names = {where: _model_name(model) for where, model in judging_models(settings).items()}
    first = f"tables of names, then {names['judge.model']}" if "judge.model" in names else "tables of names"
    return first, names.get("judge.second", "tables of names")
