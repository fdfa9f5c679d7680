"""What each row of the main table needs to run, and what is missing here (``cdpr systems``)."""

import importlib.util
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..agents.build import agent_entry
from ..files import file_type
from ..llm.model_folder import check_folder, refuse_code
from ..llm.own_server import describe_missing_program
from ..llm.spec import kind_of
from ..report import methods
from ..settings import ModelEntry, Settings, SettingsError, is_served, judging_models, model_of, value_at
from ..settings.datasets import BENCHMARKS
from ..settings.judging import ASKERS

if TYPE_CHECKING:
    from .experiment import Experiment

_WIDTH = 118  # characters of a line
Environment = Mapping[str, str]
Lacks = tuple[str, ...]  # what is missing, each with how to supply it


@dataclass(frozen=True)
class System:
    """A row of the main table: its name in ``agents.yaml`` (or as a variant), its ``label`` in tables, its row in the
    ``paper``, and its ``model`` if that is not the policy. ``missing`` lists what has to be supplied before it can run.
    """

    row: str
    label: str
    group: str
    paper: str
    model: ModelEntry | None
    missing: Lacks


def systems(experiment: "Experiment", environment: Environment = os.environ) -> list[System]:
    """List all rows in the table's order, then the models that judge and match. ``environment`` are the environment
    variables, which may hold keys."""
    settings, listed = experiment.settings, []
    agents = {methods.agent_method(settings, name).name: name for name in settings.agents}
    for method in methods.main_methods(settings):
        name = agents.get(method.name)
        model = model_of(settings, settings.agents[name]) if name else None
        lacks = missing(experiment, name, environment) if name else _policy_lacks(settings)
        listed.append(System(name or method.name, method.label, method.group, method.paper, model, lacks))
    for asker, key in ASKERS.items():
        if judge := judging_models(settings).get(key):
            label = judge.label or judge.id or value_at(settings, key)
            lacks = _judge_lacks(settings, key, environment)
            listed.append(System(asker, label, "Judges and matcher", "", judge, lacks))
    return listed


def missing(experiment: "Experiment", run: str, environment: Environment = os.environ) -> Lacks:
    """List what an agent, or a trained run, lacks, each with how to supply it; empty where it can run."""
    settings, agent = experiment.settings, agent_entry(experiment.settings, run)
    reasons = [methods.why_unfit(settings, run, dataset) for dataset in BENCHMARKS]
    if all(reasons):
        return tuple(dict.fromkeys(reasons))
    model = model_of(settings, agent)
    if model is None:
        return _policy_lacks(settings, is_served(settings, agent)) if agent.own_policy else ()
    if model.where is None and is_served(settings, agent):
        return _server_lacks(settings, f"models.{agent.model}.weights", model)
    return _model_lacks(settings, f"agents.{run}.model", str(agent.model), model, environment)


def refuse_what_lacks(experiment: "Experiment", runs: Iterable[str]) -> None:
    """Raise SettingsError with everything that these runs and their judges lack, before hours of other work."""
    settings = experiment.settings
    lacks = {run: missing(experiment, run) for run in runs}
    lacks |= {key: _judge_lacks(settings, key, os.environ) for key in judging_models(settings) if lacks}
    lines = [f"  {name}: {text}" for name, texts in lacks.items() for text in texts]
    if lines:
        raise SettingsError("these cannot be run yet:\n" + "\n".join(lines))


def _policy_lacks(settings: Settings, served: bool = False) -> Lacks:
    """What is missing before the policy can act, on a server of its job if it is ``served``."""
    folder, lacks = settings.policy.model, list[str]()
    if folder != "tiny" and not file_type(folder):
        remedy = "put a model's weights there (`hf download ID --local-dir FOLDER`), or name where they are"
        lacks.append(f"policy.model: there is no folder {folder}; {remedy}")
    elif folder != "tiny":  # a server may read what this process does not
        lacks += _folder_faults("policy.model", refuse_code if served else check_folder, folder)
    if served and (program := describe_missing_program(settings.serving)):
        lacks.append(program)
    return tuple(lacks)


def _folder_faults(key: str, check: Callable[[Path], None], folder: str) -> Lacks:
    """What ``check`` finds wrong with a model's folder, which the setting ``key`` names."""
    try:
        check(Path(folder))
    except SettingsError as error:
        return (f"{key}: {error}",)
    return ()


def _server_lacks(settings: Settings, key: str, model: ModelEntry) -> Lacks:
    """What is missing before a job can start a server: the program, or the file of the setting ``key``."""
    if settings.calls.mode == "replay":  # recorded answers are enough
        return ()
    serving, weights = settings.serving, model.weights or model.id
    program = describe_missing_program(serving)
    lacks = [program] if program else []
    if serving.program == "llama_cpp" and not serving.command and not Path(weights).is_file():
        lacks.append(f"{key}: {weights!r} is no file; name the GGUF file that llama.cpp reads")
    return tuple(lacks)


def _judge_lacks(settings: Settings, key: str, environment: Environment) -> Lacks:
    """What is missing before the judge or matcher of the setting ``key`` can answer."""
    name, model = value_at(settings, key), judging_models(settings)[key]
    if model.folder is None and not model.id:
        return (f"{key}: an address does not say which model; give it an entry of `models`: {{id: ..., at: {name}}}",)
    return _model_lacks(settings, key, name, model, environment)


def _model_lacks(settings: Settings, key: str, name: str, model: ModelEntry, environment: Environment) -> Lacks:
    """What is missing before the model ``name``, which the setting ``key`` names, can be called."""
    key = f"models.{name}.at" if name in settings.models else key
    if model.where is None:
        serving = f"let a job start its server here: serving: {{program: vllm, models: [{name}]}}"
        return (f"{key}: a server's address (http://HOST:PORT/v1) or a folder with its weights; or {serving}",)
    if model.folder:
        if not (Path(model.folder) / "config.json").is_file():
            fault = f"{model.folder} is neither an entry of workflow/models.yaml nor a Hugging Face folder"
            return (f"{key}: {fault} (no config.json)",)
        return _folder_faults(key, check_folder, model.folder)
    if settings.calls.mode == "replay":  # recorded answers are enough
        return ()
    package = kind_of(model.where)
    lacks = [] if importlib.util.find_spec(package) else [f"the package `{package}`: pip install {package}"]
    if model.paid and not any(environment.get(variable) for variable in model.key_names):
        lacks.append(f"a key: export {' or '.join(model.key_names)}=...")
    if model.paid and not model.enabled:
        lacks.append(f"models.{name}.enabled: true, since every answer costs money")
    return (*lacks, *_address_lacks(settings, key, name, model.where, model))


def _address_lacks(settings: Settings, key: str, name: str, address: str, model: ModelEntry) -> list[str]:
    """What is missing before a model at an address may be called: its price where there is a budget, and an agreement
    for the text of credentialed cases."""
    from ..llm.guard import GovernanceError, is_local
    from ..llm.spending import has_unknown_cost

    credentialed = [dataset for dataset in BENCHMARKS if settings.data.source(dataset).credentialed]
    agreed, lacks = (settings.governance.remote_agreement or "").strip(), []
    try:
        if settings.calls.budget_usd is not None and has_unknown_cost(model, address):
            prices = f"models.{name}.prices" if name in settings.models else None
            lacks.append(f"{prices or f'an entry of `models` for {name}, with `prices`'}: what its answers cost "
                         "({input: 0, output: 0} where they are free), since calls.budget_usd is set")  # fmt: skip
        is_here = kind_of(address) == "openai" and is_local(address)
        if credentialed and not is_here and not agreed:
            lacks.append(f"governance.remote_agreement: the agreement under which the text of {', '.join(credentialed)}"
                         " may go to another machine")  # fmt: skip
    except GovernanceError as error:
        return [f"{key}: {error}"]
    return lacks


def render(rows: Sequence[System]) -> str:
    """Write the rows as text, group by group, each with its model and what is missing."""
    width = max(len(system.row) for system in rows)
    indent = " " * (width + 13)
    wrap = textwrap.TextWrapper(_WIDTH, break_on_hyphens=False, break_long_words=False)
    lines: list[str] = []
    for group in dict.fromkeys(system.group for system in rows):
        lines.append(group)
        for system in rows:
            if system.group == group:
                state = "not yet" if system.missing else "ready"
                lines.append(f"  {state:<7}  {system.row:<{width}}  {system.label}")
                for bullet, text in [("", _describe(system)), *(("- ", text) for text in system.missing)]:
                    wrap.initial_indent, wrap.subsequent_indent = indent + bullet, indent + " " * len(bullet)
                    lines += wrap.wrap(text)
        lines.append("")
    ready = sum(not system.missing for system in rows)
    lines.append(f"{ready} of {len(rows)} rows can be run now. Prices are US dollars per million tokens.")
    if ready < len(rows):
        advice = ("What has a dash is missing. Settings such as models.NAME.KEY go into a YAML file of yours (models: "
                  "{NAME: {KEY: ...}}), which every command takes as --configfile mine.yaml. Step by step: "
                  "docs/how-to/run-baselines.md")  # fmt: skip
        lines += textwrap.wrap(advice, _WIDTH)
    return "\n".join(lines)


def _describe(system: System) -> str:
    """The model of a row with address, prices, licence and hardware; of another row the paper's row."""
    model = system.model
    if model is None:
        return f"stands for the paper's {system.paper}" if system.paper and system.paper not in system.label else ""
    prices = model.prices
    price = f"{prices.input:g} in, {prices.output:g} out ({prices.date})" if prices else ""
    return "; ".join(filter(None, (model.id, model.where, price, model.licence, model.needs)))
