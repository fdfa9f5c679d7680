"""Functions that derive something from several settings together: the model behind an agent or a judge, and what a
configuration lacks or contradicts."""

import functools
import unicodedata
from pathlib import Path
from typing import Literal

from ..files import file_type
from .datasets import ADDRESSES
from .experiments import AgentEntry
from .judging import TABLES
from .load import known_keys
from .models import ModelEntry
from .schema import Settings
from .section import SettingsError, declaration
from .tables import refuse
from .variants import value_at


def model_of(settings: Settings, agent: AgentEntry) -> ModelEntry | None:
    """Get the entry of the model by which an agent acts: that of ``workflow/models.yaml``, or a new one if the agent
    names a folder or an address itself. None for an agent that acts by the policy of the run or by no model."""
    if agent.model is None or agent.own_policy:
        return None
    return named_model(settings, agent.model, agent.served_as or "")


def named_model(settings: Settings, name: str, served_as: str = "") -> ModelEntry:
    """Get the entry ``name`` of ``workflow/models.yaml``. Where there is none, ``name`` is a folder or an address:
    returns a new, enabled entry for it. ``served_as`` is the name of the model on the server at that address; empty for
    a folder."""
    if name in settings.models:
        return settings.models[name]
    provider: Literal["anthropic", "own"] = "anthropic" if name.startswith("anthropic") else "own"
    return ModelEntry(id=served_as, provider=provider, at=name, enabled=True)


def is_served(settings: Settings, agent: AgentEntry) -> bool:
    """Whether the job that evaluates ``agent`` starts a server for its model, by the section ``serving`` of the
    settings."""
    serving = settings.serving
    if serving.program == "none" or agent.model is None:
        return False
    if agent.own_policy:
        return serving.policies
    return agent.model in serving.models and settings.models[agent.model].where is None


def check_settings(settings: Settings) -> None:
    """Raise SettingsError for what a single setting cannot show: paths that programs misread, and settings that
    contradict each other."""
    check_paths(settings)
    models, served, own = settings.models, settings.serving.models, settings.data.price_overrides
    values = dict(settings) | {
        "unknown": [name for name in served if name not in models],
        "provided": [name for name in served if name in models and models[name].provider != "own"],
        "prices_in_results": own and Path(own).resolve().is_relative_to(Path(settings.paths.results).resolve()),
    }
    refuse(__package__, "settings", values)


def why_not_run(settings: Settings, name: str) -> str:
    """Say why the agent ``name`` is not run, as tables print it; empty for an agent that is run.

    It depends on the settings alone, so that equal settings make equal tables. Anything that is missing outside the
    settings, such as an API key, stops the run before its first job (:mod:`cdpr.pipeline.systems`).
    """
    agent = settings.agents[name]
    model = model_of(settings, agent)
    if model is None:
        return ""
    if model.where is None and not is_served(settings, agent):
        return f"not run: needs a server or a folder with its weights (models.{agent.model}.at)"
    if model.paid and not model.enabled:
        return f"not run: costs money (models.{agent.model}.enabled, {model.key_names[0]})"
    return ""


def judging_models(settings: Settings) -> dict[str, ModelEntry]:
    """Get the entries of the models that judge and match, by the setting that names each (``judge.model``,
    ``judge.second``, ``matcher.model``). Settings that name no model are left out."""
    names = {
        "judge.model": settings.judge.model,
        "judge.second": None if settings.judge.second == TABLES else settings.judge.second,
        "matcher.model": settings.matcher.model,
    }
    return {key: named_model(settings, name) for key, name in names.items() if name is not None}


def refuse_missing_paths(settings: Settings) -> None:
    """Raise SettingsError, which lists all files and folders that the settings name but that do not exist, if there are
    any."""
    missing = [f"  {name}: {path}" for name, path in user_files(settings) if not file_type(path)]
    if missing:
        raise SettingsError("\n".join(["these paths of the configuration do not exist:", *missing,
                                       "Correct them, or set a key to null to do without."]))  # fmt: skip


def check_paths(settings: Settings) -> None:
    """Raise SettingsError for a path anywhere in the settings that programs of the pipeline would misread
    (:func:`check_path`)."""
    for name, path in user_files(settings):
        check_path(name, path)
    for name, entry in settings.models.items():  # `weights` may be an id on the hub, to which the same rules apply
        for key, weights in (("at", entry.folder), ("weights", entry.weights)):
            if weights:
                check_path(f"models.{name}.{key}", weights)
    for name, agent in settings.agents.items():
        if agent.model and not agent.model.startswith(ADDRESSES):
            check_path(f"agents.{name}.model", agent.model)
    for name, path in settings.paths:
        check_path(f"paths.{name}", path, ":")  # where several paths are written as one list, a colon separates them


def check_path(name: str, path: str, forbidden: str = "") -> None:
    """Raise SettingsError for a path that programs of the pipeline would misread. ``name`` is the dotted name of the
    setting, for the message. A path must not be empty or begin with ``~``, and must not hold

    - braces or ``<``, which have another meaning to Snakemake,
    - ``?`` or a backslash, which have another meaning to DuckDB and SQLite,
    - a control character or line break,
    - one of the characters ``forbidden``.
    """
    if not path or path.startswith("~"):
        raise SettingsError(f"{name}: {path!r}: write the path of the folder out; `~` is not your home here")
    # Unicode's categories of control characters, surrogates, and separators of lines and paragraphs.
    if bad := [c for c in path if c in "{}<?\\" + forbidden or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]:
        raise SettingsError(f"{name}: {path!r}: a path cannot hold {bad[0]!r} here; rename the folder or file, "
                            "or make a link with another name")  # fmt: skip


def user_files(settings: Settings) -> list[tuple[str, str]]:
    """List the files and folders of the user that the settings name, each as (dotted name of the setting, path). These
    are the settings declared with ``is_path`` (:func:`~.section.key`) that have a value; the policy ``tiny`` is no
    folder."""
    paths = [(name, value_at(settings, name)) for name in _path_keys()]
    return [(name, path) for name, path in paths if path not in (None, "tiny")]


@functools.cache
def _path_keys() -> list[str]:
    """List the dotted names of the settings that are declared with ``is_path``: their value is a file or folder of the
    user."""
    return [name for name, field in known_keys().items() if "is_path" in declaration(field)]
