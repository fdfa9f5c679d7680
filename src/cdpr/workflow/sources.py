"""Where the inputs of stages come from, and what else decides their outputs: the columns of the table of stages that
need more than a word."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..agents.build import agent_class, agent_code, agent_entry
from ..environment.opening import judging_code
from ..llm.spec import module_of
from ..settings import Settings, digest, judging_models, model_of, served
from ..settings.algorithms import algorithm_module
from ..settings.datasets import DATASETS, FURTHER, IN_DOMAIN, benchmark_of
from ..settings.judging import DECIDING, SECOND, TABLES
from ..settings.restrict import restrict
from .experiment import Experiment, Options, Product, Source
from .stage import Need

# Where inputs come from


def output_of(stage: str, output: str, **options: str) -> Need:
    """An output of one certain job."""
    return lambda experiment, own: Product(stage, output, options)


def raw_data(experiment: Experiment, options: Options) -> Source:
    return experiment.raw_path(options["dataset"]) or Product("make_hospital", options["dataset"])


def fee_schedule(name: str) -> Need:
    return lambda experiment, options: experiment.fee_schedules.get(name)


def catalogue(experiment: Experiment, options: Options) -> Source:
    return Product("build_catalogue", "catalogue") if experiment.fee_schedules else None


def price_overrides(experiment: Experiment, options: Options) -> Source:
    return experiment.price_overrides or None


def benchmark_cases(experiment: Experiment, options: Options) -> Source:
    """Priced cases of a benchmark, or of its leak-controlled variant."""
    benchmark = benchmark_of(options["dataset"])
    if benchmark == options["dataset"]:
        return Product("map_costs", "cases", {"dataset": benchmark})
    return Product("remove_leaks", "controlled", {"dataset": benchmark})


def init_policy(experiment: Experiment, options: Options) -> Source:
    return experiment.init_policy


def policy_folder(experiment: Experiment, options: Options) -> Source:
    return experiment.policy_folder


def acting_policy(experiment: Experiment, options: Options) -> Source:
    return experiment.policy_of(options["run"])


def before_training(run: str, dataset: str) -> Need:
    """The evaluation of an agent that training does not wait for; none where it cannot act."""
    evaluation = Product("evaluate_agent", "evaluation", {"run": run, "dataset": dataset})
    return lambda experiment, options: evaluation if experiment.evaluations([run], [dataset]) else None


def hospital_cases(dataset: str) -> Need:
    """Priced cases that the synthetic hospital wrote; none of the user's own."""
    cases = Product("map_costs", "cases", {"dataset": dataset})
    return lambda experiment, options: cases if experiment.raw_path(dataset) is None else None


IN_DOMAIN_CASES = output_of("map_costs", "cases", dataset=IN_DOMAIN)


# What else decides outputs


def data_sets(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Digests of what reports print about the data sets."""
    printed = ("label", "role", "what", "licence", "conditions", "links", "open", "averaged", "short")
    return {"data_sets": {name: digest({n: getattr(entry, n) for n in printed}) for name, entry in DATASETS.items()}}


def data_set(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    entry, source = DATASETS[options["dataset"]], experiment.settings.data.source(options["dataset"])
    return {"data_set": {"role": entry.role, "importer": entry.importer, "credentialed": source.credentialed}}


def deciding_judges(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Request settings of the models that judge and match; empty where tables of names do it alone."""
    return _judges(experiment.settings, DECIDING)


def all_judges(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Those, and the second judge."""
    second = experiment.settings.judge.second
    return _judges(experiment.settings, (*DECIDING, *SECOND)) | ({SECOND[0]: second} if second == TABLES else {})


def _judges(settings: Settings, which: Collection[str]) -> dict[str, Any]:
    return {where: model.request_settings() for where, model in judging_models(settings).items() if where in which}


def deciding_weights(experiment: Experiment, options: Options) -> Mapping[str, str]:
    """Digests of the weights of models that judge and match in the process of the job."""
    return _weights(experiment, DECIDING)


def _weights(experiment: Experiment, which: Collection[str]) -> dict[str, str]:
    folders = {where: model.folder for where, model in judging_models(experiment.settings).items() if where in which}
    return {where: experiment.digests.digest(folder) for where, folder in folders.items() if folder}


def acting_agent(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Judges and acting agent, with the request settings of their models; see :func:`_actor`."""
    return {**all_judges(experiment, options), **_actor(experiment, options)}


def _actor(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """The acting agent, the settings that only it reads, the number of open cases, and its model's request settings.

    A model of the registry is known by its entry, whatever its address; a model that a row names itself is known by its
    address alone."""
    entry = experiment.settings.agents.get(options["run"])
    own = _own_settings(experiment, options)
    settings = {"own": restrict(experiment.settings, own).model_dump(mode="json")} if own else {}
    cases = {"cases": experiment.settings.evaluation.open_cases.cases} if options["dataset"] in FURTHER else {}
    behind = {"served": True} if own_policy_served(experiment, options) else {}  # other draws than this process's
    if entry is None:
        return {"agent": behind, **settings, **cases}
    model, registered = model_of(experiment.settings, entry), entry.model in experiment.settings.models
    model_key = None if registered else entry.model
    request = {"acts": entry.acts, "model": model_key, "request": model and model.request_settings()}
    return {"agent": {**request, **behind}, **settings, **cases}


def acting_files(experiment: Experiment, options: Options) -> Mapping[str, str]:
    """Digests of the files that the agent's own settings name, and of the judges' weights."""
    paths = experiment.settings.frameworks.paths.items()
    own = tuple(f"{name}." for name in _own_settings(experiment, options))
    files = {key: experiment.digests.digest(path) for key, path in paths if key.startswith(own)} if own else {}
    return files | _weights(experiment, (*DECIDING, *SECOND))


def _own_settings(experiment: Experiment, options: Options) -> tuple[str, ...]:
    entry = experiment.settings.agents.get(options["run"])
    return agent_class(entry).reads if entry and entry.model else ()


def own_policy_served(experiment: Experiment, options: Options) -> bool:
    """Whether a policy acts, and behind a server that the job starts."""
    entry = agent_entry(experiment.settings, options["run"])
    return entry.own_policy and served(experiment.settings, entry)


def agents_code(experiment: Experiment, settings: Settings, options: Options) -> list[str]:
    acting = agent_code(experiment.settings, agent_entry(experiment.settings, options["run"]))
    return [*acting, *judging_code(experiment.settings, (*DECIDING, *SECOND))]


def importers_code(experiment: Experiment, settings: Settings, options: Options) -> list[str]:
    model = settings.data.mimic_iv.structurer.model
    structurer = ["cdpr.ingest.structurer", "cdpr.llm.recording", module_of(model)] if model else []
    return [DATASETS[options["dataset"]].importer.partition(":")[0], *structurer]


def writers(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    return {"writers": {name: [entry.writer, entry.size] for name, entry in DATASETS.items() if entry.writer}}


def writers_code(experiment: Experiment, settings: Settings, options: Options) -> list[str]:
    return [entry.writer.partition(":")[0] for entry in DATASETS.values() if entry.writer]


def training_code(experiment: Experiment, settings: Settings, options: Options) -> list[str]:
    """The algorithm, the judges, and what verl loads by name."""
    modules = ["cdpr.training.algorithm", algorithm_module(settings.training.algorithm), "cdpr.llm.sampler"]
    modules += judging_code(settings)
    if settings.training.engine == "verl":
        modules += [module_of("verl:"), module_of(settings.training.verl.frozen.url or "http:")]
        modules += [f"cdpr.training.verl.{name}" for name in ("agent_loop", "session", "trainer")]
    return sorted(set(modules))


def structurer(experiment: Experiment, options: Options) -> Mapping[str, str]:
    model = experiment.settings.data.mimic_iv.structurer.model
    return {"structurer": experiment.digests.digest(model)} if model and options["dataset"] == IN_DOMAIN else {}


def engine(settings: Settings) -> str:
    engine = "verl.launch" if settings.training.engine == "verl" else "torch.trainer"
    return f"cdpr.training.{engine}:train_policy"
