"""From the name of a run to its agent.

Agents are imported by name (``acts: module:Class``), so that an evaluation depends on the code of its own agent only.
"""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..llm import ModelSpec
from ..llm.spec import modules_of
from ..settings import AgentEntry, Settings, SettingsError, is_trained, model_of, served
from ..settings.load import restrict

# Settings that all agents read: what decides an action and its worth.
DECISIONS = ("environment", "policy", "utility")
ACTING = ("tier", "evaluation.seed", "evaluation.max_turn_tokens", "costs", *DECISIONS)

if TYPE_CHECKING:
    from ..environment import Agent
    from ..llm.own_server import OwnServer


def agent_entry(settings: Settings, run: str) -> AgentEntry:
    """The registry entry of a run; trained ones (``VARIANT-seedN``) share one. Raises SettingsError for other names."""
    if is_trained(run):
        return AgentEntry(model="policy", look=None)
    if run not in settings.agents:
        raise SettingsError(
            f"run {run!r} is neither trained (VARIANT-seedN, for example cdpr-seed0) nor an agent of "
            f"workflow/agents.yaml ({', '.join(settings.agents)})"
        )
    return settings.agents[run]


def agent_class(entry: AgentEntry) -> Any:
    """The class that ``acts`` names: an :class:`~cdpr.environment.Agent` with a class method ``build(settings, spec,
    temperature, dataset)``; ``spec`` is its model or None. Raises SettingsError where there is none of that name."""
    module, _, name = entry.acts.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError, ValueError):
        raise SettingsError(f"agents: acts: {entry.acts!r} names no class; write module:Class") from None


def agent_code(settings: Settings, entry: AgentEntry) -> tuple[str, ...]:
    """Modules that an agent runs: its own, and those that ask its model."""
    acts = entry.acts.partition(":")[0]
    return (acts,) if entry.model is None else (acts, *modules_of(model_of(settings, entry), served(settings, entry)))


def model_spec(
    settings: Settings,
    entry: AgentEntry,
    policy: Path | None,
    server: "OwnServer | None" = None,
    *,
    credentialed: bool = True,
) -> ModelSpec | None:
    """The model of an agent, with its calls counted: the folder ``policy`` of the run's own policy, or the model of the
    entry, behind ``server`` if the job has one; None for an agent without a model. Raises SettingsError where the
    folder is missing."""
    if entry.model is None:
        return None
    if (model := model_of(settings, entry)) is not None:
        placed = model.model_copy(update={"at": server.address}) if server else model
        spec = ModelSpec.of_entry(placed, settings, credentialed=credentialed)
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
    server: "OwnServer | None" = None,
    *,
    credentialed: bool = True,
) -> "Agent":
    """The agent of a run, its model opened; ``temperature`` 0 decodes greedily.

    ``dataset`` names the hospital that reference policies know. ``credentialed``: cases are under a data use agreement,
    so their text goes to no other machine. Raises SettingsError and GovernanceError before any request.
    """
    entry = agent_entry(settings, run)
    kind, spec = agent_class(entry), model_spec(settings, entry, policy, server, credentialed=credentialed)
    if spec is None and not kind.one_decoding:
        raise SettingsError(f"{entry.acts} acts by a language model: name its `model` (a folder, a server, policy), or "
                            "write `one_decoding = True` in the class if it needs none")  # fmt: skip
    line = f"reads = {(*kind.reads, 'KEY')}".replace("'", '"')
    remedy = f"write `{line}` in the class {entry.acts}, or its evaluations would not change with the setting"
    return kind.build(restrict(settings, (*ACTING, *kind.reads), remedy), spec, temperature, dataset)


def own_reads(settings: Settings, run: str) -> tuple[str, ...]:
    """The settings that the agent of a run reads beside those of all agents."""
    acts = agent_entry(settings, run).acts
    # Reference policies read no more, and are slow to import.
    return () if acts.startswith("cdpr.agents.reference:") else tuple(agent_class(agent_entry(settings, run)).reads)
