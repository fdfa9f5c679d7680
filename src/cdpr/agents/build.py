"""Builds the agent of a run from the name of the run.

Agents are imported by name (``acts: module:Class``), so that an evaluation depends only on the code of its own agent.
"""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..llm import ModelSpec, modules_of
from ..settings import AgentEntry, Settings, SettingsError, is_served, is_trained, model_of, restrict

# Settings that all agents can read. DECISIONS: those that decide an action and its utility. ACTING: these, and those of
# evaluations.
DECISIONS = ("environment", "policy", "utility")
ACTING = ("tier", "evaluation.seed", "evaluation.max_turn_tokens", "costs", *DECISIONS)

if TYPE_CHECKING:
    from ..environment import Agent
    from ..llm.own_server import OwnServer


def agent_entry(settings: Settings, run: str) -> AgentEntry:
    """Find the agent of a run in the registry ``settings.agents``. A trained run (``VARIANT-seedN``) is not in the
    registry: its agent acts by the policy of the run. Raises SettingsError for a name that is neither."""
    if is_trained(run):
        # The agent is the default of ``acts``, a PolicyAgent; the caller gives the folder of the trained policy. There
        # is no ``look``: tables and figures describe a trained run by its variant.
        return AgentEntry(model="policy", look=None)
    if run not in settings.agents:
        raise SettingsError(
            f"run {run!r} is neither trained (VARIANT-seedN, for example cdpr-seed0) nor an agent of "
            f"workflow/agents.yaml ({', '.join(settings.agents)})"
        )
    return settings.agents[run]


def agent_class(entry: AgentEntry) -> Any:
    """Import the class that ``entry.acts`` names as ``module:Class``; it implements :class:`~cdpr.environment.Agent`.
    Raises SettingsError where it cannot be imported."""
    module, _, name = entry.acts.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError, ValueError):
        raise SettingsError(f"agents: acts: {entry.acts!r} names no class; write module:Class") from None


def agent_code(settings: Settings, entry: AgentEntry) -> tuple[str, ...]:
    """List the names of the Python modules whose code decides the replies of an agent: its own, and those that call its
    model. Their code is part of the run key, so that a change of it runs the evaluation again."""
    acts = entry.acts.partition(":")[0]
    if entry.model is None:
        return (acts,)
    return (acts, *modules_of(model_of(settings, entry), is_served(settings, entry)))


def model_spec(
    settings: Settings, entry: AgentEntry, policy: Path | None, server: "OwnServer | None" = None, *,
    credentialed: bool = True,
) -> ModelSpec | None:  # fmt: skip
    """Make the specification of the model by which an agent acts; None for an agent without a model.

    It is the model that ``entry`` names in the registry of models, or else the policy in the folder ``policy``.
    ``server`` is the job's own server of this model (None: it has none). ``credentialed`` says that the cases are under
    a data use agreement, which is assumed by default: their text then goes to another machine only under
    ``governance.remote_agreement``. The model will count its calls and tokens. Raises SettingsError where an agent that
    acts by a policy gets no folder.
    """
    if entry.model is None:
        return None
    model = model_of(settings, entry)
    if model is not None:
        if server:
            model = model.model_copy(update={"at": server.address})
        spec = ModelSpec.of_entry(model, settings, credentialed=credentialed)  # a model of the registry counts calls
    elif policy is None:
        raise SettingsError("this run acts by a policy of its own: name its folder (--policy)")
    else:
        spec = replace(ModelSpec.of_folder(policy, settings.policy), metered=True)
    return spec.served(server) if server else spec


def build_agent(settings: Settings, run: str, spec: ModelSpec | None, temperature: float, dataset: str) -> "Agent":
    """Build the agent of the evaluation ``run`` and open its model. ``spec`` is that of :func:`model_spec`;
    ``temperature`` 0 decodes greedily.

    Agents of :mod:`.reference` know the probabilities of the synthetic hospital ``dataset``. Raises SettingsError for
    an agent or a model that cannot be opened, and GovernanceError for a model to which a data use agreement forbids
    sending the cases, both before any request.
    """
    entry = agent_entry(settings, run)
    agent_type = agent_class(entry)
    # An agent without a model decodes nothing, so greedy and sampled are one: its class has `one_decoding`.
    if spec is None and not agent_type.one_decoding:
        raise SettingsError(f"{entry.acts} acts by a language model: name its `model` (a folder, a server, policy), or "
                            "write `one_decoding = True` in the class if it needs none")  # fmt: skip
    # The agent gets only the settings that it declares. Reading another one raises an error that advises this remedy.
    declaration = f"reads = {(*agent_type.reads, 'KEY')}".replace("'", '"')
    remedy = f"write `{declaration}` in the class {entry.acts}, or its evaluations would not change with the setting"
    readable = restrict(settings, (*ACTING, *agent_type.reads), remedy)
    return agent_type.build(readable, spec, temperature, dataset)


def own_reads(settings: Settings, run: str) -> tuple[str, ...]:
    """List the dotted keys of the settings that the agent of a run reads in addition to :data:`ACTING`, which all
    agents read. The run key has their values, so that a change runs the evaluation again. Raises SettingsError for an
    unknown run or agent."""
    entry = agent_entry(settings, run)
    if entry.acts.startswith("cdpr.agents.reference:"):  # they read only ACTING, and are slow to import
        return ()
    return tuple(agent_class(entry).reads)
