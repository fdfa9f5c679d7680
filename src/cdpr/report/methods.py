"""The methods that tables and figures compare, agents and trained variants, with the names of their runs; and the data
sets: their labels, where their cases come from, and the sentences that licences require in a report.

Nothing here reads results. The workflow asks these functions which evaluations a table needs.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import parse_yaml, shipped_text
from ..settings import AgentEntry, ModelEntry, Settings, TrainedRun, datasets, judging_models, model_of, why_not_run
from ..settings.variants import job_of, labels_of, seeds_of, variants, why_not_trained

# The labels of the benchmarks, by name.
DATASETS = {name: datasets.DATASETS[name].column for name in datasets.BENCHMARKS}
IN_DOMAIN = datasets.IN_DOMAIN
# The data sets that make up the paper's average. A benchmark that is added later is not among them.
AVERAGED = datasets.AVERAGED
AVERAGE = "average"

_DECLARED = parse_yaml(shipped_text(__package__, "methods.yaml"))
# The sections of the main table, by the ``group`` that an agent has in the registry.
GROUPS: dict[str, str] = _DECLARED["groups"]
AGENTS, TRAINED, REFERENCE = (GROUPS[group] for group in ("medical", "trained", "reference"))
OURS = "cdpr"


@dataclass(frozen=True)
class Method:
    """An agent or a trained variant, which is one row of a table.

    ``runs`` are the names of its evaluated runs, one per training seed (``("cdpr-seed0", "cdpr-seed1")``). Where there
    are none, ``why`` says why it is not run. ``group`` is its section of the main table, and ``paper`` its name in the
    paper's Table 1 (empty where it is not there).
    """

    name: str
    label: str
    group: str
    runs: tuple[str, ...] = ()
    paper: str = ""
    why: str = ""

    @property
    def knows_hospital(self) -> bool:
        """Whether it uses the probability model that generated the synthetic cases. Real cases have no such model."""
        return self.group == REFERENCE

    @property
    def learned(self) -> bool:
        """Whether it has runs, and does not know the probabilities by which the synthetic hospital made its cases.
        Tables mark the best among such methods."""
        return bool(self.runs) and not self.knows_hospital

    def decoding(self, decoding: str) -> str:
        """Return the decoding under which its evaluations are stored: ``greedy`` for reference policies, which are
        deterministic, else the given one."""
        return "greedy" if self.knows_hospital else decoding


def main_methods(settings: Settings) -> list[Method]:
    """Return all rows of the main table, by group in the order of :data:`GROUPS`: variants, then agents in the order of
    the registry, and our own method last in its group."""
    shown = [name for name, entry in settings.experiments.variants.items() if "main_table" in entry.feeds]
    methods = [variant_method(settings, name) for name in shown]
    methods += [agent_method(settings, name) for name in settings.agents]
    group_order = list(GROUPS.values())
    return sorted(methods, key=lambda method: (group_order.index(method.group), method.name == OURS))


def page_methods(settings: Settings) -> list[Method]:
    """Return the methods with runs that the results page shows, each once: the rows of the main table, then all other
    variants that feed a table or figure, without those that only the table of comparators has."""
    methods = {method.name: method for method in main_methods(settings)}
    for variant in variants(settings):
        entry = settings.experiments.variants.get(variant)
        if entry is None or set(entry.feeds) - {"comparators"}:  # None: a point of a sweep
            methods.setdefault(variant, variant_method(settings, variant))
    return [method for method in methods.values() if method.runs]


def open_methods(settings: Settings) -> list[Method]:
    """Return the rows of the table of open cases, which are cases outside the benchmarks: public ones, or the user's
    own in FHIR. They are the rows of the main table without reference policies, and without trained variants unless the
    settings include them."""
    left_out = {} if settings.evaluation.open_cases.trained else variants(settings)  # by name
    methods = main_methods(settings)
    return [method for method in methods if method.group != REFERENCE and method.name not in left_out]


def open_datasets(settings: Settings) -> dict[str, str]:
    """Return the labels, by name, of the data sets of the table of open cases: those beside the benchmarks for which
    the settings name the user's own files."""
    return {name: datasets.DATASETS[name].column for name in datasets.FURTHER if not is_synthetic(settings, name)}


def why_unfit(settings: Settings, run: str, dataset: str) -> str:
    """Say why a run cannot diagnose the cases of a data set; empty where it can.

    Reference policies need the model that generated the cases, which real cases lack. The tiny policy knows only the
    words that it was trained on, so it cannot read the cases of further data sets.
    """
    entry = settings.agents.get(run)
    if entry is not None and entry.knows_hospital:
        return "" if is_synthetic(settings, dataset) else "not run: real cases have no known model"
    tiny = settings.policy.model == "tiny" and (entry is None or entry.own_policy)
    if tiny and dataset in datasets.FURTHER:
        return "not run: the tiny policy reads only the words that it was trained on; set policy.model"
    return ""


def list_methods(settings: Settings, table: str) -> list[Method]:
    """Return the methods of a table or figure, each once: ``main``, ``open``, or an entry of ``tables`` in
    ``methods.yaml``."""
    if table in ("main", "open"):
        return main_methods(settings) if table == "main" else open_methods(settings)
    names = _DECLARED["tables"][table]
    expanded = [labels_of(settings, name[1:]) if name.startswith("@") else [name] for name in names]
    return [agent_method(settings, name) if name in settings.agents else variant_method(settings, name)
            for name in dict.fromkeys(itertools.chain.from_iterable(expanded))]  # fmt: skip


def variant_method(settings: Settings, variant: str) -> Method:
    """Return a trained variant as a method with one run per seed; without runs, and with the reason, where it cannot be
    trained.

    Variants with the same training, though they may have other numbers of seeds, share all its runs, so that no table
    shows fewer of them than another.
    """
    entry = variants(settings)[variant]
    if why := why_not_trained(settings, variant):
        return Method(variant, entry.label, TRAINED, (), entry.paper, f"not run: {why}")
    job = job_of(settings, variant)
    # Both lists begin with the first of the settings' seeds, so the longer one contains the other.
    seeds = max(seeds_of(settings, variant), seeds_of(settings, job), key=len)
    runs = tuple(str(TrainedRun(job, seed)) for seed in seeds)
    return Method(variant, entry.label, TRAINED, runs, entry.paper)


def agent_method(settings: Settings, name: str) -> Method:
    """Return an agent of the registry as a method with one run, which has the agent's name. Where the agent is not run,
    the method has the reason in place of runs, and the paper's name for the agent where there is one."""
    entry = settings.agents[name]
    label = entry.label or _label_by_model(settings, entry)
    if why := why_not_run(settings, name):
        return Method(entry.paper or name, label, GROUPS[entry.group], (), entry.paper, why)
    return Method(name, label, GROUPS[entry.group], (name,), entry.paper)


def _label_by_model(settings: Settings, entry: AgentEntry) -> str:
    """Return the label of an agent that has none in the registry: the label of its model, followed by the paper's name
    where that differs; the label of the policy before training where the agent has no model of its own."""
    model = model_of(settings, entry)
    if model is None:
        return backbone(settings)
    label = _model_label(model)
    return label if entry.paper in ("", label) else f"{label} (paper: {entry.paper})"


def _model_label(model: ModelEntry) -> str:
    """Return the label of a model: the one given in its entry, else its id, else the name of its folder."""
    return model.label or model.id or Path(str(model.folder)).name


def with_common_seeds(methods: Sequence[Method]) -> list[Method]:
    """Return the methods, shortened so that all trained ones have equally many runs: as many as the trained method with
    the fewest. (A method that is not run does not count.) Kept are the runs of the first seeds, which all methods
    share."""
    trained = [method for method in methods if method.group == TRAINED and method.runs]
    fewest = min((len(method.runs) for method in trained), default=0)
    return [replace(method, runs=method.runs[:fewest]) if method in trained else method for method in methods]


def unique_runs(entries: Iterable[Any]) -> tuple[str, ...]:
    """Return the ``runs`` of methods, curves or comparisons, each name once, in their order."""
    return tuple(dict.fromkeys(run for entry in entries for run in entry.runs))


def backbone(settings: Settings) -> str:
    """Return the label of the policy before reinforcement learning."""
    model = settings.policy.model
    return "Warm-started tiny policy" if model == "tiny" else f"Backbone {Path(model).name}"


def is_synthetic(settings: Settings, dataset: str) -> bool:
    """Tell whether the cases of a data set come from the synthetic hospital, and not from the user's own files."""
    return settings.data.source(dataset).path is None


def source_of(settings: Settings, dataset: str) -> datasets.DataSet:
    """Return the description of the cases of a data set (label, licence, conditions, links): that of the real data set,
    or that of the synthetic hospital where the settings give no path to real files."""
    real = datasets.DATASETS[dataset]
    if not is_synthetic(settings, dataset):
        return real
    texts: dict[str, Any] = {field: text.format(label=real.label) for field, text in _DECLARED["synthetic"].items()}
    texts["conditions"] = (texts.pop("condition"),)
    # Not the settings of data under an agreement.
    return replace(real, **texts, links=(), open=True, settings=datasets.Source)


def notices(settings: Settings) -> list[str]:
    """Return the sentences that licences require below results on the user's own data sets; an empty list where there
    are none."""
    if is_synthetic(settings, "clinicalbench"):
        return []
    repository, paper = datasets.DATASETS["clinicalbench"].links
    return [f"Evaluated using ClinicalBench (ClinicalLab, {repository}, {paper})."]


def domain(dataset: str) -> str:
    """Return ``in-domain`` for the data set that policies are trained on, else ``OOD`` (out of domain)."""
    return "in-domain" if dataset == IN_DOMAIN else "OOD"


def synthetic_origin(settings: Settings) -> str:
    """Return ``synthetic hospital`` where the cases of all benchmarks are synthetic; where those of some are, their
    labels (``synthetic: MIMIC-IV, Private``); else an empty text."""
    synthetic = [label for name, label in DATASETS.items() if is_synthetic(settings, name)]
    if len(synthetic) == len(DATASETS):
        return "synthetic hospital"
    return f"synthetic: {', '.join(synthetic)}" if synthetic else ""


def tier_mark(settings: Settings) -> str:
    """Return the words that every table and figure shows about the scale of the experiment and the origin of its cases,
    such as ``tier: demo — synthetic hospital``."""
    return " — ".join(filter(None, (f"tier: {settings.tier}", synthetic_origin(settings))))


def judge_labels(settings: Settings) -> tuple[str, str]:
    """Return the label of the judge whose verdicts count, and that of the second judge. Where the settings name no
    language model for one of them, it is ``tables of names``, also where there is no second judge."""
    labels = {setting: _model_label(model) for setting, model in judging_models(settings).items()}
    first = f"tables of names, then {labels['judge.model']}" if "judge.model" in labels else "tables of names"
    return first, labels.get("judge.second", "tables of names")
