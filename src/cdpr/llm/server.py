"""What models behind an address share: the guard, the key, time-out and further tries, and errors that quote nothing.

The official clients (``openai``, ``anthropic``) send the requests; connection, key and tries are ours, because
credentialed text goes straight to the host that was asked about, or nowhere.
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

_THIS_REQUEST = (400, 413, 422)  # what a server answers to a request that it cannot serve; others it may
# What they say where it exceeds what the model reads: OpenAI, DeepSeek and vLLM; llama.cpp; SGLang; Google; Anthropic.
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum (?:context|model) length|exceed_context_size_error|model's (?:maximum )?context "
    r"length|input token count \(?\d+\)? exceeds|prompt is too long", re.IGNORECASE
)  # fmt: skip
_LONGEST_PAUSE = 30.0  # seconds
_LONGEST_WAIT = 120.0  # seconds that a server may ask for (Retry-After)
_UNLIMITED = httpx2.Limits()  # how many requests are open at a time is for the spec to say


@dataclass(frozen=True)
class _Trouble:
    """What may pass, and how many seconds the server asks to wait for that."""

    what: str
    wait: float | None = None
    answer: Completion | None = None  # what counts if it does not pass


class ServedModel(Model):
    """A model behind ``spec.address``, asked through the package ``package``.

    A key is read from the first of ``keys`` that the environment sets, when a request is sent, and kept nowhere; those
    are the names that the model's entry gives, so that no provider sees another's, or ``key_names``.
    Time-outs, lost connections, empty answers, 429 and 5xx are tried again, after the time that the server asks for
    (``Retry-After``) where it does; an answer that stays empty is given as it is. What attempts cost is told to
    :mod:`.spending`. Redirects are not followed. Proxies of the environment serve only open cases on other machines.
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
        self._spending = Spending.of(spec, self._called)
        # In detail its logger would quote questions, whatever the environment asks it to log.
        logging.getLogger(self.package).setLevel(logging.WARNING)

    def __repr__(self) -> str:
        return f"<{self._called}>"

    @abstractmethod
    def client(self, connection: httpx2.AsyncClient) -> Any:
        """The package's client over ``connection``, which neither tries again nor adds a key of its own."""

    async def _all(
        self,
        samples: Sequence[int],
        ask: Callable[[Any, int], Awaitable[Any]],
        read: Callable[[Any], Completion],
        most: tuple[int, int],
    ) -> list[Completion]:
        """The answers to ``ask(client, k)`` for every sample k, as ``read`` understands them. ``most``: tokens of the
        prompt and of an answer, from above."""
        asked = (self._one(lambda client, k=k: ask(client, k), read, most) for k in samples)
        return list(await asyncio.gather(*asked))

    async def _one(
        self, ask: Callable[[Any], Awaitable[Any]], read: Callable[[Any], Completion], most: tuple[int, int]
    ) -> Completion:
        self.spec.check()
        client, gate = self._connected()
        trouble = _Trouble("not asked")
        async with gate:
            for attempt in range(self.spec.retries + 1):
                if attempt:
                    await asyncio.sleep(self._pause(attempt, trouble))
                if self.spec.server:
                    self.spec.server.ready()  # nothing else can go on before it is
                bill = await self._spending.reserve(*most) if self._spending else None
                found, outcome = await self._try(client, ask, read)
                if self._spending and bill is not None:
                    self._spending.book(bill, outcome)
                if isinstance(found, Completion):
                    return found
                if isinstance(found, ModelFailure):
                    raise found
                trouble = found
        if trouble.answer:  # a model that has nothing to say has said so: it is for who asked to count it
            return trouble.answer
        raise ModelUnavailable(
            f"{self._called}: {trouble.what}, {self.spec.retries + 1} times; see whether the server is well"
        )

    def _pause(self, attempt: int, trouble: _Trouble) -> float:
        """Seconds before the next attempt: what the server asks for, or twice as long every time. Raises
        ModelUnavailable where it asks for longer than is worth waiting."""
        if trouble.wait is None:
            return min(self.spec.pause * 2 ** (attempt - 1), _LONGEST_PAUSE)
        if trouble.wait > _LONGEST_WAIT:
            raise ModelUnavailable(
                f"{self._called}: {trouble.what}, and the server asks to wait {trouble.wait:.0f} seconds; start again "
                "then: what was answered is kept"
            )
        return max(trouble.wait, self.spec.pause)

    async def _try(
        self, client: Any, ask: Callable[[Any], Awaitable[Any]], read: Callable[[Any], Completion]
    ) -> tuple[Completion | ModelFailure | _Trouble, Outcome]:
        """The answer, or why there is none: an error to raise, or trouble that may pass; and what is known of the
        bill. What is raised here would drag along the package's error, which holds what the server said, and that may
        quote the question."""
        sdk = self._sdk
        try:
            async with asyncio.timeout(self.spec.timeout):  # of all of it: a server may also drip
                answer = await ask(client)
        except TimeoutError:
            return _Trouble(f"no answer within {self.spec.timeout:g} seconds"), "unknown"
        except sdk.APIConnectionError as error:
            cause = error.__cause__
            sent = not isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout))
            return _Trouble(f"no connection ({type(cause).__name__})"), "unknown" if sent else "free"
        except sdk.APIStatusError as error:
            status, wait = error.status_code, _retry_after(error.response)
            if status == 413 or (status in _THIS_REQUEST and _TOO_LONG.search(str(error.body))):
                return UNREAD, "free"
        except (sdk.APIError, ValueError, RecursionError):  # of what is no JSON
            return ModelFailure(f"{self._called}: what came back is no JSON"), "unknown"
        else:
            try:
                found = read(answer)
            except (AttributeError, LookupError, TypeError):
                return ModelFailure(f"{self._called}: what came back has not the form of an answer"), "unknown"
            # Of a prompt of tokens an immediate end is a draw like any other.
            if found.finish_reason == "stop" and not found.token_ids and not found.text.strip():
                return _Trouble("an empty answer", answer=found), found.usage or "unknown"
            return found, found.usage or "unknown"
        if status in _THIS_REQUEST:
            return ModelFailure(f"{self._called}: status {status}, the server does not accept the request"), "free"
        if status == 429 or status >= 500:
            return _Trouble(f"status {status}", wait), "free"
        return ModelUnavailable(
            f"{self._called}: status {status}; check address, model name and key ({self.keys[0]})"
        ), "free"

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
        asked_for = () if self.spec.server else self.keys  # a server of one's own asks for none
        key = next((os.environ[name] for name in asked_for if os.environ.get(name)), None)
        if key:
            request.headers["Authorization"] = f"Bearer {key}"
        return request


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds that a server asks to wait; None where it asks for none, or in no form that is known."""
    told = response.headers.get("retry-after", "").strip()
    with contextlib.suppress(ValueError):
        return max(0.0, float(told))
    with contextlib.suppress(ValueError, TypeError):
        then = parsedate_to_datetime(told)
        return max(0.0, (then - datetime.now(then.tzinfo or UTC)).total_seconds())
    return None


class OpenAIServer(ServedModel):
    """Answers messages; with a ``tokenizer`` also prompts of token ids, as vLLM serves them.

    For those the server is asked for token ids (``return_token_ids``, vLLM 0.10.2 and later); where it gives none, the
    text is tokenised, which may split it otherwise than it was sampled. Log-probabilities are not asked for: nobody
    trains on these replies.
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
        # Below `extra_body`, where the package sends it as it is: of `prompt` it would look at every token.
        extra = {"prompt": list(prompt_ids), "top_k": sampling.top_k or -1, "return_token_ids": True}
        drawn = await self._all(
            samples,
            lambda client, k: client.completions.create(
                model=self.spec.name, prompt="", max_tokens=sampling.max_tokens,
                temperature=sampling.temperature, top_p=sampling.top_p, seed=derive_seed(seed, k), extra_body=extra,
            ),
            self._continuation, (len(prompt_ids), sampling.max_tokens),
        )  # fmt: skip
        if UNREAD in drawn:  # no draw of the policy
            raise ModelFailure(f"{self._called}: the prompt exceeds what the server reads")
        return drawn

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        asked, seeded = self._asked(sampling)
        return await self._all(
            samples,
            lambda client, k: client.chat.completions.create(
                model=self.spec.name, messages=[dict(m) for m in messages], **asked,
                **({"seed": derive_seed(seed, k)} if seeded else {}),
            ),
            _openai_answer, (worst_case(messages), sampling.max_tokens),
        )  # fmt: skip

    def _asked(self, sampling: Sampling) -> tuple[dict[str, Any], bool]:
        """The fields of a request beside its messages, in the provider's words, and whether it may name a seed."""
        entry, extra = self.spec.entry, {"top_k": sampling.top_k} if sampling.top_k else {}
        provider = PROVIDERS[entry.provider if entry else "own"]
        extra |= entry.extra if entry else {}
        asked = {provider.limit: sampling.max_tokens, "temperature": sampling.temperature}
        asked |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        return asked | ({"extra_body": extra} if extra else {}), provider.seeds

    def _continuation(self, answer: Any) -> Completion:
        choice, tokenizer = answer.choices[0], self.tokenizer
        assert tokenizer is not None
        ids, stopped = getattr(choice, "token_ids", None), choice.finish_reason == "stop"
        if ids is None:
            text = _text(choice.text)
            ids = tokenizer.encode(text) + [tokenizer.end_of_turn] * stopped
        elif isinstance(ids, list) and all(isinstance(i, int) for i in ids):
            text = tokenizer.decode(ids)
        else:
            raise TypeError("token ids are no numbers")
        return Completion(text, tuple(ids), (), "stop" if stopped else "length", _usage(answer))


def _openai_answer(answer: Any) -> Completion:
    choice = answer.choices[0]
    said, refused = choice.message.content, getattr(choice.message, "refusal", None)
    told = _usage(answer), getattr(answer, "model", None)
    if refused or choice.finish_reason == "content_filter":
        return Completion(_text(said or refused or ""), (), (), "refusal", *told)
    if said is None and choice.finish_reason in ("stop", "length"):  # thoughts that the server keeps apart were all
        said = ""
    return Completion(_text(said), (), (), "length" if choice.finish_reason == "length" else "stop", *told)


def _usage(answer: Any) -> Usage | None:
    """What was counted. Google leaves thoughts, which it charges, out of the completion's tokens, not of the sum."""
    told = getattr(answer, "usage", None)
    if told is None:
        return None
    prompt, completion = int(told.prompt_tokens), int(told.completion_tokens)
    return Usage(prompt, max(completion, int(getattr(told, "total_tokens", None) or 0) - prompt))


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError("the answer is no text")
    return found


_FINISH: dict[str | None, Literal["stop", "length", "refusal"]] = {"max_tokens": "length", "refusal": "refusal"}


class AnthropicServer(ServedModel):
    """Answers messages. The API takes neither temperature nor seed (since its version of 2026-10-21): of ``sampling``
    only ``max_tokens`` counts, and answers cannot be repeated."""

    package = "anthropic"
    key_names = ("CDPR_API_KEY", "ANTHROPIC_API_KEY")

    def client(self, connection: httpx2.AsyncClient) -> Any:
        return self._sdk.AsyncAnthropic(
            api_key="unused",
            base_url=self.address,
            http_client=connection,
            max_retries=0,
            timeout=self.spec.timeout,
            open_telemetry=False,  # nobody else is told of a request
        )

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        told: dict[str, Any] = {"system": system} if system else {}
        told |= {"extra_body": self.spec.entry.extra} if self.spec.entry and self.spec.entry.extra else {}
        turns = [dict(m) for m in messages if m["role"] != "system"]
        return await self._all(
            samples,
            lambda client, k: client.messages.create(
                model=self.spec.name, messages=turns, max_tokens=sampling.max_tokens, **told
            ),
            _anthropic_answer,
            (worst_case(messages), sampling.max_tokens),
        )


def _anthropic_answer(answer: Any) -> Completion:
    text = "".join(block.text for block in answer.content if block.type == "text")
    told = getattr(answer, "usage", None)
    usage = Usage(told.input_tokens, told.output_tokens) if told is not None else None
    return Completion(text, (), (), _FINISH.get(answer.stop_reason, "stop"), usage, getattr(answer, "model", None))
