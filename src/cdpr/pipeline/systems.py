"""Every row of the main table, what it needs to run, and what is missing here (``cdpr systems``)."""

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
from ..settings import ModelEntry, Settings, SettingsError, judging_models, model_of, served, value_at
from ..settings.datasets import BENCHMARKS
from ..settings.judging import ASKERS

if TYPE_CHECKING:
    from .experiment import Experiment

_WIDTH = 118  # characters of a line
Environment = Mapping[str, str]


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
    missing: tuple[str, ...]


def systems(experiment: "Experiment", environment: Environment = os.environ) -> list[System]:
    """All rows in the table's order, then the models that judge and match."""
    settings, rows_of_table = experiment.settings, []
    rows = {methods.agent_method(settings, name).name: name for name in settings.agents}
    for method in methods.main_methods(settings):
        titles, name = (method.label, method.group, method.paper), rows.get(method.name)
        model = model_of(settings, settings.agents[name]) if name else None
        lacks = missing(experiment, name, environment) if name else _policy(settings)
        rows_of_table.append(System(name or method.name, *titles, model, lacks))
    for asker, where in ASKERS.items():
        if judging := judging_models(settings).get(where):
            label = judging.label or judging.id or value_at(settings, where)
            lacks = _judge(settings, where, environment)
            rows_of_table.append(System(asker, label, "Judges and matcher", "", judging, lacks))
    return rows_of_table


def missing(experiment: "Experiment", run: str, environment: Environment = os.environ) -> tuple[str, ...]:
    """What an agent, or a trained run, lacks, each with how to supply it."""
    settings, agent = experiment.settings, agent_entry(experiment.settings, run)
    if all(unfit := [methods.why_unfit(settings, run, dataset) for dataset in BENCHMARKS]):
        return tuple(dict.fromkeys(unfit))
    if (model := model_of(settings, agent)) is None:
        return _policy(settings, served(settings, agent)) if agent.own_policy else ()
    if model.where is None and served(settings, agent):
        return _server(settings, f"models.{agent.model}.weights", model)
    return _lacks(settings, f"agents.{run}.model", str(agent.model), model, environment)


def refuse_what_lacks(experiment: "Experiment", runs: Iterable[str]) -> None:
    """Raise SettingsError with everything that these runs and their judges lack, before hours of other work."""
    lacks = {run: missing(experiment, run) for run in runs}
    judges = judging_models(experiment.settings) if lacks else ()
    lacks |= {where: _judge(experiment.settings, where, os.environ) for where in judges}
    lines = [f"  {run}: {text}" for run, texts in lacks.items() for text in texts]
    if lines:
        raise SettingsError("these cannot be run yet:\n" + "\n".join(lines))


def _policy(settings: Settings, served: bool = False) -> tuple[str, ...]:
    folder, wrong = settings.policy.model, tuple[str, ...]()
    if folder != "tiny" and not file_type(folder):
        get = "put a model's weights there (`hf download ID --local-dir FOLDER`), or name where they are"
        wrong = (f"policy.model: there is no folder {folder}; {get}",)
    elif folder != "tiny":  # a server may read what this process does not
        wrong = _unfit("policy.model", refuse_code if served else check_folder, folder)
    program = describe_missing_program(settings.serving) if served else ""
    return (*wrong, program) if program else wrong


def _unfit(key: str, check: Callable[[Path], None], folder: str) -> tuple[str, ...]:
    """What is wrong with a model's folder."""
    try:
        check(Path(folder))
    except SettingsError as error:
        return (f"{key}: {error}",)
    return ()


def _server(settings: Settings, key: str, model: ModelEntry) -> tuple[str, ...]:
    """What keeps a job from starting a server: the program, or a file that it reads."""
    loaded, serving = model.weights or model.id, settings.serving
    reads_file = serving.program == "llama_cpp" and not serving.command and not Path(loaded).is_file()
    file = f"{key}: {loaded!r} is no file; name the GGUF file that llama.cpp reads" if reads_file else ""
    lacks = tuple(text for text in (describe_missing_program(serving), file) if text)
    return () if settings.calls.mode == "replay" else lacks


def _judge(settings: Settings, where: str, environment: Environment) -> tuple[str, ...]:
    name, model = value_at(settings, where), judging_models(settings)[where]
    if model.folder is None and not model.id:
        return (f"{where}: an address does not say which model; give it an entry of `models`: {{id: ..., at: {name}}}",)
    return _lacks(settings, where, name, model, environment)


def _lacks(settings: Settings, key: str, name: str, model: ModelEntry, environment: Environment) -> tuple[str, ...]:
    """What the model ``name`` of the setting ``key`` needs before it can be called, and does not have."""
    key = f"models.{name}.at" if name in settings.models else key
    if model.where is None:
        here = f"let a job start its server here: serving: {{program: vllm, models: [{name}]}}"
        return (f"{key}: a server's address (http://HOST:PORT/v1) or a folder with its weights; or {here}",)
    if model.folder:
        if not (Path(model.folder) / "config.json").is_file():
            absent = f"{model.folder} is neither an entry of workflow/models.yaml nor a Hugging Face folder"
            return (f"{key}: {absent} (no config.json)",)
        return _unfit(key, check_folder, model.folder)
    if settings.calls.mode == "replay":  # recorded answers are enough
        return ()
    package = kind_of(model.where)
    lacks = [] if importlib.util.find_spec(package) else [f"the package `{package}`: pip install {package}"]
    if model.paid and not any(environment.get(key) for key in model.key_names):
        lacks.append(f"a key: export {' or '.join(model.key_names)}=...")
    if model.paid and not model.enabled:
        lacks.append(f"models.{name}.enabled: true, since every answer costs money")
    return (*lacks, *_address(settings, key, name, model, model.where))


def _address(settings: Settings, key: str, name: str, model: ModelEntry, where: str) -> list[str]:
    """What the address asks for: a price for the budget, and an agreement for the text of credentialed cases."""
    from ..llm.guard import GovernanceError, is_local
    from ..llm.spending import has_unknown_cost

    credentialed = [name for name in BENCHMARKS if settings.data.source(name).credentialed]
    agreed, lacks = (settings.governance.remote_agreement or "").strip(), []
    try:
        if settings.calls.budget_usd is not None and has_unknown_cost(model, where):
            own = f"an entry of `models` for {name}, with `prices`"
            lacks.append(f"{f'models.{name}.prices' if name in settings.models else own}: what its answers cost "
                         "({input: 0, output: 0} where they are free), since calls.budget_usd is set")  # fmt: skip
        if not (kind_of(where) == "openai" and is_local(where)) and credentialed and not agreed:
            lacks.append(f"governance.remote_agreement: the agreement under which the text of {', '.join(credentialed)}"
                         " may go to another machine")  # fmt: skip
    except GovernanceError as error:
        return [f"{key}: {error}"]
    return lacks


def render(rows: Sequence[System]) -> str:
    """The rows as text, group by group."""
    width = max(len(system.row) for system in rows)
    indent, lines = " " * (width + 13), list[str]()
    for group in dict.fromkeys(system.group for system in rows):
        lines += [group]
        for system in (s for s in rows if s.group == group):
            state = "not yet" if system.missing else "ready"
            lines.append(f"  {state:<7}  {system.row:<{width}}  {system.label}")
            for mark, text in [("", _about(system)), *(("- ", text) for text in system.missing)]:
                lines += textwrap.wrap(text, _WIDTH, initial_indent=indent + mark, break_on_hyphens=False,
                                       subsequent_indent=" " * len(indent + mark), break_long_words=False)  # fmt: skip
        lines.append("")
    ready = sum(not system.missing for system in rows)
    lines.append(f"{ready} of {len(rows)} rows can be run now. Prices are US dollars per million tokens.")
    if ready < len(rows):
        settings = "Settings such as models.NAME.KEY go into a YAML file of yours (models: {NAME: {KEY: ...}}),"
        lines += [
            f"What has a dash is missing. {settings}",
            "which every command takes as --configfile mine.yaml. Step by step: docs/how-to/run-baselines.md",
        ]
    return "\n".join(lines)


def _about(system: System) -> str:
    if (model := system.model) is None:
        return f"stands for the paper's {system.paper}" if system.paper and system.paper not in system.label else ""
    prices = model.prices
    price = f"{prices.input:g} in, {prices.output:g} out ({prices.date})" if prices else ""
    return "; ".join(part for part in (model.id, model.where or "", price, model.licence, model.needs) if part)
