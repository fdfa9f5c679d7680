"""What each row of the main table needs to run, and what is missing here (``cdpr systems``)."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import pipeline
from ..agents.build import agent_entry
from ..escape import environment
from ..files import file_type
from ..llm import GovernanceError, ModelSpec, is_local
from ..llm.model_folder import check_folder, refuse_code
from ..llm.own_server import describe_missing_program
from ..llm.spending import has_unknown_cost
from ..report import methods
from ..settings import ASKERS, ModelEntry, Settings, SettingsError, is_served, judging_models, model_of, value_at
from ..settings.datasets import BENCHMARKS
from ..settings.tables import faults

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
        missing = list_missing(experiment, name) if name else _list_faults(settings, "policy")
        rows.append(System(name or method.name, method.label, method.group, method.paper, model, missing))
    for asker, key in ASKERS.items():  # such as "judge", whose model the setting "judge.model" names
        if judge := judging_models(settings).get(key):
            label = judge.label or judge.id or value_at(settings, key)
            rows.append(System(asker, label, "Judges and matcher", "", judge, _missing_for_judge(settings, key)))
    return rows


def list_missing(experiment: "Experiment", run: str) -> list[str]:
    """List what is missing before an agent or a trained run can act, each with how to supply it; empty where it can
    act. An API key is missing where no environment variable of its provider is set."""
    settings, agent = experiment.settings, agent_entry(experiment.settings, run)
    reasons = [methods.why_unfit(settings, run, dataset) for dataset in BENCHMARKS]
    if all(reasons):  # it can diagnose the cases of no benchmark
        return list(dict.fromkeys(reasons))
    model, served = model_of(settings, agent), is_served(settings, agent)
    if model is None:
        return _list_faults(settings, "policy", served=served) if agent.own_policy else []
    part = "server" if served and model.where is None else "model"
    return _list_faults(settings, part, f"agents.{run}.model", str(agent.model), model, served)


def refuse_unready(experiment: "Experiment", runs: Iterable[str]) -> None:
    """Raise SettingsError where one of these agents or trained runs, or a model that judges them, cannot act yet.
    Called at the start, so that this does not come after hours of other work. The message lists everything that is
    missing."""
    settings = experiment.settings
    missing = {run: list_missing(experiment, run) for run in runs}
    if missing:  # without runs there is nothing to judge
        missing |= {key: _missing_for_judge(settings, key) for key in judging_models(settings)}
    lines = [f"  {name}: {text}" for name, texts in missing.items() for text in texts]
    if lines:
        raise SettingsError("these cannot be run yet:\n" + "\n".join(lines))


def _missing_for_judge(settings: Settings, key: str) -> list[str]:
    """List what is missing before the judge or matcher whose model the setting ``key`` names can answer."""
    name, model = value_at(settings, key), judging_models(settings)[key]
    return _list_faults(settings, "model" if model.folder or model.id else "nameless", key, name, model)


def _list_faults(
    settings: Settings, part: str, key: str = "", name: str = "", model: ModelEntry | None = None, served: bool = False
) -> list[str]:
    """List what is missing before ``model``, or without one the policy, can act, each with how to supply it: the
    entries of ``part`` in ``refusals.yaml`` that apply. ``key`` is the setting that names the model, and ``name`` its
    value: an entry of models.yaml, a folder or an address. ``served``: a job starts a server for it."""
    where = model.where if model else settings.policy.model
    address = ModelSpec(where=where, credentialed=True).address if where else None
    is_there = bool(where and file_type(f"{where}/config.json" if model else where))
    # A server may read formats of weights that this process cannot.
    check: Callable[[Any], Any] = is_local if address else refuse_code if served else check_folder
    fault = _find_fault(check, address or Path(where or "")) if address or is_there else ""
    values = dict(settings) | {
        "key": f"models.{name}.at" if name in settings.models else key,
        "name": name,
        "model": model,
        "file_type": file_type,
        "is_there": is_there,
        "fault": fault,
        "program": describe_missing_program(settings.serving) if served else "",
        "called": address and settings.calls.mode != "replay",  # a replay of recorded answers needs no server
        "has_key": model and any(map(os.environ.get, model.key_names)),
        "has_unknown_cost": not fault and has_unknown_cost(model, address),
        "is_here": bool(address and address == where and not fault and is_local(address)),
        "credentialed": [dataset for dataset in BENCHMARKS if settings.data.source(dataset).credentialed],
    }
    return list(faults(__package__, part, values))


def _find_fault(check: Callable[[Any], Any], subject: Any) -> str:
    """Return the message of the error that ``check`` raises for a model's folder or address; empty where it raises
    none."""
    try:
        check(subject)
    except (SettingsError, GovernanceError) as error:
        return str(error)
    return ""


def render(rows: Sequence[System]) -> str:
    """Write the rows as text, group by group, each with its model and what is missing (template ``systems.txt``)."""
    return environment(pipeline).get_template("systems.txt").render(rows=rows).rstrip()
