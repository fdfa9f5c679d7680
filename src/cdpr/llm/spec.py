"""A model with the terms of its requests, and the one function that opens models of all kinds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self

from ..settings import ModelEntry, Settings, SettingsError
from ..settings.datasets import Governance
from ..settings.models import Calls
from ..settings.schema import Policy
from .model_folder import check_folder
from .types import Model

if TYPE_CHECKING:
    from .guard import Disclosure
    from .own_server import OwnServer

# Modules are imported by name, so that a job depends on the code of its own kind of model only.
_KINDS = {
    "folder": "cdpr.llm.sampler:open_folder",
    "openai": "cdpr.llm.server:OpenAIServer",
    "anthropic": "cdpr.llm.server:AnthropicServer",
    "verl": "cdpr.llm.rollout_server:RolloutServer",
}
_AGENT_MODEL, _RECORDING = "cdpr.llm.agent_model", "cdpr.llm.recording"
_SCHEMES = {"http": "openai", "https": "openai", "unix": "openai", "anthropic": "anthropic", "verl": "verl"}
_FROZEN_RETRIES = 10  # retries for the frozen server, which may be started again


def kind_of(where: str) -> str:
    """The kind of model at ``where``: ``folder``, ``openai``, ``anthropic`` or ``verl``."""
    return _SCHEMES.get(where.partition(":")[0].lower(), "folder")


def module_of(where: str) -> str:
    """The module that opens the model at ``where``."""
    return _KINDS[kind_of(where)].partition(":")[0]


def modules_of(entry: ModelEntry | None, served: bool = False) -> tuple[str, ...]:
    """Modules that an agent runs for a model of the registry, or (None) for the policy, which the job may serve."""
    if entry is None:
        return module_of("http:" if served else ""), _AGENT_MODEL
    return module_of(entry.where or "http:"), _AGENT_MODEL, _RECORDING


def device_of(policy: Policy) -> str:
    """Where a model of this process computes: ``cpu`` or ``cuda``. Raises RuntimeError for a missing GPU."""
    if policy.device == "cpu" or (policy.device == "auto" and policy.model == "tiny"):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if policy.device == "cuda":
        raise RuntimeError("policy.device: cuda, but torch finds no GPU; install a CUDA build of torch, or say auto")
    return "cpu"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model and the terms of its requests.

    ``where`` is a Hugging Face folder, ``http(s)://HOST:PORT/v1`` or ``unix:/PATH`` of a server with the OpenAI
    protocol (under ``/v1``), ``anthropic`` (or ``anthropic:URL``), or ``verl:ROLLOUT``, verl's own rollout servers.
    ``name`` is the server's name of the model, ``template`` further arguments of a chat template that this process
    renders. ``credentialed``: requests hold text under a data use agreement; it has no default, so that no caller
    forgets it. A server has ``timeout`` seconds for a whole answer, gets ``retries`` further attempts after ``pause``
    seconds, doubled up to 30, and ``at_once`` open requests; all requests of a case go to one of its ``replicas``
    (vLLM's data parallel ranks). ``device`` is where a folder's model computes.

    ``entry`` is the model's entry in the registry. With it or ``metered`` calls are counted. ``calls`` says
    whether answers to messages are recorded below ``state`` and what they may cost (None: neither). ``server`` is
    started by this process; ``tokens``, the folder of a tokenizer, makes it take token prompts.
    """

    where: str
    credentialed: bool
    name: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)
    governance: Governance = field(default_factory=Governance)
    timeout: float = 600.0  # for a model that may think aloud
    retries: int = 8  # two minutes in which an overloaded server may recover
    pause: float = 1.0
    at_once: int = 256
    replicas: int = 1
    device: str = "cpu"
    entry: ModelEntry | None = None
    metered: bool = False
    calls: Calls | None = None
    state: str = "state"
    server: "OwnServer | None" = None
    tokens: str | None = None

    @property
    def kind(self) -> str:
        """``folder``, ``openai``, ``anthropic`` or ``verl``."""
        return kind_of(self.where)

    @property
    def address(self) -> str | None:
        """Where requests go; None for models without an address."""
        if self.kind == "anthropic":
            return self.where.partition(":")[2] or "https://api.anthropic.com"
        return self.where if self.kind == "openai" else None

    @property
    def is_replay(self) -> bool:
        """Whether all answers come from recordings."""
        return self.calls is not None and self.calls.mode == "replay"

    def check(self, dataset: str = "") -> "Disclosure | None":
        """Check before any work: returns what ``run.json`` records where credentialed text goes to another machine,
        None where it stays here. Raises SettingsError for a model that cannot be opened, and GovernanceError, which
        names ``dataset``, where text must not go."""
        if self.kind == "folder":
            check_folder(self.where)
        if self.address is None or self.is_replay:
            return None
        if not self.name:
            raise SettingsError(
                "a server is set as model, but not which model of it: set the key beside it that names it (`id` of a "
                "model, `served_as` of an agent)"
            )
        from .guard import allow

        return allow(self.address, self.credentialed, self.governance, dataset)

    @classmethod
    def of_entry(cls, entry: ModelEntry, settings: Settings, *, credentialed: bool) -> Self:
        """A model of the registry, for an agent. Raises SettingsError where its place is not set."""
        if entry.where is None:
            raise SettingsError(
                f"model {entry.label or entry.id!r}: set `at` to its address or folder; see `cdpr systems`"
            )
        if entry.folder:
            own = {"model": entry.folder, "chat_template_kwargs": entry.extra.get("chat_template_kwargs") or {}}
            spec = cls.of_folder(entry.folder, settings.policy.model_copy(update=own))
        else:
            spec = cls(where=entry.where, name=entry.id, credentialed=credentialed, governance=settings.governance)
        state = settings.paths.state
        return replace(spec, credentialed=credentialed, entry=entry, calls=settings.calls, state=state)

    def served(self, server: "OwnServer") -> Self:
        """The same model behind a server of this process: one of the registry, or a policy, which takes tokens."""
        tokens = None if self.entry else self.where
        return replace(self, where=server.address, name=server.name, server=server, tokens=tokens)

    @classmethod
    def of_folder(cls, folder: str | Path, policy: Policy) -> Self:
        """A Hugging Face folder in this process, with device and template arguments of ``policy``."""
        return cls(where=str(folder), credentialed=True, device=device_of(policy), template=policy.chat_template_kwargs)

    @classmethod
    def of_frozen_server(cls, settings: Settings, *, credentialed: bool) -> Self:
        """The initial policy at ``training.verl.frozen.url``."""
        frozen = settings.training.verl.frozen
        return cls(
            where=str(frozen.url),
            name=frozen.name or settings.policy.model,
            credentialed=credentialed,
            governance=settings.governance,
            retries=_FROZEN_RETRIES,
            at_once=frozen.at_once,
            replicas=frozen.replicas,
        )

    @classmethod
    def of_rollouts(cls, settings: Settings) -> Self:
        """verl's rollout servers, on the machines of the run."""
        return cls(where=f"verl:{settings.training.verl.server}", credentialed=True)


def open_model(spec: ModelSpec, **parts: Any) -> Model:
    """The model of ``spec``, opened: a folder's weights are read; a server gets no request yet.

    ``parts``: the ``tokenizer`` of a server that takes token prompts (vLLM), or verl's ``client`` and its
    ``tokenizer``. With ``spec.calls`` answers are recorded, or replayed. Raises SettingsError and GovernanceError as
    :meth:`ModelSpec.check`.
    """
    spec.check()
    if spec.tokens:
        from .tokenizer import ChatTokenizer

        parts |= {"tokenizer": ChatTokenizer(spec.tokens, spec.template)}

    # A replay does not open the model, so it needs no package, key or server.
    model: Any = None if spec.is_replay else resolve_name(_KINDS[spec.kind])(spec, **parts)
    if spec.calls is not None and spec.calls.mode != "live":
        model = resolve_name(f"{_RECORDING}:RecordedModel")(spec, model)
    return resolve_name(f"{_AGENT_MODEL}:AgentModel")(model, spec.entry) if spec.metered or spec.entry else model
