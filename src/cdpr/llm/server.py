"""Models behind an address: the guard, the key, time-outs and retries, and errors that quote nothing.

The official clients (``openai``, ``anthropic``) send the requests; connection, key and retries are ours, so that
credentialed text goes to the checked host only.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Literal

import httpx2

from ..seeding import derive_seed
from ..settings import SettingsError
from ..settings.models import PROVIDERS
from .guard import host_of, is_local, unix_socket
from .spec import ModelSpec
from .spending import Outcome, Spending, worst_case
from .tokenizer import ChatTokenizer
from .types import UNREAD, Completion, Messages, Model, ModelFailure, ModelUnavailable, Sampling, Usage

_BAD_REQUEST = (400, 413, 422)  # this request cannot be served; the next one may
# Words of OpenAI, DeepSeek and vLLM; llama.cpp; SGLang; Google; Anthropic for a conversation that is too long.
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum (?:context|model) length|exceed_context_size_error|model's (?:maximum )?context "
    r"length|input token count \(?\d+\)? exceeds|prompt is too long",
    re.IGNORECASE,
)
_LONGEST_PAUSE = 30.0  # seconds between attempts
_LONGEST_WAIT = 120.0  # seconds that a server may ask for (Retry-After)
_UNLIMITED = httpx2.Limits()  # a semaphore of ``spec.at_once`` limits the open requests
_ANTHROPIC_FINISH: dict[str | None, Literal["stop", "length", "refusal"]] = {
    "max_tokens": "length",
    "refusal": "refusal",
}


@dataclass(frozen=True)
class _Attempt:
    """The end of an attempt: an answer, or an error to raise. With a ``problem``, which may pass, there is another
    attempt, after ``wait`` seconds where the server asks for that; ``outcome`` is for the bill."""

    result: Completion | ModelFailure | None
    outcome: Outcome
    problem: str = ""
    wait: float | None = None


class ServedModel(Model):
    """A model behind ``spec.address``, through the package ``package``.

    A key is read from the first environment variable of ``keys`` when a request is sent, and stored nowhere. The entry
    of the model names those variables, so that no provider gets another's key. Time-outs, lost connections, empty
    answers, 429 and 5xx are tried again, after the time that the server asks for (``Retry-After``); an answer that
    stays empty is returned. Redirects are not followed. Proxies serve only open cases on other machines.
    """

    package: ClassVar[str]
    key_names: ClassVar[tuple[str, ...]]
    takes_tokens: ClassVar[bool] = False

    def __init__(self, spec: ModelSpec, tokenizer: ChatTokenizer | None = None) -> None:
        assert spec.address is not None
        self.tokenizer = tokenizer if self.takes_tokens else None
        self.spec, self.address = spec, spec.address
        self.keys = spec.entry.key_names if spec.entry else self.key_names
        self._label = f"model {spec.name!r} at {host_of(self.address)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        try:
            self._sdk = importlib.import_module(self.package)
        except ModuleNotFoundError:
            raise SettingsError(
                f"{self._label}: the package `{self.package}` is not installed: pip install {self.package}"
            ) from None
        self._spending = Spending.of(spec, self._label)
        # Its detailed log would quote questions, even if the environment asks for it.
        logging.getLogger(self.package).setLevel(logging.WARNING)

    def __repr__(self) -> str:
        return f"<{self._label}>"

    @abstractmethod
    def client(self, connection: httpx2.AsyncClient) -> Any:
        """The package's client over ``connection``, without retries and keys of its own."""

    async def _all(
        self,
        samples: Sequence[int],
        ask: Callable[[Any, int], Awaitable[Any]],
        read: Callable[[Any], Completion],
        most_tokens: tuple[int, int],
    ) -> list[Completion]:
        """The answers to ``ask(client, k)`` for every sample k, parsed by ``read``. ``most_tokens``: upper bounds of
        the prompt and of an answer."""
        calls = (self._one(lambda client, k=k: ask(client, k), read, most_tokens) for k in samples)
        return list(await asyncio.gather(*calls))

    async def _one(
        self, ask: Callable[[Any], Awaitable[Any]], read: Callable[[Any], Completion], most_tokens: tuple[int, int]
    ) -> Completion:
        self.spec.check()
        client, gate = self._connected()
        last = _Attempt(None, "free", "no attempt")
        async with gate:
            for number in range(self.spec.retries + 1):
                if number:
                    await asyncio.sleep(self._pause(number, last))
                if self.spec.server:
                    self.spec.server.ready()  # blocks: no other request can be served before either
                bill = await self._spending.reserve(*most_tokens) if self._spending else None
                last = await self._attempt(client, ask, read)
                if self._spending and bill is not None:
                    self._spending.book(bill, last.outcome)
                if isinstance(last.result, ModelFailure):
                    raise last.result
                if last.result and not last.problem:
                    return last.result
        if last.result:  # an answer that stays empty
            return last.result
        raise ModelUnavailable(
            f"{self._label}: {last.problem}, {self.spec.retries + 1} times; see whether the server is well"
        )

    def _pause(self, number: int, last: _Attempt) -> float:
        """Seconds before attempt ``number``: as the server asks, or doubled every time. Raises ModelUnavailable where
        the server asks for too long."""
        if last.wait is None:
            return min(self.spec.pause * 2 ** (number - 1), _LONGEST_PAUSE)
        if last.wait > _LONGEST_WAIT:
            raise ModelUnavailable(
                f"{self._label}: {last.problem}, and the server asks to wait {last.wait:.0f} seconds; start again "
                "then: answers so far are kept"
            )
        return max(last.wait, self.spec.pause)

    async def _attempt(
        self, client: Any, ask: Callable[[Any], Awaitable[Any]], read: Callable[[Any], Completion]
    ) -> _Attempt:
        """One attempt. It returns errors: raised here, they would carry the package's error as their context, which may
        quote the question."""
        sdk, failure = self._sdk, ModelFailure
        try:
            async with asyncio.timeout(self.spec.timeout):  # of the whole answer: a server may also drip
                answer = await ask(client)
        except TimeoutError:
            return _Attempt(None, "unknown", f"no answer within {self.spec.timeout:g} seconds")
        except sdk.APIConnectionError as error:
            cause = error.__cause__
            is_sent = not isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout))
            return _Attempt(None, "unknown" if is_sent else "free", f"no connection ({type(cause).__name__})")
        except sdk.APIStatusError as error:
            status, wait = error.status_code, _retry_after(error.response)
            is_too_long = status == 413 or (status in _BAD_REQUEST and bool(_TOO_LONG.search(str(error.body))))
        except (sdk.APIError, ValueError, RecursionError):
            return _Attempt(failure(f"{self._label}: what came back is no JSON"), "unknown")
        else:
            try:
                completion = read(answer)
            except (AttributeError, LookupError, TypeError):
                return _Attempt(failure(f"{self._label}: what came back has not the form of an answer"), "unknown")
            # Behind a prompt of tokens an immediate end is a draw like any other.
            is_empty = completion.finish_reason == "stop" and not completion.token_ids and not completion.text.strip()
            return _Attempt(completion, completion.usage or "unknown", "an empty answer" if is_empty else "")
        if is_too_long:
            return _Attempt(UNREAD, "free")
        if status in _BAD_REQUEST:
            return _Attempt(failure(f"{self._label}: status {status}, the server does not accept the request"), "free")
        if status == 429 or status >= 500:
            return _Attempt(None, "free", f"status {status}", wait)
        advice = f"check address, model name and key ({self.keys[0]})"
        return _Attempt(ModelUnavailable(f"{self._label}: status {status}; {advice}"), "free")

    def _connected(self) -> tuple[Any, asyncio.Semaphore]:
        """One connection pool for all requests of an event loop; a pool for each would cost more than the request."""
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
        request.headers.pop("Authorization", None)  # the package's placeholder
        names = () if self.spec.server else self.keys  # an own server needs no key
        key = next((os.environ[name] for name in names if os.environ.get(name)), None)
        if key:
            request.headers["Authorization"] = f"Bearer {key}"
        return request


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds that a server asks to wait; None where it asks for none, or in an unknown form."""
    value = response.headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(ValueError, TypeError):
        date = parsedate_to_datetime(value)
        return max(0.0, (date - datetime.now(date.tzinfo or UTC)).total_seconds())
    return None


class OpenAIServer(ServedModel):
    """Answers messages; with a ``tokenizer`` also prompts of token ids, as vLLM serves them.

    Token prompts ask for token ids (``return_token_ids``, vLLM 0.10.2 and later); from a server without them the text
    is tokenised, possibly into other tokens than the sampled ones. No log-probabilities: replies are not trained on.
    """

    package = "openai"
    key_names = ("CDPR_API_KEY", "OPENAI_API_KEY")
    takes_tokens = True

    def client(self, connection: httpx2.AsyncClient) -> Any:
        url = "http://localhost/v1" if unix_socket(self.address) else self.address
        return self._sdk.AsyncOpenAI(
            api_key="unused", base_url=url, http_client=connection, max_retries=0, timeout=None
        )

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        if self.tokenizer is None:
            return await super().sample(prompt_ids, samples, sampling, seed)
        # In `extra_body`, which the package sends as it is; it would look at every token of `prompt`.
        extra = {"prompt": list(prompt_ids), "top_k": sampling.top_k or -1, "return_token_ids": True}

        def ask(client: Any, k: int) -> Awaitable[Any]:
            return client.completions.create(
                model=self.spec.name,
                prompt="",
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=derive_seed(seed, k),
                extra_body=extra,
            )

        completions = await self._all(samples, ask, self._continuation, (len(prompt_ids), sampling.max_tokens))
        if UNREAD in completions:  # no draw of the policy
            raise ModelFailure(f"{self._label}: the prompt exceeds what the server reads")
        return completions

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        entry = self.spec.entry
        provider = PROVIDERS[entry.provider if entry else "own"]
        extra = {"top_k": sampling.top_k} if sampling.top_k else {}
        extra |= entry.extra if entry else {}
        fields: dict[str, Any] = {provider.limit: sampling.max_tokens, "temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        fields |= {"extra_body": extra} if extra else {}

        def ask(client: Any, k: int) -> Awaitable[Any]:
            seeds = {"seed": derive_seed(seed, k)} if provider.seeds else {}
            turns = [dict(message) for message in messages]
            return client.chat.completions.create(model=self.spec.name, messages=turns, **fields, **seeds)

        return await self._all(samples, ask, _openai_answer, (worst_case(messages), sampling.max_tokens))

    def _continuation(self, answer: Any) -> Completion:
        choice, tokenizer = answer.choices[0], self.tokenizer
        assert tokenizer is not None
        ids, is_stop = getattr(choice, "token_ids", None), choice.finish_reason == "stop"
        if ids is None:
            text = _text(choice.text)
            ids = tokenizer.encode(text) + [tokenizer.end_of_turn] * is_stop
        elif isinstance(ids, list) and all(isinstance(i, int) for i in ids):
            text = tokenizer.decode(ids)
        else:
            raise TypeError("token ids are no numbers")
        return Completion(text, tuple(ids), (), "stop" if is_stop else "length", _usage(answer))


def _openai_answer(answer: Any) -> Completion:
    choice = answer.choices[0]
    text, refusal = choice.message.content, getattr(choice.message, "refusal", None)
    finish: Literal["stop", "length", "refusal"] = "length" if choice.finish_reason == "length" else "stop"
    if refusal or choice.finish_reason == "content_filter":
        text, finish = text or refusal or "", "refusal"
    elif text is None and choice.finish_reason in ("stop", "length"):  # only thoughts, which the server keeps apart
        text = ""
    return Completion(_text(text), (), (), finish, _usage(answer), getattr(answer, "model", None))


def _usage(answer: Any) -> Usage | None:
    """Google counts thoughts, which it charges, in the sum only, not in the completion's tokens."""
    usage = getattr(answer, "usage", None)
    if usage is None:
        return None
    prompt, completion = int(usage.prompt_tokens), int(usage.completion_tokens)
    return Usage(prompt, max(completion, int(getattr(usage, "total_tokens", None) or 0) - prompt))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("the answer is no text")
    return value


class AnthropicServer(ServedModel):
    """Answers messages through Anthropic's own API. It takes neither temperature nor seed (since its version of
    2026-10-21): of ``sampling`` only ``max_tokens`` counts, and answers cannot be repeated."""

    package = "anthropic"
    key_names = ("CDPR_API_KEY", "ANTHROPIC_API_KEY")

    def client(self, connection: httpx2.AsyncClient) -> Any:
        return self._sdk.AsyncAnthropic(
            api_key="unused",
            base_url=self.address,
            http_client=connection,
            max_retries=0,
            timeout=self.spec.timeout,
            open_telemetry=False,
        )

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        fields: dict[str, Any] = {"system": system} if system else {}
        fields |= {"extra_body": self.spec.entry.extra} if self.spec.entry and self.spec.entry.extra else {}
        turns = [dict(m) for m in messages if m["role"] != "system"]

        def ask(client: Any, k: int) -> Awaitable[Any]:
            return client.messages.create(
                model=self.spec.name, messages=turns, max_tokens=sampling.max_tokens, **fields
            )

        return await self._all(samples, ask, _anthropic_answer, (worst_case(messages), sampling.max_tokens))


def _anthropic_answer(answer: Any) -> Completion:
    text = "".join(block.text for block in answer.content if block.type == "text")
    counts = getattr(answer, "usage", None)
    usage = Usage(counts.input_tokens, counts.output_tokens) if counts is not None else None
    finish = _ANTHROPIC_FINISH.get(answer.stop_reason, "stop")
    return Completion(text, (), (), finish, usage, getattr(answer, "model", None))
