"""What each row of the main table needs to run, and what is missing here (``cdpr systems``)."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .. import pipeline
from ..agents.build import agent_entry
from ..escape import environment
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


class System(NamedTuple):
    """A row of the main table, or a judge.

    - ``row``: the agent in ``agents.yaml``, the trained variant, or the name of the judge.
    - ``label``: its name in tables; ``group``: the heading under which it is listed.
    - ``paper``: the name of the paper's row for it; empty where there is none.
    - ``model``: the model that it calls; None for our own policy and for agents without a model.
    - ``missing``: what has to be supplied before it can run.
    """

    row: str
    label: str
    group: str
    paper: str
    model: ModelEntry | None
    missing: list[str]


def systems(experiment: "Experiment") -> list[System]:
    """Return for each row of the main table, in its order, the model that it needs and what is missing to run it; then
    the same for the models that judge and match, if there are any."""
    settings, rows = experiment.settings, []
    # Methods are rows of the table. The agent of each by the method's name, which for an agent that is not run is that
    # of the paper's row. A trained variant is a method without an agent.
    agent_of_method = {methods.agent_method(settings, name).name: name for name in settings.agents}
    for method in methods.main_methods(settings):
        name = agent_of_method.get(method.name)
        model = model_of(settings, settings.agents[name]) if name else None
        missing = list_missing(experiment, name) if name else list(_missing_for_policy(settings))
        rows.append(System(name or method.name, method.label, method.group, method.paper, model, missing))
    for asker, key in ASKERS.items():  # such as "judge", whose model the setting "judge.model" names
        if judge := judging_models(settings).get(key):
            label = judge.label or judge.id or value_at(settings, key)
            rows.append(System(asker, label, "Judges and matcher", "", judge, list(_missing_for_judge(settings, key))))
    return rows


def list_missing(experiment: "Experiment", run: str) -> list[str]:
    """List what is missing before an agent or a trained run can act, each with how to supply it; empty where it can
    act. An API key is missing where no environment variable of its provider is set."""
    settings, agent = experiment.settings, agent_entry(experiment.settings, run)
    reasons = [methods.why_unfit(settings, run, dataset) for dataset in BENCHMARKS]
    if all(reasons):  # it can diagnose the cases of no benchmark
        return list(dict.fromkeys(reasons))
    model = model_of(settings, agent)
    if model is None:
        return list(_missing_for_policy(settings, is_served(settings, agent))) if agent.own_policy else []
    if model.where is None and is_served(settings, agent):
        return list(_missing_for_server(settings, f"models.{agent.model}.weights", model))
    return list(_missing_for_model(settings, f"agents.{run}.model", str(agent.model), model))


def refuse_unready(experiment: "Experiment", runs: Iterable[str]) -> None:
    """Raise SettingsError where one of these agents or trained runs, or a model that judges them, cannot act yet.
    Called at the start, so that this does not come after hours of other work. The message lists everything that is
    missing."""
    settings = experiment.settings
    missing = {run: list_missing(experiment, run) for run in runs}
    if missing:  # without runs there is nothing to judge
        missing |= {key: list(_missing_for_judge(settings, key)) for key in judging_models(settings)}
    lines = [f"  {name}: {text}" for name, texts in missing.items() for text in texts]
    if lines:
        raise SettingsError("these cannot be run yet:\n" + "\n".join(lines))


# Each of these functions yields what is missing, with how to supply it.


def _missing_for_policy(settings: Settings, served: bool = False) -> Iterator[str]:
    """What is missing before the policy can act, on a server of its job if it is ``served``."""
    folder = settings.policy.model
    if folder != "tiny" and not file_type(folder):
        remedy = "put a model's weights there (`hf download ID --local-dir FOLDER`), or name where they are"
        yield f"policy.model: there is no folder {folder}; {remedy}"
    elif folder != "tiny":  # a server may read formats that this process cannot
        yield from _folder_faults("policy.model", refuse_code if served else check_folder, folder)
    if served and (program := describe_missing_program(settings.serving)):
        yield program


def _folder_faults(key: str, check: Callable[[Path], None], folder: str) -> Iterator[str]:
    """Yield what ``check`` finds wrong with a model's folder, which the setting ``key`` names."""
    try:
        check(Path(folder))
    except SettingsError as error:
        yield f"{key}: {error}"


def _missing_for_server(settings: Settings, key: str, model: ModelEntry) -> Iterator[str]:
    """What is missing before a job can start a server of ``model``: the program, or the file that llama.cpp reads,
    which the setting ``key`` names. Nothing in a replay of recorded answers, which starts no server."""
    serving, weights = settings.serving, model.weights or model.id
    if settings.calls.mode != "replay" and (program := describe_missing_program(serving)):
        yield program
    reads_a_file = serving.program == "llama_cpp" and not serving.command
    if settings.calls.mode != "replay" and reads_a_file and not Path(weights).is_file():
        yield f"{key}: {weights!r} is no file; name the GGUF file that llama.cpp reads"


def _missing_for_judge(settings: Settings, key: str) -> Iterator[str]:
    """What is missing before the judge or matcher whose model the setting ``key`` names can answer."""
    name, model = value_at(settings, key), judging_models(settings)[key]
    if model.folder is None and not model.id:
        yield f"{key}: an address does not say which model; give it an entry of `models`: {{id: ..., at: {name}}}"
    else:
        yield from _missing_for_model(settings, key, name, model)


def _missing_for_model(settings: Settings, key: str, name: str, model: ModelEntry) -> Iterator[str]:
    """What is missing before ``model`` can be called. ``key`` is the setting that names it, ``name`` the value of this
    setting: an entry of models.yaml, a folder or an address. A replay of recorded answers needs no server, so nothing
    of one is missing then."""
    key = f"models.{name}.at" if name in settings.models else key
    if model.where is None:
        serving = f"let a job start its server here: serving: {{program: vllm, models: [{name}]}}"
        yield f"{key}: a server's address (http://HOST:PORT/v1) or a folder with its weights; or {serving}"
    elif model.folder and not (Path(model.folder) / "config.json").is_file():
        fault = f"{model.folder} is neither an entry of workflow/models.yaml nor a Hugging Face folder"
        yield f"{key}: {fault} (no config.json)"
    elif model.folder:
        yield from _folder_faults(key, check_folder, model.folder)
    elif settings.calls.mode != "replay":
        if model.paid and not any(map(os.environ.get, model.key_names)):
            yield f"a key: export {' or '.join(model.key_names)}=..."
        if model.paid and not model.enabled:
            yield f"models.{name}.enabled: true, since every answer costs money"
        yield from _missing_for_address(settings, key, name, model.where, model)


def _missing_for_address(settings: Settings, key: str, name: str, address: str, model: ModelEntry) -> Iterator[str]:
    """What is missing before ``model`` can be called at ``address``: its price where there is a budget, and an
    agreement for the text of credentialed cases. ``key`` is the setting with the address and ``name`` the model's entry
    in models.yaml or the address, both for messages."""
    from ..llm.guard import GovernanceError, is_local
    from ..llm.spending import has_unknown_cost

    credentialed = [dataset for dataset in BENCHMARKS if settings.data.source(dataset).credentialed]
    try:
        if settings.calls.budget_usd is not None and has_unknown_cost(model, address):
            new_entry = f"an entry of `models` for {name}, with `prices`"
            prices = f"models.{name}.prices" if name in settings.models else new_entry
            free = "({input: 0, output: 0} where they are free)"
            yield f"{prices}: what its answers cost {free}, since calls.budget_usd is set"
        is_here = kind_of(address) == "openai" and is_local(address)
        if credentialed and not is_here and not (settings.governance.remote_agreement or "").strip():
            yield (f"governance.remote_agreement: the agreement under which the text of {', '.join(credentialed)}"
                   " may go to another machine")  # fmt: skip
    except GovernanceError as error:  # of `is_local`, for an address that is no address
        yield f"{key}: {error}"


def render(rows: Sequence[System]) -> str:
    """Write the rows as text, group by group, each with its model and what is missing (template ``systems.txt``)."""
    return environment(pipeline).get_template("systems.txt").render(rows=rows).rstrip()
