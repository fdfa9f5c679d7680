"""From the name of a run to the agent that acts in it.

Agents are found by name (``acts: module:Class``), so that the code of an evaluation holds its own agent and no other.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..environment import Agent
from ..llm import ModelSpec
from ..llm.spec import modules_of
from ..settings import AgentEntry, Settings, SettingsError, model_of, served

if TYPE_CHECKING:
    from ..llm.own_server import OwnServer

_TRAINED = re.compile(r".+-seed\d+")


def agent_entry(settings: Settings, run: str) -> AgentEntry:
    """What the registry says of a run; every trained one (``VARIANT-seedN``) examines step by step. Raises
    SettingsError for a name that is neither."""
    if _TRAINED.fullmatch(run):
        return AgentEntry(model="policy", look=None)
    if run not in settings.agents:
        raise SettingsError(
            f"run {run!r} is neither trained (VARIANT-seedN, for example cdpr-seed0) nor an agent of "
            f"workflow/agents.yaml ({', '.join(settings.agents)})"
        )
    return settings.agents[run]


def agent_class(entry: AgentEntry) -> Any:
    """The class that ``acts`` names: an :class:`~cdpr.environment.Agent` whose attributes tell how it is evaluated, and
    whose class method ``build(settings, spec, temperature, dataset)`` makes it, the model of ``spec`` (None: it has
    none) opened. Raises SettingsError where there is none of that name."""
    module, _, name = entry.acts.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError, ValueError):
        raise SettingsError(f"agents: acts: {entry.acts!r} names no class; write module:Class") from None


def agent_code(settings: Settings, entry: AgentEntry) -> tuple[str, ...]:
    """Roots of the code of an agent: the module that acts, and those that ask its model."""
    acts = entry.acts.partition(":")[0]
    return (acts,) if entry.model is None else (acts, *modules_of(model_of(settings, entry), served(settings, entry)))


def model_spec(
    settings: Settings,
    entry: AgentEntry,
    policy: Path | None,
    server: OwnServer | None = None,
    *,
    credentialed: bool = True,
) -> ModelSpec | None:
    """The model behind an agent, its calls counted: ``policy``, the folder of the run's own policy, or what the entry
    names, behind ``server`` where the job has one; None for an agent without a model. Raises SettingsError where the
    folder is needed and not given."""
    if entry.model is None:
        return None
    if (model := model_of(settings, entry)) is not None:
        at = model.model_copy(update={"at": server.address}) if server else model
        spec = ModelSpec.of_entry(at, settings, credentialed=credentialed)
    elif policy is None:
        raise SettingsError("this run acts by a policy of its own: name its folder (--policy)")
    else:
        spec = replace(ModelSpec.of_folder(policy, settings.policy), metered=True)
    return spec.served(server) if server else spec


def build_agent(
    settings: Settings,
    run: str,
    policy: Path | None,
    temperature: float,
    dataset: str,
    server: OwnServer | None = None,
    *,
    credentialed: bool = True,
) -> Agent:
    """The agent of a run, its model opened; ``temperature`` 0 decodes greedily.

    ``dataset`` names the hospital that reference policies know. ``credentialed`` says whether cases stand under a data
    use agreement: their text goes to no other machine. Raises SettingsError and GovernanceError before any case is
    shown.
    """
    entry = agent_entry(settings, run)
    kind, spec = agent_class(entry), model_spec(settings, entry, policy, server, credentialed=credentialed)
    return kind.build(settings, spec, temperature, dataset)
