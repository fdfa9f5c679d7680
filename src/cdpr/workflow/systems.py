"""Every row of the main table, what it needs to run, and what is missing here (``cdpr systems``)."""

from __future__ import annotations

import importlib.util
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agents.build import agent_entry
from ..llm.own_server import program_missing
from ..llm.spec import kind_of
from ..results import methods
from ..settings import ModelEntry, Settings, SettingsError, judging_models, model_of, served, value_at
from ..settings.datasets import BENCHMARKS
from ..settings.judging import ASKERS
from .experiment import Experiment

_WIDTH = 118  # characters of a line


@dataclass(frozen=True)
class System:
    """A row of the main table: its name in ``agents.yaml`` (or as a variant), its ``label`` in tables, and its row in
    the ``paper``. ``model_name`` is an entry of ``models.yaml``, a folder, an address, the policy, or empty; ``model``
    is that entry. ``missing`` lists what has to be supplied before it can run."""

    row: str
    label: str
    group: str
    paper: str
    model_name: str
    model: ModelEntry | None
    missing: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The row as JSON."""
        model = self.model.model_dump(include={"id", "provider", "prices", "licence", "needs"}) if self.model else None
        where = self.model.where if self.model else None
        return {
            "row": self.row, "label": self.label, "group": self.group, "paper": self.paper,
            "model_name": self.model_name, "model": model, "where": where,
            "ready": not self.missing, "missing": list(self.missing),
        }  # fmt: skip


def systems(experiment: Experiment, environment: Mapping[str, str] = os.environ) -> list[System]:
    """All rows in the table's order."""
    settings, rows_of_table = experiment.settings, []
    rows = {methods.agent(settings, name).name: name for name in settings.agents}
    for method in methods.main_methods(settings):
        titles = method.label, method.group, method.paper
        if (name := rows.get(method.name)) is None:
            rows_of_table.append(System(method.name, *titles, "policy, trained here", None, _policy(experiment)))
            continue
        agent = settings.agents[name]
        lacks = missing(experiment, name, environment)
        rows_of_table.append(System(name, *titles, agent.model or "", model_of(settings, agent), lacks))
    for asker, where in ASKERS.items():
        if judging := judging_models(settings).get(where):
            name = value_at(settings, where)
            label, lacks = judging.label or judging.id or name, _judging(experiment, where, environment)
            rows_of_table.append(System(asker, label, "Judges and matcher", "", name, judging, lacks))
    return rows_of_table


def missing(experiment: Experiment, name: str, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What an agent lacks, each with how to supply it."""
    settings = experiment.settings
    agent = settings.agents[name]
    if all(unfit := [methods.unfit(settings, name, dataset) for dataset in BENCHMARKS]):
        return tuple(dict.fromkeys(unfit))
    if (model := model_of(settings, agent)) is None:
        return _policy(experiment, served(settings, agent)) if agent.own_policy else ()
    if model.where is None and served(settings, agent):
        return _server(settings, f"models.{agent.model}.weights", model)
    return _lacks(settings, f"agents.{name}.model", str(agent.model), model, environment)


def _judging(experiment: Experiment, where: str, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What the model of the setting ``where`` lacks."""
    name, model = value_at(experiment.settings, where), judging_models(experiment.settings)[where]
    if model.folder is None and not model.id:
        return (f"{where}: an address does not say which model; give it an entry of `models`: {{id: ..., at: {name}}}",)
    return _lacks(experiment.settings, where, name, model, environment)


def _lacks(
    settings: Settings, key: str, name: str, model: ModelEntry, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """What the model ``name`` of the setting ``key`` needs before it can be called, and does not have."""
    key = f"models.{name}.at" if name in settings.models else key
    if model.where is None:
        return (
            f"{key}: a server's address (http://HOST:PORT/v1) or a folder with its weights; or let a job start "
            f"its server here: serving: {{program: vllm, models: [{name}]}}",
        )
    if model.folder:
        return _folder(key, model.folder)
    if settings.calls.mode == "replay":  # recorded answers are enough
        return ()
    return (
        *_permission(name, model, environment),
        *_price(settings, name, model),
        *_governance(settings, key, model.where),
    )


def refuse_what_lacks(experiment: Experiment, runs: Iterable[str]) -> None:
    """Raise SettingsError with everything that these runs and their judges lack: before hours of other work, not after
    them."""
    runs = list(runs)
    lacks = {
        run: missing(experiment, run) if run in experiment.settings.agents else _trained(experiment, run)
        for run in runs
    }
    lacks |= {where: _judging(experiment, where) for where in judging_models(experiment.settings) if runs}
    lines = [f"  {run}: {text}" for run, texts in lacks.items() for text in texts]
    if lines:
        raise SettingsError("these cannot be run yet:\n" + "\n".join(lines))


def render(rows: Sequence[System]) -> str:
    """The rows as text, group by group."""
    width = max(len(system.row) for system in rows)
    indent, lines = " " * (width + 13), list[str]()
    for group in dict.fromkeys(system.group for system in rows):
        lines += [group]
        for system in (s for s in rows if s.group == group):
            state = "not yet" if system.missing else "ready"
            lines.append(f"  {state:<7}  {system.row:<{width}}  {system.label}")
            lines += _wrapped(_about(system), indent)
            for text in system.missing:
                lines += _wrapped(text, f"{indent}- ")
        lines.append("")
    ready = sum(not system.missing for system in rows)
    lines.append(f"{ready} of {len(rows)} rows can be run now. Prices are US dollars per million tokens.")
    if ready < len(rows):
        lines.append(
            "What has a dash is missing. Settings such as models.NAME.KEY go into a YAML file of yours (models: {NAME: "
            "{KEY: ...}}),\nwhich every command takes as --configfile mine.yaml. Step by step: "
            "docs/how-to/run-baselines.md"
        )
    return "\n".join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    """Lines of a terminal's width; the ``indent`` of further ones is blank."""
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent),
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _about(system: System) -> str:
    """The model in a line."""
    model = system.model
    if model is None:
        return f"stands for the paper's {system.paper}" if system.paper and system.paper not in system.label else ""
    prices = model.prices
    price = f"{prices.input:g} in, {prices.output:g} out ({prices.date})" if prices else ""
    return "; ".join(part for part in (model.id, model.where or "", price, model.licence, model.needs) if part)


def _policy(experiment: Experiment, served: bool = False) -> tuple[str, ...]:
    folder = experiment.policy_folder
    absent = folder and not Path(folder).exists()
    how = "put a model's weights there (`hf download ID --local-dir FOLDER`), or name where they are"
    lacks = [f"policy.model: there is no folder {folder}; {how}"] if absent else []
    program = program_missing(experiment.settings.serving) if served else ""
    return (*lacks, *([program] if program else []))


def _trained(experiment: Experiment, run: str) -> tuple[str, ...]:
    """What a trained run lacks to be evaluated, but for its training."""
    return _policy(experiment, served(experiment.settings, agent_entry(experiment.settings, run)))


def _server(settings: Settings, key: str, model: ModelEntry) -> tuple[str, ...]:
    """What keeps a job from starting a server: the program, or a file that it reads."""
    if settings.calls.mode == "replay":
        return ()
    loaded, serving = model.weights or model.id, settings.serving
    program = program_missing(serving)
    file = f"{key}: {loaded!r} is no file; name the GGUF file that llama.cpp reads"
    absent = serving.program == "llama_cpp" and not serving.command and not Path(loaded).is_file()
    return tuple(text for text in (program, file if absent else "") if text)


def _folder(key: str, folder: str) -> tuple[str, ...]:
    if (Path(folder) / "config.json").is_file():
        return ()
    return (f"{key}: {folder} is neither an entry of workflow/models.yaml nor a Hugging Face folder (no config.json)",)


def _permission(name: str | None, model: ModelEntry, environment: Mapping[str, str]) -> list[str]:
    """Permission to spend money, a key, and the client package, where any of them is missing."""
    package = kind_of(str(model.where))
    lacks = [] if importlib.util.find_spec(package) else [f"the package `{package}`: pip install {package}"]
    if model.paid and not any(environment.get(key) for key in model.key_names):
        lacks.append(f"a key: export {' or '.join(model.key_names)}=...")
    if model.paid and not model.enabled:
        lacks.append(f"models.{name}.enabled: true, since every answer costs money")
    return lacks


def _price(settings: Settings, name: str, model: ModelEntry) -> list[str]:
    """A price that the budget needs."""
    from ..llm.guard import GovernanceError  # here, for its client would slow every reading of the workflow
    from ..llm.spending import unpriced

    try:
        if settings.calls.budget_usd is None or not unpriced(model, model.where):
            return []
    except GovernanceError:  # no address: _lacks reports that
        return []
    place = f"models.{name}.prices" if name in settings.models else f"an entry of `models` for {name}, with `prices`"
    return [
        f"{place}: what its answers cost ({{input: 0, output: 0}} where they are free), since calls.budget_usd is set"
    ]


def _governance(settings: Settings, key: str, where: str) -> list[str]:
    """What keeps the text of credentialed cases on this machine."""
    from ..llm.guard import GovernanceError, is_local  # here, for its client would slow every reading of the workflow

    try:
        local = kind_of(where) == "openai" and is_local(where)
    except GovernanceError as error:
        return [f"{key}: {error}"]
    credentialed = [name for name in BENCHMARKS if settings.data.source(name).credentialed]
    if local or not credentialed or (settings.governance.remote_agreement or "").strip():
        return []
    return [f"governance.remote_agreement: the agreement under which the text of {', '.join(credentialed)} may go to "
            "another machine"]  # fmt: skip
