"""What models behind an address share: the guard, the key, time-out and further tries, and errors that quote nothing.

The official clients (``openai``, ``anthropic``) send the requests; connection, key and tries are ours, because
credentialed text goes straight to the host that was asked about, or nowhere.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

import httpx2

from ..settings import SettingsError
from .guard import host_of, is_local, unix_socket
from .spec import ModelSpec
from .tokenizer import ChatTokenizer
from .types import Completion, Model, ModelFailure, ModelUnavailable

_THIS_REQUEST = (400, 413, 422)  # what a server answers to a request that it cannot serve; others it may
_LONGEST_PAUSE = 30.0  # seconds
_UNLIMITED = httpx2.Limits()  # how many requests are open at a time is for the spec to say


class ServedModel(Model):
    """A model behind ``spec.address``, asked through the package ``package``.

    A key is read from the first of ``keys`` that the environment sets, when a request is sent, and kept nowhere; those
    are the names that the model's entry gives, so that no provider sees another's, or ``key_names``.
    Time-outs, lost connections, 429 and 5xx are tried again. Redirects are not followed. Proxies of the environment
    serve only open cases on other machines.
    """

    package: ClassVar[str]
    key_names: ClassVar[tuple[str, ...]]
    takes_tokens: ClassVar[bool] = False

    def __init__(self, spec: ModelSpec, tokenizer: ChatTokenizer | None = None) -> None:
        assert spec.address is not None
        self.tokenizer = tokenizer if self.takes_tokens else None
        self.spec, self.address = spec, spec.address
        self.keys = spec.entry.key_names if spec.entry else self.key_names
        self._called = f"model {spec.name!r} at {host_of(self.address)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._sdk = importlib.import_module(self.package)
        except ModuleNotFoundError:
            raise SettingsError(
                f"{self._called}: the package `{self.package}` is not installed: pip install {self.package}"
            ) from None
        # In detail its logger would quote questions, whatever the environment asks it to log.
        logging.getLogger(self.package).setLevel(logging.WARNING)

    def __repr__(self) -> str:
        return f"<{self._called}>"

    @abstractmethod
    def client(self, connection: httpx2.AsyncClient) -> Any:
        """The package's client over ``connection``, which neither tries again nor adds a key of its own."""

    async def _all(
        self, samples: Sequence[int], ask: Callable[[Any, int], Awaitable[Any]], read: Callable[[Any], Completion]
    ) -> list[Completion]:
        """The answers to ``ask(client, k)`` for every sample k, as ``read`` understands them."""
        return list(await asyncio.gather(*(self._one(lambda client, k=k: ask(client, k), read) for k in samples)))

    async def _one(self, ask: Callable[[Any], Awaitable[Any]], read: Callable[[Any], Completion]) -> Completion:
        self.spec.check()
        client, gate = self._connected()
        async with gate:
            for attempt in range(self.spec.retries + 1):
                if attempt:
                    await asyncio.sleep(min(self.spec.pause * 2 ** (attempt - 1), _LONGEST_PAUSE))
                found = await self._try(client, ask, read)
                if isinstance(found, Completion):
                    return found
                if isinstance(found, ModelFailure):
                    raise found
        raise ModelUnavailable(
            f"{self._called}: {found}, {self.spec.retries + 1} times; see whether the server is well"
        )

    async def _try(
        self, client: Any, ask: Callable[[Any], Awaitable[Any]], read: Callable[[Any], Completion]
    ) -> Completion | ModelFailure | str:
        """The answer, or why there is none: an error to raise, or a problem that may pass. What is raised here would
        drag along the package's error, which holds what the server said, and that may quote the question."""
        sdk = self._sdk
        try:
            async with asyncio.timeout(self.spec.timeout):  # of all of it: a server may also drip
                answer = await ask(client)
        except TimeoutError:
            return f"no answer within {self.spec.timeout:g} seconds"
        except sdk.APIConnectionError as error:
            return f"no connection ({type(error.__cause__).__name__})"
        except sdk.APIStatusError as error:
            status = error.status_code
        except (sdk.APIError, ValueError, RecursionError):  # of what is no JSON
            return ModelFailure(f"{self._called}: what came back is no JSON")
        else:
            try:
                return read(answer)
            except (AttributeError, LookupError, TypeError):
                return ModelFailure(f"{self._called}: what came back has not the form of an answer")
        if status in _THIS_REQUEST:
            return ModelFailure(f"{self._called}: status {status}, the server does not accept the request")
        if status == 429 or status >= 500:
            return f"status {status}"
        return ModelUnavailable(f"{self._called}: status {status}; check address, model name and key ({self.keys[0]})")

    def _connected(self) -> tuple[Any, asyncio.Semaphore]:
        """One connection pool for all requests of an event loop: a pool for each would cost more than the request."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            socket = unix_socket(self.address)
            connection = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(uds=socket, limits=_UNLIMITED) if socket else None,
                limits=_UNLIMITED,
                timeout=None,
                follow_redirects=False,
                trust_env=not (self.spec.credentialed or is_local(self.address)),
                auth=self._with_key,
            )
            self._loop = loop
            self._pool = self.client(connection), asyncio.Semaphore(self.spec.at_once)
        return self._pool

    def _with_key(self, request: httpx2.Request) -> httpx2.Request:
        request.headers.pop("Authorization", None)  # the package's own idea of a key
        key = next((os.environ[name] for name in self.keys if os.environ.get(name)), None)
        if key:
            request.headers["Authorization"] = f"Bearer {key}"
        return request
