"""The specification of a model (where it is, how requests are sent to it), and the function that opens it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Self

from ..settings import Calls, Governance, ModelEntry, Policy, Settings, SettingsError
from .guard import check_disclosure
from .model_folder import check_folder
from .types import Model

if TYPE_CHECKING:
    from .own_server import OwnServer

# Modules are imported by name, so that a job depends on the code of its own kind of model only.
_KINDS = {
    "folder": "cdpr.llm.sampler:open_folder",
    "openai": "cdpr.llm.server:OpenAIServer",
    "anthropic": "cdpr.llm.server:AnthropicServer",
}
_AGENT_MODEL, _RECORDING = "cdpr.llm.agent_model", "cdpr.llm.recording"
_FROZEN_RETRIES = 10  # of a request to the server of the frozen policy, which may be restarting: three minutes
# The kind of a model by what its address has before the colon.
_SCHEMES = {"http": "openai", "https": "openai", "unix": "openai", "anthropic": "anthropic"}


def kind_of(where: str) -> str:
    """The kind of model at ``where``, an address or a folder: ``openai`` (http, https, unix), ``anthropic``, or else
    ``folder``."""
    return _SCHEMES.get(where.partition(":")[0].lower(), "folder")


def module_of(where: str) -> str:
    """The name of the Python module that opens the model at ``where``, an address or a folder. For example
    ``module_of("http://127.0.0.1/v1")`` is ``cdpr.llm.server``. The shortest address of a kind is enough: ``http:``;
    the empty text counts as a folder."""
    return _KINDS[kind_of(where)].partition(":")[0]


def modules_of(entry: ModelEntry | None, served: bool = False) -> tuple[str, ...]:
    """List the names of the Python modules that call a model. Their code is part of the run key of a job that uses the
    model, so that a change of it makes the job run again.

    The model is that of an ``entry`` of ``workflow/models.yaml``. If ``entry`` is None, it is the policy of the run: in
    this process, or, if ``served``, on a server that the job starts.
    """
    if entry is None:
        return module_of("http:" if served else "folder"), _AGENT_MODEL
    # A model without an address is on a server that the job starts, so it is called as one at an address.
    return module_of(entry.where or "http:"), _AGENT_MODEL, _RECORDING


def device_of(policy: Policy) -> str:
    """Choose the device of a model in this process: ``cpu`` or ``cuda``. With ``policy.device`` ``auto`` that is the
    GPU if there is one, but the CPU for the tiny policy. Raises RuntimeError where the setting is ``cuda`` and torch
    finds no GPU."""
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

    ``where`` says what kind of model it is:

    - a Hugging Face folder: weights in this process;
    - ``http://HOST:PORT/v1``, ``https://...`` or ``unix:/PATH``: a server with OpenAI's protocol (under ``/v1``);
    - ``anthropic`` or ``anthropic:URL``: Anthropic's own API.

    ``name`` is the model's name on a server. ``credentialed``: requests hold text under a data use agreement; it has no
    default, so that no caller forgets it.

    For a server:

    - ``timeout``: seconds for a whole answer; ``at_once``: most open requests.
    - ``retries``: attempts after the first; ``pause``: seconds before the first retry, doubled each time up to 30.
    - ``replicas``: copies of the model (vLLM's data parallel ranks). All completions of token prompts of a case are
      requested from the same copy, which has cached the prompts of the case; the server divides other requests.
    - ``server``: the server, if this process starts it.
    - ``tokens``: the folder of a tokenizer, with which the server takes prompts of token ids.

    For a folder: its ``device``, and ``template``, further arguments of the chat template.

    ``entry`` is the model's entry in ``workflow/models.yaml``. Calls are counted if there is an entry, or if
    ``metered``. ``calls`` are the settings of recording answers in the folder ``state`` and of their budget (None: no
    recording, no budget). ``governance`` may name an agreement to send credentialed text to another machine.
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
        """The kind of the model: ``folder``, ``openai`` or ``anthropic``."""
        return kind_of(self.where)

    @property
    def address(self) -> str | None:
        """The address to which requests are sent; None for a folder."""
        if self.kind == "anthropic":
            return self.where.partition(":")[2] or "https://api.anthropic.com"
        return self.where if self.kind == "openai" else None

    @property
    def is_replay(self) -> bool:
        """Whether all answers come from recordings, so that no request is sent."""
        return self.calls is not None and self.calls.mode == "replay"

    def check(self, dataset: str = "") -> str | None:
        """Check that the model can be used, before any work is done.

        Returns the host of another machine to which credentialed text will go; None where it goes to none. Raises
        SettingsError for a folder whose files cannot be used, and for an address without the name of a model. Raises
        GovernanceError where no agreement allows the disclosure; its message names the data set ``dataset`` (empty: no
        data set).
        """
        if self.kind == "folder":
            check_folder(self.where)
        if self.address is None or self.is_replay:  # nothing is sent to an address
            return None
        if not self.name:
            remedy = "set the key beside it that names it (`id` of a model, `served_as` of an agent)"
            raise SettingsError(f"a server is set as model, but not which model of it: {remedy}")
        return check_disclosure(self.address, self.credentialed, self.governance, dataset)

    @classmethod
    def of_entry(cls, entry: ModelEntry, settings: Settings, *, credentialed: bool) -> Self:
        """Make the specification of a model in ``workflow/models.yaml`` from its ``entry``. Raises SettingsError where
        the entry has no address or folder, and RuntimeError for a folder where ``policy.device`` is ``cuda`` and torch
        finds no GPU."""
        if entry.where is None:
            remedy = "set `at` to its address or folder; see `cdpr systems`"
            raise SettingsError(f"model {entry.label or entry.id!r}: {remedy}")
        if entry.folder:
            # Its device and template are chosen as for a policy: as if this folder were the policy of the settings.
            template = entry.extra.get("chat_template_kwargs") or {}
            policy = settings.policy.model_copy(update={"model": entry.folder, "chat_template_kwargs": template})
            spec = cls.of_folder(entry.folder, policy)
        else:
            spec = cls(where=entry.where, name=entry.id, credentialed=credentialed, governance=settings.governance)
        state = settings.paths.state
        return replace(spec, credentialed=credentialed, entry=entry, calls=settings.calls, state=state)

    def served(self, server: "OwnServer") -> Self:
        """Make the specification of the same model on ``server``, which this process starts. A policy, which has no
        ``entry``, takes prompts of token ids there too."""
        tokens = None if self.entry else self.where
        return replace(self, where=server.address, name=server.name, server=server, tokens=tokens)

    @classmethod
    def of_folder(cls, folder: str | Path, policy: Policy) -> Self:
        """Make the specification of the model in a Hugging Face folder, which will run in this process. ``policy``
        gives its device and the arguments of its chat template. It counts as credentialed until a caller says
        otherwise. Raises RuntimeError as :func:`device_of`."""
        return cls(where=str(folder), credentialed=True, device=device_of(policy), template=policy.chat_template_kwargs)

    @classmethod
    def of_frozen_server(cls, settings: Settings, *, credentialed: bool) -> Self:
        """Make the specification of the frozen initial policy, which samples the continuations of counterfactual
        actions, on the server at ``training.verl.frozen.url``. This setting must have a value. ``credentialed``:
        requests hold text under a data use agreement."""
        frozen = settings.training.verl.frozen
        return cls(
            where=str(frozen.url), name=frozen.name or settings.policy.model, credentialed=credentialed,
            governance=settings.governance, retries=_FROZEN_RETRIES, at_once=frozen.at_once, replicas=frozen.replicas,
        )  # fmt: skip


def open_model(spec: ModelSpec, **parts: Any) -> Model:
    """Open the model of a specification. The weights of a folder are read now; a server gets its first request later.

    ``parts`` are further arguments of the model's class: the ``tokenizer`` of a server that takes prompts of token ids.
    With ``spec.calls`` answers are recorded or replayed, unless its mode is
    ``live``. With ``spec.entry`` or ``spec.metered`` calls are counted. Raises SettingsError and GovernanceError as
    :meth:`ModelSpec.check`.
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
