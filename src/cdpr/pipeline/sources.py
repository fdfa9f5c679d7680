"""What decides the outputs of stages beside settings and inputs: values, files, and modules imported by name."""

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..agents.build import agent_code, agent_entry, own_reads
from ..llm.spec import module_of, modules_of
from ..settings import Settings, digest, judging_models, model_of, project_folder, served
from ..settings.algorithms import algorithm_module
from ..settings.datasets import DATASETS, FURTHER, IN_DOMAIN
from ..settings.judging import DECIDING, SECOND, TABLES
from ..study.methods import all_synthetic, left_out
from .own_code import named_files

if TYPE_CHECKING:
    from .experiment import Experiment

Options = Mapping[str, str]

# What a report prints about a data set.
_PRINTED = ("label", "role", "what", "licence", "conditions", "links", "open", "averaged", "short")


def data_sets(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Digests of what reports print about the data sets."""
    return {"data_sets": {name: digest({part: getattr(entry, part) for part in _PRINTED})
                          for name, entry in DATASETS.items()}}  # fmt: skip


def data_sets_and_paper(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Add to :func:`data_sets` the digest of the paper's figures and claims, which no rule has as input."""
    facts = experiment.digests.digest(str(project_folder() / "workflow/paper"))
    return {**data_sets(experiment, options), "paper": facts}


def data_sets_and_page(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Add to :func:`data_sets` the digest of what the results page shows."""
    return {**data_sets(experiment, options), "page": digest([asdict(part) for part in experiment.page().values()])}


def data_set(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """How the raw data are read."""
    entry, source = DATASETS[options["dataset"]], experiment.settings.data.source(options["dataset"])
    return {"data_set": {"role": entry.role, "importer": entry.importer, "credentialed": source.credentialed}}


def _judges(experiment: "Experiment", which: Collection[str]) -> Mapping[str, Any]:
    """Request settings of the models that judge and match, and digests of their weights where they work in the process
    of the job; empty where tables of names do it alone."""
    models = {where: model for where, model in judging_models(experiment.settings).items() if where in which}
    requests = {where: model.request_settings() for where, model in models.items()}
    weights = {f"{where} (weights)": experiment.digests.digest(m.folder) for where, m in models.items() if m.folder}
    return requests | weights


def deciding_judges(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """The models that decide whether a diagnosis is right, and which examination is requested."""
    return _judges(experiment, DECIDING)


def acting_agent(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Describe the judges and the acting agent of an evaluation, as a part of its run key: request settings of their
    models, the server that a job starts, files that the agent reads, and the number of open cases.

    A model of models.yaml is known by its entry, whatever its address; one that the agent's entry names itself, by its
    address."""
    settings, run = experiment.settings, options["run"]
    values: dict[str, Any] = dict(_judges(experiment, (*DECIDING, *SECOND)))
    if settings.judge.second == TABLES:
        values[SECOND[0]] = TABLES
    if options["dataset"] in FURTHER:
        values["cases"] = settings.evaluation.open_cases.cases
    entry = agent_entry(settings, run)
    model = model_of(settings, entry)
    agent: dict[str, Any] = {}
    if served(settings, entry):  # a server draws other samples than this process, and each server others
        serving = settings.serving
        agent["served"] = {"program": serving.program, "command": serving.command,
                           "weights": model and model.weights, "serve": model and model.serve}  # fmt: skip
    if run in settings.agents:  # the policy of a trained run is an input of the job
        values["files"] = experiment.file_digests(agent_reads(settings, options))
        loaded = experiment.acting_policy(run)
        if loaded and not loaded.startswith("<results>"):
            agent["weights"] = experiment.digests.digest(loaded)
        agent |= {"acts": entry.acts, "model": None if entry.model in settings.models else entry.model,
                  "request": model and model.request_settings()}  # fmt: skip
    return {**values, "agent": agent}


def agent_reads(settings: Settings, options: Options) -> tuple[str, ...]:
    return own_reads(settings, options["run"])


def rule_and_judges(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Digests of the data files that options of the algorithm name, and the judges."""
    settings, _ = experiment.settings_of("train_policy", options)
    files = {path: experiment.digests.digest(path) for path in named_files(settings.training.options)}
    return {**deciding_judges(experiment, options), "files": files}


def judging_code(settings: Settings, which: Collection[str] = DECIDING) -> list[str]:
    """Modules that a job runs for its judging and matching models."""
    entries = [entry for where, entry in judging_models(settings).items() if where in which]
    return [module for entry in entries for module in ("cdpr.environment.model_judging", *modules_of(entry))]


def agents_code(experiment: "Experiment", options: Options) -> list[str]:
    acting = agent_code(experiment.settings, agent_entry(experiment.settings, options["run"]))
    return [*acting, *judging_code(experiment.settings, (*DECIDING, *SECOND))]


def credit_code(experiment: "Experiment", options: Options) -> list[str]:
    """A policy of this process, and the judges."""
    return [module_of(""), *judging_code(experiment.settings)]


def inspector_code(experiment: "Experiment", options: Options) -> list[str]:
    """The judges, and the prompts of the policy."""
    return [*judging_code(experiment.settings), "cdpr.agents.policy"]


def importers_code(experiment: "Experiment", options: Options) -> list[str]:
    return [DATASETS[options["dataset"]].importer.partition(":")[0]]


def writers(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    return {"writers": {name: [entry.writer, entry.size] for name, entry in DATASETS.items() if entry.writer}}


def writers_code(experiment: "Experiment", options: Options) -> list[str]:
    return [entry.writer.partition(":")[0] for entry in DATASETS.values() if entry.writer]


def training_code(experiment: "Experiment", options: Options) -> list[str]:
    """The algorithm, the judges, and what verl loads by name."""
    settings, _ = experiment.settings_of("train_policy", options)
    modules = ["cdpr.training.algorithm", algorithm_module(settings.training.algorithm), "cdpr.llm.sampler"]
    modules += judging_code(settings)
    if settings.training.engine == "verl":
        modules += [module_of("verl:"), module_of(settings.training.verl.frozen.url or "http:")]
        modules += [f"cdpr.training.verl.{name}" for name in ("agent_loop", "session", "trainer")]
    return sorted(set(modules))


def engine(settings: Settings) -> str:
    engine = "verl.launch" if settings.training.engine == "verl" else "torch.trainer"
    return f"cdpr.training.{engine}:train_policy"


# The expert study


def acting_in_study(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """The acting agent, as in an evaluation."""
    return acting_agent(experiment, {**options, "dataset": IN_DOMAIN})


def synthetic(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Whether all cases are synthetic, which the forms and the analysis say."""
    return {"synthetic": all_synthetic(experiment.settings)}


def compared(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Why methods are left out of the comparison, whether all cases are synthetic, and names of the data sets."""
    reasons = {"left_out": left_out(experiment.settings)}
    return {**reasons, **synthetic(experiment, options), **data_sets(experiment, options)}
