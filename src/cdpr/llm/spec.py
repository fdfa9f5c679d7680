"""The specification of a model and of its requests, and the function that opens models of all kinds."""

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
_FROZEN_RETRIES = 10  # for the frozen server, which may be restarting


def kind_of(where: str) -> str:
    """The kind of model at the folder or address ``where``: ``folder``, ``openai``, ``anthropic`` or ``verl``."""
    return _SCHEMES.get(where.partition(":")[0].lower(), "folder")


def module_of(where: str) -> str:
    """The name of the Python module that opens the model at the folder or address ``where``: "cdpr.llm.server"."""
    return _KINDS[kind_of(where)].partition(":")[0]


def modules_of(entry: ModelEntry | None, served: bool = False) -> tuple[str, ...]:
    """List the names of the Python modules that call a model, whose code is part of run keys. The model is that of a
    registry ``entry``, or, with None, the run's policy; ``served``: the job starts a server for the policy."""
    if entry is None:
        return module_of("http:" if served else ""), _AGENT_MODEL
    return module_of(entry.where or "http:"), _AGENT_MODEL, _RECORDING


def device_of(policy: Policy) -> str:
    """Choose the device of a model in this process: ``cpu`` or ``cuda``, by ``policy.device``. Raises RuntimeError
    where that asks for a GPU and torch finds none."""
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
    """A model, and how requests are sent to it.

    ``where`` is a Hugging Face folder, ``http(s)://HOST:PORT/v1`` or ``unix:/PATH`` of a server with OpenAI's protocol
    (under ``/v1``), ``anthropic`` (or ``anthropic:URL``), or ``verl:ROLLOUT`` for verl's rollout servers. ``name`` is
    the model's name on a server. ``credentialed``: requests hold text under a data use agreement; without a default, so
    that no caller forgets it.

    For a server:

    - ``timeout``: seconds for a whole answer; ``at_once``: most open requests.
    - ``retries``: attempts after the first; ``pause``: seconds before the first retry, doubled each time up to 30.
    - ``replicas``: all requests of a case go to one of them (vLLM's data parallel ranks).
    - ``server``: set for a server that this process starts.
    - ``tokens``: the folder of a tokenizer, with which the server takes token prompts.

    For a folder: its ``device``, and further arguments ``template`` of the chat template.

    ``entry`` is the model's entry in the registry. Calls are counted if there is an entry, or if ``metered``. ``calls``
    says whether answers are recorded in the folder ``state``, and what they may cost (None: neither).
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
        """The URL of requests; None for a model without an address."""
        if self.kind == "anthropic":
            return self.where.partition(":")[2] or "https://api.anthropic.com"
        return self.where if self.kind == "openai" else None

    @property
    def is_replay(self) -> bool:
        """Whether all answers come from recordings."""
        return self.calls is not None and self.calls.mode == "replay"

    def check(self, dataset: str = "") -> "Disclosure | None":
        """Check that the model can be used, before any work. Returns a :class:`~.guard.Disclosure` where credentialed
        text will go to another machine, else None. Raises SettingsError for a model that cannot be opened, and
        GovernanceError, which names ``dataset``, where no agreement allows the disclosure."""
        if self.kind == "folder":
            check_folder(self.where)
        if self.address is None or self.is_replay:
            return None
        if not self.name:
            raise SettingsError(
                "a server is set as model, but not which model of it: set the key beside it that names it (`id` of a "
                "model, `served_as` of an agent)"
            )
        from .guard import check_disclosure

        return check_disclosure(self.address, self.credentialed, self.governance, dataset)

    @classmethod
    def of_entry(cls, entry: ModelEntry, settings: Settings, *, credentialed: bool) -> Self:
        """Make the specification of the model of a registry ``entry``. Raises SettingsError where it has no address or
        folder."""
        if entry.where is None:
            raise SettingsError(
                f"model {entry.label or entry.id!r}: set `at` to its address or folder; see `cdpr systems`"
            )
        if entry.folder:
            template = entry.extra.get("chat_template_kwargs") or {}
            policy = settings.policy.model_copy(update={"model": entry.folder, "chat_template_kwargs": template})
            spec = cls.of_folder(entry.folder, policy)
        else:
            spec = cls(where=entry.where, name=entry.id, credentialed=credentialed, governance=settings.governance)
        state = settings.paths.state
        return replace(spec, credentialed=credentialed, entry=entry, calls=settings.calls, state=state)

    def served(self, server: "OwnServer") -> Self:
        """Make the specification of the same model on ``server``, which this process starts. Of a policy, which has no
        ``entry``, the server takes token prompts."""
        tokens = None if self.entry else self.where
        return replace(self, where=server.address, name=server.name, server=server, tokens=tokens)

    @classmethod
    def of_folder(cls, folder: str | Path, policy: Policy) -> Self:
        """Make the specification of the model in a Hugging Face folder, in this process; ``policy`` names the device
        and the arguments of the chat template."""
        return cls(where=str(folder), credentialed=True, device=device_of(policy), template=policy.chat_template_kwargs)

    @classmethod
    def of_frozen_server(cls, settings: Settings, *, credentialed: bool) -> Self:
        """Make the specification of the frozen initial policy on the server at ``training.verl.frozen.url``."""
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
        """Make the specification of the policy on verl's rollout servers, which are on the machines of the run."""
        return cls(where=f"verl:{settings.training.verl.server}", credentialed=True)


def open_model(spec: ModelSpec, **parts: Any) -> Model:
    """Open the model of a specification: the weights of a folder are read; a server gets no request yet.

    ``parts`` are further arguments of the model's class: the ``tokenizer`` of a server that takes token prompts, or
    verl's ``client`` and its ``tokenizer``. With ``spec.calls`` answers are recorded or replayed; with ``spec.entry``
    or ``spec.metered`` calls are counted. Raises SettingsError and GovernanceError as :meth:`ModelSpec.check`.
    """
    spec.check()
    if spec.tokens:
        from .tokenizer import ChatTokenizer

        parts["tokenizer"] = ChatTokenizer(spec.tokens, spec.template)
    model: Any = None
    if not spec.is_replay:  # a replay needs no package, key or server
        model = resolve_name(_KINDS[spec.kind])(spec, **parts)
    if spec.calls is not None and spec.calls.mode != "live":
        model = resolve_name(f"{_RECORDING}:RecordedModel")(spec, model)
    if spec.metered or spec.entry:
        model = resolve_name(f"{_AGENT_MODEL}:AgentModel")(model, spec.entry)
    return model
