"""Whole answers from a chat model: a server that speaks the OpenAI protocol, or a model in this process.

Messages of errors name the model and what went wrong, never the question or the answer.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import httpx

from ..settings import SettingsError
from .guard import Disclosure, allow, host_of, is_local, unix_socket
from .types import ModelFailure, Sampling

if TYPE_CHECKING:
    from ..settings.data import Governance
    from ..settings.datasets import Structurer
    from .sampler import InProcessSampler

KEY_NAMES = ("CDPR_API_KEY", "OPENAI_API_KEY")
_THIS_REQUEST = (400, 413, 422)  # what a server answers to a request that it cannot serve; others it may
_LONGEST_PAUSE = 30.0
_UNLIMITED = httpx.Limits()  # how many requests are open at a time is for the caller to say

Messages = Sequence[Mapping[str, str]]


class ModelUnavailable(ModelFailure):
    """The model answers nobody: server gone, overloaded or refusing. The next request will fare no better."""


class Chat(Protocol):
    """A model that answers a conversation with a text."""

    def may_send(self, credentialed: bool, dataset: str = "") -> Disclosure | None:
        """Ask before any work is done: what ``run.json`` shall tell if credentialed text is sent to another machine,
        None where it stays here. Raises GovernanceError where it must not go."""
        ...

    async def complete(
        self,
        messages: Messages,
        max_tokens: int,
        *,
        credentialed: bool,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> str:
        """The answer. ``credentialed`` says whether ``messages`` hold text under a data use agreement; it has no
        default, so that no caller forgets it. Raises :class:`ModelFailure` where there is no answer to this request,
        :class:`ModelUnavailable` where there is none to any, and GovernanceError before text goes where it must not.
        """
        ...


class ServerModel:
    """Model ``name`` behind ``url`` (``http://HOST:PORT/v1`` or ``unix:/PATH``, whose server answers under ``/v1``).

    A key is read from ``CDPR_API_KEY``, else ``OPENAI_API_KEY``, when a request is sent, and kept nowhere. Time-outs
    (``timeout`` seconds for a whole answer), lost connections, 429 and 5xx are tried again ``retries`` times, after
    ``pause`` seconds, twice that, and so on. Redirects are not followed. Proxies of the environment serve only open
    cases on other machines: credentialed text goes straight to the host that was asked about, or nowhere.
    """

    def __init__(
        self, url: str, name: str, governance: Governance, *, timeout: float = 120.0, retries: int = 3,
        pause: float = 1.0,
    ) -> None:  # fmt: skip
        self._url, self.name, self._governance = url, name, governance
        self.timeout, self.retries, self.pause = timeout, retries, pause
        self._called = f"model {name!r} at {host_of(url)}"

    def __repr__(self) -> str:
        return f"<{self._called}>"

    def may_send(self, credentialed: bool, dataset: str = "") -> Disclosure | None:
        """See :class:`Chat`."""
        return allow(self._url, credentialed, self._governance, dataset)

    async def complete(
        self, messages: Messages, max_tokens: int, *, credentialed: bool, temperature: float = 0.0,
        seed: int | None = None,
    ) -> str:  # fmt: skip
        """See :class:`Chat`."""
        self.may_send(credentialed)
        body = {"model": self.name, "messages": [dict(m) for m in messages], "max_tokens": max_tokens,
                "temperature": temperature} | ({} if seed is None else {"seed": seed})  # fmt: skip
        async with self._connection(credentialed) as client:
            return self._text(await self._post(client, "chat/completions", body))

    async def _post(self, client: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """What the server answers, after as many tries as are allowed. Raises :class:`ModelUnavailable`."""
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(min(self.pause * 2 ** (attempt - 1), _LONGEST_PAUSE))
            try:
                async with asyncio.timeout(self.timeout):  # of all of it: a server may also drip
                    response = await client.post(path, json=body)
            except TimeoutError:
                problem = f"no answer within {self.timeout:g} seconds"
            except httpx.RequestError as error:
                problem = f"no connection ({type(error).__name__})"
            else:
                if response.status_code != 429 and response.status_code < 500:
                    return response
                problem = f"status {response.status_code}"
        raise ModelUnavailable(f"{self._called}: {problem}, {self.retries + 1} times; see whether the server is well")

    def _connection(self, credentialed: bool) -> httpx.AsyncClient:
        socket = unix_socket(self._url)
        key = next((os.environ[name] for name in KEY_NAMES if os.environ.get(name)), None)
        return httpx.AsyncClient(
            base_url="http://localhost/v1/" if socket else self._url,
            headers={"Authorization": f"Bearer {key}"} if key else None,
            transport=httpx.AsyncHTTPTransport(uds=socket, limits=_UNLIMITED) if socket else None,
            limits=_UNLIMITED,
            timeout=None,
            follow_redirects=False,
            trust_env=not (credentialed or is_local(self._url)),
        )

    def _text(self, response: httpx.Response) -> str:
        """The answer's text."""
        text = self._choice(response, "message", "content")
        if not isinstance(text, str):
            raise ModelFailure(f"{self._called}: what came back is no chat completion")
        return text

    def _choice(self, response: httpx.Response, *path: str) -> Any:
        """What stands at ``path`` of the first choice, None where nothing does. What the server says of an error is
        not repeated: it may quote the question."""
        status = response.status_code
        if status in _THIS_REQUEST:
            raise ModelFailure(f"{self._called}: status {status}, the server does not accept the request")
        if status != 200:
            raise ModelUnavailable(f"{self._called}: status {status}; check address, model name and key (CDPR_API_KEY)")
        try:
            return functools.reduce(lambda found, name: found[name], path, response.json()["choices"][0])
        except (ValueError, LookupError, TypeError, RecursionError):
            return None


class LocalModel:
    """The model of a Hugging Face folder, in this process; it is loaded when it is first asked."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            raise SettingsError(
                f"{folder}: no Hugging Face folder (config.json is missing); name the folder of an instruct model, or "
                "a server as http://HOST:PORT/v1"
            )

    def __repr__(self) -> str:
        return f"<model in {self.folder}>"

    def may_send(self, credentialed: bool, dataset: str = "") -> None:
        """See :class:`Chat`; nothing leaves the process."""

    async def complete(
        self, messages: Messages, max_tokens: int, *, credentialed: bool, temperature: float = 0.0,
        seed: int | None = None,
    ) -> str:  # fmt: skip
        """See :class:`Chat`."""
        prompt, room = self._sampler.tokenizer.opening(messages), self._sampler.max_positions
        if len(prompt) + max_tokens > room:
            raise ModelFailure(f"model in {self.folder}: {len(prompt)} tokens of question and {max_tokens} of answer "
                               f"exceed its {room}")  # fmt: skip
        [answer] = await self._sampler.sample(prompt, [0], Sampling(max_tokens, temperature), seed or 0)
        return answer.text

    @functools.cached_property
    def _sampler(self) -> InProcessSampler:
        from .sampler import InProcessSampler

        return InProcessSampler.from_folder(self.folder)


def chat(settings: Structurer, governance: Governance) -> ServerModel | LocalModel:
    """The model that ``settings.model`` names: an address, or a folder. Raises SettingsError."""
    model: Any = settings.model
    if not model:
        raise SettingsError("no model is named: set the key `model` to a Hugging Face folder or the URL of a server")
    if not model.startswith(("http://", "https://", "unix:")):
        return LocalModel(model)
    if not settings.name:
        raise SettingsError("a server is set as model, but not which model of it: set the key `name` beside it")
    return ServerModel(model, settings.name, governance)
