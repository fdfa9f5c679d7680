"""Where inputs of stages come from, and what else decides outputs: longer entries of the table of stages."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..agents.build import agent_class, agent_code, agent_entry
from ..environment.opening import judging_code
from ..llm.spec import module_of
from ..settings import Settings, digest, judging_models, model_of, project_folder, served
from ..settings.algorithms import algorithm_module
from ..settings.datasets import DATASETS, FURTHER, IN_DOMAIN, benchmark_of
from ..settings.judging import DECIDING, SECOND, TABLES
from ..settings.load import restrict
from .experiment import Experiment, Options, Product, Source
from .stage import Need

# What a report prints about a data set.
_PRINTED = ("label", "role", "what", "licence", "conditions", "links", "open", "averaged", "short")

# Where inputs come from


IN_DOMAIN_CASES = Product("map_costs", "cases", {"dataset": IN_DOMAIN})


def raw_data(experiment: Experiment, options: Options) -> Source:
    """Folder or file with the raw data."""
    return experiment.raw_path(options["dataset"]) or Product("make_hospital", options["dataset"])


def fee_schedule(name: str, about: str) -> Need:
    def of(experiment: Experiment, options: Options) -> Source:
        return experiment.settings.data.fee_schedules.files.get(name)

    of.__doc__ = about
    return of


def catalogue(experiment: Experiment, options: Options) -> Source:
    """Folder of `build_catalogue` (default: the shipped catalogue)."""
    return Product("build_catalogue", "catalogue") if experiment.settings.data.fee_schedules.files else None


def price_overrides(experiment: Experiment, options: Options) -> Source:
    """Your own prices (CSV)."""
    return experiment.settings.data.price_overrides or None


def benchmark_cases(experiment: Experiment, options: Options) -> Source:
    """Priced cases of a benchmark, or of its leak-controlled variant."""
    benchmark = benchmark_of(options["dataset"])
    if benchmark == options["dataset"]:
        return Product("map_costs", "cases", {"dataset": benchmark})
    return Product("remove_leaks", "controlled", {"dataset": benchmark})


def policy_folder(experiment: Experiment, options: Options) -> Source:
    """Model to teach, a Hugging Face folder (none for the tiny policy)."""
    model = experiment.settings.policy.model
    return None if model == "tiny" else model


def init_policy(experiment: Experiment, options: Options) -> Source:
    """Policy that training starts from."""
    policy = experiment.settings.policy
    return Product("warm_start_policy", "policy") if policy.warm_started else policy.model


def acting_policy(experiment: Experiment, options: Options) -> Source:
    """Policy folder (none for reference policies and servers)."""
    settings, run = experiment.settings, options["run"]
    entry = settings.agents.get(run)
    if entry is None:
        return Product("train_policy", "policy", {"run": run})
    if entry.own_policy:
        return init_policy(experiment, options)
    if (model := model_of(settings, entry)) is None:
        return None
    loaded = model.weights or model.id  # by a server that the job starts
    return loaded if served(settings, entry) and Path(loaded).exists() else model.folder


def before_training(run: str, dataset: str) -> Need:
    """The evaluation of an agent that training does not wait for; none where it cannot act."""
    evaluation = Product("evaluate_agent", "evaluation", {"run": run, "dataset": dataset})
    return lambda experiment, options: evaluation if experiment.evaluations([run], [dataset]) else None


def hospital_cases(dataset: str) -> Need:
    """Priced cases that the synthetic hospital wrote; none of the user's own."""
    cases = Product("map_costs", "cases", {"dataset": dataset})
    return lambda experiment, options: cases if experiment.raw_path(dataset) is None else None


# What else decides outputs


def data_sets(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Digests of what reports print about the data sets."""
    return {"data_sets": {name: digest({part: getattr(entry, part) for part in _PRINTED})
                          for name, entry in DATASETS.items()}}  # fmt: skip


def data_sets_and_paper(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Those, and the digest of the paper's figures and claims, which no rule has as input."""
    facts = experiment.digests.digest(str(project_folder() / "workflow/paper"))
    return {**data_sets(experiment, options), "paper": facts}


def data_set(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """How the raw data are read; the weights of a model that reads notes."""
    entry, source = DATASETS[options["dataset"]], experiment.settings.data.source(options["dataset"])
    model = experiment.settings.data.mimic_iv.structurer.model if options["dataset"] == IN_DOMAIN else None
    structurer = {"structurer": experiment.digests.digest(model)} if model else {}
    return {"data_set": {"role": entry.role, "importer": entry.importer, "credentialed": source.credentialed},
            **structurer}  # fmt: skip


def judges(*which: str) -> Callable[[Experiment, Options], Mapping[str, Any]]:
    """Request settings of the models that judge and match, and digests of their weights where they work in the process
    of the job; empty where tables of names do it alone."""

    def of(experiment: Experiment, options: Options) -> Mapping[str, Any]:
        models = {where: m for where, m in judging_models(experiment.settings).items() if where in which}
        requests = {where: model.request_settings() for where, model in models.items()}
        weights = {f"{where} (weights)": experiment.digests.digest(m.folder) for where, m in models.items() if m.folder}
        return requests | weights

    return of


deciding_judges, _all_judges = judges(*DECIDING), judges(*DECIDING, *SECOND)


def acting_agent(experiment: Experiment, options: Options) -> Mapping[str, Any]:
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
    model = model_of(settings, entry)
    agent |= {"acts": entry.acts, "model": None if entry.model in settings.models else entry.model,
              "request": model and model.request_settings()}  # fmt: skip
    return {**_all_judges(experiment, options), **second, **cases, **read, **files, "agent": agent}


def agents_code(experiment: Experiment, options: Options) -> list[str]:
    acting = agent_code(experiment.settings, agent_entry(experiment.settings, options["run"]))
    return [*acting, *judging_code(experiment.settings, (*DECIDING, *SECOND))]


def credit_code(experiment: Experiment, options: Options) -> list[str]:
    """A policy of this process, and the judges."""
    return [module_of(""), *judging_code(experiment.settings)]


def importers_code(experiment: Experiment, options: Options) -> list[str]:
    model = experiment.settings.data.mimic_iv.structurer.model
    structurer = ["cdpr.ingest.structurer", "cdpr.llm.recording", module_of(model)] if model else []
    return [DATASETS[options["dataset"]].importer.partition(":")[0], *structurer]


def writers(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    return {"writers": {name: [entry.writer, entry.size] for name, entry in DATASETS.items() if entry.writer}}


def writers_code(experiment: Experiment, options: Options) -> list[str]:
    return [entry.writer.partition(":")[0] for entry in DATASETS.values() if entry.writer]


def training_code(experiment: Experiment, options: Options) -> list[str]:
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
