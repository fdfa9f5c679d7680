"""What decides the outputs of a job apart from its settings and input files, and must therefore be in its run key.

Each function describes one kind of job. It takes the experiment and the options of the job, for example
``{"run": "cdpr-seed0", "dataset": "private"}``, and returns :class:`HiddenInputs`.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..agents.build import agent_code, agent_entry, own_reads
from ..llm.spec import module_of, modules_of
from ..settings import DATASETS, FURTHER, algorithm_module, digest, is_served, judging_models, model_of, project_folder
from ..settings.judging import DECIDING, SECOND, TABLES
from ..study.methods import all_synthetic, left_out
from .own_code import named_files

if TYPE_CHECKING:
    from .experiment import Experiment

Options = Mapping[str, str]

# The fields of a data set's entry (`settings.datasets`) that reports print.
_PRINTED = ("label", "role", "what", "licence", "conditions", "links", "open", "averaged", "short")


class HiddenInputs(NamedTuple):
    """What decides the outputs of a job apart from its settings and input files.

    - ``values``: JSON values by name, such as digests of files.
    - ``modules``: modules that the job imports by a name in the settings, so that no ``import`` statement shows them.
    """

    values: Mapping[str, Any] = MappingProxyType({})
    modules: tuple[str, ...] = ()

    def __or__(self, other: "HiddenInputs") -> "HiddenInputs":
        """Unite the values and modules of both."""
        return HiddenInputs({**self.values, **other.values}, self.modules + other.modules)


def describe_datasets(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe a report: a digest of what it prints about each data set (label, licence, links, ...), by data set."""
    printed = {name: digest({part: getattr(entry, part) for part in _PRINTED}) for name, entry in DATASETS.items()}
    return HiddenInputs({"data_sets": printed})


def describe_table(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe a table: what it prints about data sets, and the digest of the folder ``workflow/paper`` with the
    paper's numbers and claims, which no rule names as an input."""
    paper = experiment.digests.digest(str(project_folder() / "workflow/paper"))
    return describe_datasets(experiment, options) | HiddenInputs({"paper": paper})


def describe_page(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe the results page: what it prints about data sets, a digest of its texts, and the modules of the tables
    on it, which it imports by name."""
    entries = experiment.page().values()
    modules = tuple(entry.sheet.partition(":")[0] for entry in entries if entry.sheet)
    page = HiddenInputs({"page": digest([asdict(entry) for entry in entries])}, modules)
    return describe_datasets(experiment, options) | page


def describe_inspector(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe the inspector: what it prints about data sets, the models with which it judges diagnoses again, and the
    module that writes the policy's prompts."""
    judging = _describe_judging(experiment, DECIDING)
    return describe_datasets(experiment, options) | judging | HiddenInputs(modules=("cdpr.agents.policy",))


def describe_import(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe an import of raw files: role and importer of the data set, and whether its cases are credentialed."""
    entry = DATASETS[options["dataset"]]
    credentialed = experiment.settings.data.source(options["dataset"]).credentialed
    values = {"role": entry.role, "importer": entry.importer, "credentialed": credentialed}
    return HiddenInputs({"data_set": values}, (entry.importer.partition(":")[0],))


def describe_hospital(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe the synthetic hospital: for each data set that it writes, the function that writes it and the name of
    the setting with the number of its cases."""
    entries = {name: entry for name, entry in DATASETS.items() if entry.writer}
    values = {name: [entry.writer, entry.size] for name, entry in entries.items()}
    return HiddenInputs({"writers": values}, tuple(entry.writer.partition(":")[0] for entry in entries.values()))


def _describe_judging(experiment: "Experiment", keys: Collection[str]) -> HiddenInputs:
    """Describe the models that judge diagnoses and match requests: how answers are requested from each, the digest of
    its weights if the job loads them itself, and the modules that call it. Empty where tables of names alone judge.

    ``keys`` are the settings that name these models, such as ``judge.model``; other models are left out.
    """
    models = {key: model for key, model in judging_models(experiment.settings).items() if key in keys}
    values: dict[str, Any] = {key: model.request_settings() for key, model in models.items()}
    modules: list[str] = []
    for key, model in models.items():
        modules += ["cdpr.environment.model_judging", *modules_of(model)]
        if model.folder:
            values[f"{key} (weights)"] = experiment.digests.digest(model.folder)
    return HiddenInputs(values, tuple(modules))


def describe_credit(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe a computation of credit: the models that judge, and the module with which this process runs the
    policy from a folder."""
    return _describe_judging(experiment, DECIDING) | HiddenInputs(modules=(module_of("folder"),))


def describe_training(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe a training: the digests of files that the options of its algorithm name, the models that judge, and the
    modules of the algorithm, of the policy, and of what verl loads by name."""
    training = experiment.settings_of("train_policy", options).training
    modules = ["cdpr.training.algorithm", algorithm_module(training.algorithm), "cdpr.llm.sampler"]
    if training.engine == "verl":
        # The module that calls the server of the frozen policy, which samples continuations.
        modules.append(module_of(training.verl.frozen.url or "http:"))
        modules += [f"cdpr.training.verl.{name}" for name in ("agent_loop", "session", "trainer")]
    files = {path: experiment.digests.digest(path) for path in named_files(training.options)}
    return _describe_judging(experiment, DECIDING) | HiddenInputs({"files": files}, tuple(modules))


def describe_evaluation(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe a job in which an agent or a trained run acts, an evaluation or a part of the expert study: the agent
    and its model, all models that judge, the digests of files that the agent reads, the number of cases of an open data
    set, and the modules of the agent."""
    settings, run = experiment.settings, options["run"]
    values: dict[str, Any] = {"agent": _describe_agent(experiment, run)}
    if settings.judge.second == TABLES:  # tables of names are no model, so `_describe_judging` leaves them out
        values["judge.second"] = TABLES
    if options.get("dataset") in FURTHER:
        values["cases"] = settings.evaluation.open_cases.cases
    if run in settings.agents:
        values["files"] = experiment.file_digests(own_reads(settings, run))
    modules = tuple(agent_code(settings, agent_entry(settings, run)))
    return _describe_judging(experiment, (*DECIDING, *SECOND)) | HiddenInputs(values, modules)


def _describe_agent(experiment: "Experiment", run: str) -> dict[str, Any]:
    """Describe an agent or a trained run for a run key, as a JSON value:

    - ``served``: the program and command of the server that the job starts, and what the model's entry sets for it;
    - ``weights``: the digest of the folder of weights by which the agent acts, if there is one that no other job makes
      (such a folder is an input);
    - ``acts``: the agent's class;
    - ``model``: ``policy``, a folder or an address, if the agent names one of these as its model; None if it names an
      entry of models.yaml, or has no model;
    - ``request``: the settings that decide the model's answers, those of its entry if it has one; None for the policy
      and for an agent without a model.

    The name and the address of an entry of models.yaml are left out, since the same model may move. Of a trained run
    only ``served`` is described: its policy is an input of the job.
    """
    settings = experiment.settings
    entry = agent_entry(settings, run)
    model = model_of(settings, entry)  # None: it acts by the policy or without a model
    description: dict[str, Any] = {}
    if is_served(settings, entry):  # a server draws other samples than this process, and than another server
        server = settings.serving.model_dump(include={"program", "command"})
        description["served"] = server | (model.model_dump(include={"weights", "serve"}) if model else {})
    if run in settings.agents:
        folder = experiment.acting_policy(run)  # of the policy or of the model's weights; None where there is no folder
        # Weights in the results are made by another job: they are an input, whose changes Snakemake sees.
        if folder and not folder.startswith("<results>"):
            description["weights"] = experiment.digests.digest(folder)
        own_name = None if entry.model in settings.models else entry.model
        description |= {"acts": entry.acts, "model": own_name, "request": model and model.request_settings()}
    return description


def describe_study(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe the analysis of the expert study: whether all cases are synthetic, which it prints."""
    return HiddenInputs({"synthetic": all_synthetic(experiment.settings)})


def describe_forms(experiment: "Experiment", options: Options) -> HiddenInputs:
    """Describe the forms of the expert study, which print data sets, why methods are left out of the comparison, and
    whether all cases are synthetic."""
    reasons = HiddenInputs({"left_out": left_out(experiment.settings)})
    return reasons | describe_study(experiment, options) | describe_datasets(experiment, options)
