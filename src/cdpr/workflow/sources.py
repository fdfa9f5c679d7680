"""What decides the outputs of stages beside settings and inputs: values, files, and modules imported by name."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..agents.build import agent_class, agent_code, agent_entry
from ..environment.opening import judging_code
from ..llm.spec import module_of, modules_of
from ..settings import Settings, digest, judging_models, model_of, project_folder, served
from ..settings.algorithms import algorithm_module
from ..settings.datasets import DATASETS, FURTHER, IN_DOMAIN
from ..settings.judging import DECIDING, SECOND, TABLES
from ..settings.load import restrict
from ..settings.queries import named_model
from ..study.methods import all_synthetic, left_out

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
    """Those, and the digest of the paper's figures and claims, which no rule has as input."""
    facts = experiment.digests.digest(str(project_folder() / "workflow/paper"))
    return {**data_sets(experiment, options), "paper": facts}


def data_set(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """How the raw data are read; the weights of a model that reads notes."""
    entry, source = DATASETS[options["dataset"]], experiment.settings.data.source(options["dataset"])
    model = experiment.settings.data.mimic_iv.structurer.model if options["dataset"] == IN_DOMAIN else None
    structurer = {"structurer": experiment.digests.digest(model)} if model else {}
    return {"data_set": {"role": entry.role, "importer": entry.importer, "credentialed": source.credentialed},
            **structurer}  # fmt: skip


def judges(*which: str) -> Callable[["Experiment", Options], Mapping[str, Any]]:
    """Request settings of the models that judge and match, and digests of their weights where they work in the process
    of the job; empty where tables of names do it alone."""

    def of(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
        models = {where: m for where, m in judging_models(experiment.settings).items() if where in which}
        requests = {where: model.request_settings() for where, model in models.items()}
        weights = {f"{where} (weights)": experiment.digests.digest(m.folder) for where, m in models.items() if m.folder}
        return requests | weights

    return of


deciding_judges, _all_judges = judges(*DECIDING), judges(*DECIDING, *SECOND)


def acting_agent(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    """Judges and acting agent: request settings of their models, what this agent reads, number of open cases.

    A model of the registry is known by its entry, whatever its address; one that a row names itself, by its address."""
    settings, entry = experiment.settings, experiment.settings.agents.get(options["run"])
    second = {SECOND[0]: TABLES} if settings.judge.second == TABLES else {}
    cases = {"cases": settings.evaluation.open_cases.cases} if options["dataset"] in FURTHER else {}
    row = agent_entry(settings, options["run"])
    # A server draws other samples than this process.
    agent: dict[str, Any] = {"served": True} if row.own_policy and served(settings, row) else {}
    if entry is None:
        return {**_all_judges(experiment, options), **second, **cases, "agent": agent}
    own = agent_class(entry).reads if entry.model else ()
    read = {"own": restrict(settings, own).model_dump(mode="json")} if own else {}
    path = settings.frameworks.diag_agent.instruction if "frameworks.diag_agent" in own else None
    files = {"frameworks.diag_agent.instruction": experiment.digests.digest(path)} if path else {}
    model, loaded = model_of(settings, entry), experiment.acting_policy(options["run"])
    if loaded and not loaded.startswith("<results>"):
        agent["weights"] = experiment.digests.digest(loaded)
    agent |= {"acts": entry.acts, "model": None if entry.model in settings.models else entry.model,
              "request": model and model.request_settings()}  # fmt: skip
    return {**_all_judges(experiment, options), **second, **cases, **read, **files, "agent": agent}


def agents_code(experiment: "Experiment", options: Options) -> list[str]:
    acting = agent_code(experiment.settings, agent_entry(experiment.settings, options["run"]))
    return [*acting, *judging_code(experiment.settings, (*DECIDING, *SECOND))]


def credit_code(experiment: "Experiment", options: Options) -> list[str]:
    """A policy of this process, and the judges."""
    return [module_of(""), *judging_code(experiment.settings)]


def importers_code(experiment: "Experiment", options: Options) -> list[str]:
    model = experiment.settings.data.mimic_iv.structurer.model
    structurer = ["cdpr.ingest.structurer", "cdpr.llm.recording", module_of(model)] if model else []
    return [DATASETS[options["dataset"]].importer.partition(":")[0], *structurer]


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
    """Why methods are left out of the comparison, and whether all cases are synthetic."""
    return {"left_out": left_out(experiment.settings), **synthetic(experiment, options)}


def model_rater(experiment: "Experiment", options: Options) -> Mapping[str, Any]:
    name = experiment.settings.study.model_rater
    return {"model": named_model(experiment.settings, name).request_settings()} if name else {}


def model_rater_code(experiment: "Experiment", options: Options) -> list[str]:
    name = experiment.settings.study.model_rater
    return list(modules_of(named_model(experiment.settings, name))) if name else []
