"""Which model is meant and on what terms it is asked, and the one door behind which all kinds of models stand."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..settings import ModelEntry, Settings, SettingsError
from ..settings.calls import Calls
from ..settings.data import Governance
from ..settings.datasets import Structurer
from ..settings.schema import Policy
from .types import Model

if TYPE_CHECKING:
    from .guard import Disclosure
    from .own_server import OwnServer

# Modules are found by name, so that the code of a job holds the kind of model that it asks, and no other.
_KINDS = {
    "folder": "cdpr.llm.sampler:open_folder",
    "openai": "cdpr.llm.server:OpenAIServer",
    "anthropic": "cdpr.llm.server:AnthropicServer",
    "verl": "cdpr.llm.rollout_server:RolloutServer",
}
_WRAPPERS, _RECORDING = "cdpr.llm.wrappers", "cdpr.llm.recording"
_SCHEMES = {"http": "openai", "https": "openai", "unix": "openai", "anthropic": "anthropic", "verl": "verl"}
_LONG_ANSWER = 600.0  # seconds for an agent that may think aloud
_FROZEN_RETRIES = 10  # further tries for the frozen server, after 1, 2, 4 ... 30 seconds: it may be started again
_PATIENCE = 8  # further tries for it: two minutes in which a server that is overrun may recover


def kind_of(where: str) -> str:
    """The kind of model at ``where``: ``folder``, ``openai``, ``anthropic`` or ``verl``."""
    return _SCHEMES.get(where.partition(":")[0].lower(), "folder")


def module_of(where: str) -> str:
    """The module that opens the model at ``where``: root of the code of a job that asks it."""
    return _KINDS[kind_of(where)].partition(":")[0]


def modules_of(entry: ModelEntry | None, served: bool = False) -> tuple[str, ...]:
    """Roots of the code of a job in which an agent asks a model of the registry, or (None) the policy, which may be
    ``served`` by the job."""
    if entry is None:
        return module_of("http:" if served else ""), _WRAPPERS
    return module_of(entry.where or "http:"), _WRAPPERS, _RECORDING


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model and the terms on which it is asked.

    ``where`` is a Hugging Face folder, ``http(s)://HOST:PORT/v1`` or ``unix:/PATH`` of a server that speaks the OpenAI
    protocol (under ``/v1``), ``anthropic`` (or ``anthropic:URL``), or ``verl:ROLLOUT``, verl's own rollout servers.
    ``name`` is what a server calls the model, ``template`` further arguments of the chat template where this process
    renders prompts. ``credentialed`` says whether it is asked about text under a data use
    agreement; it has no default, so that no caller forgets it. A server has ``timeout`` seconds for a whole answer,
    is tried again ``retries`` times after ``pause`` seconds, twice that, and so on up to 30, and is asked ``at_once``
    questions at a time. ``device`` is where a folder's model computes (``cpu``, ``cuda``).

    ``entry`` says how a model of the registry is asked, ``metered`` whether its calls are counted (:mod:`.wrappers`);
    ``calls`` what becomes of its answers to messages, which are kept below ``state``, and what they may cost together
    (None: nothing is kept or capped). ``server`` is one that this process starts and ends itself; with ``tokens``, the
    folder of a tokenizer, it is asked by tokens.
    """

    where: str
    credentialed: bool
    name: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)
    governance: Governance = field(default_factory=Governance)
    timeout: float = 120.0
    retries: int = 3
    pause: float = 1.0
    at_once: int = 256
    device: str = "cpu"
    entry: ModelEntry | None = None
    metered: bool = False
    calls: Calls | None = None
    state: str = "state"
    server: OwnServer | None = None
    tokens: str | None = None

    @property
    def kind(self) -> str:
        """``folder``, ``openai``, ``anthropic`` or ``verl``."""
        return kind_of(self.where)

    @property
    def address(self) -> str | None:
        """Where requests go; None for what no address leads to."""
        if self.kind == "anthropic":
            return self.where.partition(":")[2] or "https://api.anthropic.com"
        return self.where if self.kind == "openai" else None

    @property
    def replayed(self) -> bool:
        """Whether nobody is asked: all answers are recorded ones."""
        return self.calls is not None and self.calls.mode == "replay"

    def check(self, dataset: str = "") -> Disclosure | None:
        """Ask before any work is done: what ``run.json`` shall tell where credentialed text is sent to another machine,
        None where it stays here. Raises SettingsError for a model that cannot be opened, and GovernanceError, which
        names ``dataset``, where text must not go."""
        if self.kind == "folder" and not (Path(self.where) / "config.json").is_file():
            raise SettingsError(
                f"{self.where}: no Hugging Face folder (config.json is missing); name the folder of an instruct model, "
                "or a server as http://HOST:PORT/v1"
            )
        if self.address is None or self.replayed:
            return None
        if not self.name:
            raise SettingsError(
                "a server is set as model, but not which model of it: set the key beside it that names it (`id` of a "
                "model, `served_as` of an agent, `name` of a structurer)"
            )
        from .guard import allow

        return allow(self.address, self.credentialed, self.governance, dataset)

    @classmethod
    def of_entry(cls, entry: ModelEntry, settings: Settings, *, credentialed: bool) -> ModelSpec:
        """A model of the registry, as an agent asks it. Raises SettingsError where nobody has said where it is."""
        if entry.where is None:
            raise SettingsError(
                f"model {entry.label or entry.id!r}: set `at` to its address or folder; see `cdpr systems`"
            )
        if entry.folder:
            own = {"model": entry.folder, "chat_template_kwargs": entry.extra.get("chat_template_kwargs") or {}}
            spec = cls.of_folder(entry.folder, settings.policy.model_copy(update=own))
        else:
            spec = cls(where=entry.where, name=entry.id, credentialed=credentialed, governance=settings.governance,
                       timeout=_LONG_ANSWER, retries=_PATIENCE)  # fmt: skip
        return replace(spec, credentialed=credentialed, entry=entry, metered=True, calls=settings.calls,
                       state=settings.paths.state)  # fmt: skip

    def served(self, server: OwnServer) -> ModelSpec:
        """The same model behind a server of one's own: one of the registry, or the policy in a folder, which is asked
        as vLLM answers it, by tokens."""
        at = replace(self, where=server.address, name=server.name, server=server)
        if self.entry:
            return at
        return replace(at, tokens=self.where, timeout=_LONG_ANSWER, retries=_PATIENCE)

    @classmethod
    def of_folder(cls, folder: str | Path, policy: Policy) -> ModelSpec:
        """A Hugging Face folder, on the device and with the arguments of its template that ``policy`` names; text stays
        in this process, whatever it is."""
        return cls(where=str(folder), credentialed=True, device=device_of(policy), template=policy.chat_template_kwargs)

    @classmethod
    def of_structurer(cls, settings: Structurer, governance: Governance, *, credentialed: bool) -> ModelSpec:
        """The model that helps with notes in free form. Raises SettingsError where none is named."""
        if not settings.model:
            raise SettingsError(
                "no model is named: set the key `model` to a Hugging Face folder or the URL of a server"
            )
        return cls(
            where=settings.model, name=settings.name or "", credentialed=credentialed, governance=governance,
            at_once=settings.at_once,
        )  # fmt: skip

    @classmethod
    def of_frozen_server(cls, settings: Settings, *, credentialed: bool) -> ModelSpec:
        """The initial policy at ``training.verl.frozen.url``."""
        verl = settings.training.verl
        return cls(
            where=str(verl.frozen.url), name=verl.frozen.name or settings.policy.model, credentialed=credentialed,
            governance=settings.governance, timeout=_LONG_ANSWER, retries=_FROZEN_RETRIES,
            at_once=verl.frozen.at_once,
        )  # fmt: skip

    @classmethod
    def of_rollouts(cls, settings: Settings) -> ModelSpec:
        """verl's rollout servers, on the machines of the run."""
        verl = settings.training.verl
        return cls(where=f"verl:{verl.server}", credentialed=True, timeout=_LONG_ANSWER)


def open_model(spec: ModelSpec, **parts: Any) -> Model:
    """The model of ``spec``, opened: a folder's weights are read, a server is asked nothing yet.

    ``parts``: the ``tokenizer`` with which a server that answers token prompts (vLLM) takes them, or verl's ``client``
    and its ``tokenizer``. With ``spec.calls`` its answers are recorded, or replayed (:mod:`.recording`). Raises
    SettingsError and GovernanceError as :meth:`ModelSpec.check`.
    """
    spec.check()
    model: Model
    if spec.tokens:
        from .tokenizer import ChatTokenizer

        parts |= {"tokenizer": ChatTokenizer(spec.tokens, spec.template)}
    if spec.calls is None or spec.calls.mode == "live":
        model = _named(_KINDS[spec.kind])(spec, **parts)
    else:
        model = _named(f"{_RECORDING}:recorded")(spec, lambda: _named(_KINDS[spec.kind])(spec, **parts))
    if spec.metered:
        model = _named(f"{_WRAPPERS}:MeteredModel")(model)
    return _named(f"{_WRAPPERS}:RegisteredModel")(model, spec.entry) if spec.entry else model


def _named(kind: str) -> Any:
    module, _, name = kind.partition(":")
    return getattr(importlib.import_module(module), name)


def device_of(policy: Policy) -> str:
    """``cpu`` or ``cuda``. Raises RuntimeError for a GPU that is asked for and not there."""
    if policy.device == "cpu" or (policy.device == "auto" and policy.model == "tiny"):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if policy.device == "cuda":
        raise RuntimeError("policy.device: cuda, but torch finds no GPU; install a CUDA build of torch, or say auto")
    return "cpu"
