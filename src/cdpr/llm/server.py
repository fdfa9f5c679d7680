"""Models behind an address: the guard, the key, time-outs and retries, and errors that quote nothing.

The official clients (``openai``, ``anthropic``) send the requests; connection, key and retries are ours, so that
credentialed text goes to the checked host only.

What an answer or an error means is decided by its structure: the ending, the status, the names in an error. A refusal
without a known name is checked by an experiment: the same request with harmless words. If the server answers that one,
the conversation itself is the cause and costs one reply; otherwise the request is wrong, or the server is ill.
"""

import asyncio
import importlib
import itertools
import logging
import os
import re
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Literal, NamedTuple

import httpx2

from ..seeding import derive_seed
from ..settings import SettingsError
from ..settings.models import PROVIDERS
from .agent_model import running
from .guard import host_of, is_local, unix_socket
from .spec import ModelSpec
from .spending import Outcome, Spending, worst_case
from .tokenizer import ChatTokenizer
from .types import (
    CASE,
    FAILED,
    REFUSED,
    UNREAD,
    Completion,
    Messages,
    Model,
    ModelFailure,
    ModelUnavailable,
    Sampling,
    Usage,
    clean_text,
    score_of,
)

# How an answer ended; every other word is no whole answer. tests/unit/test_providers.py names the sources.
_ENDINGS: dict[str, Literal["stop", "length", "refusal"]] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "content_filtered", "refusal", "sensitive", "guardrail_intervened", "safety",
                     "recitation", "language", "blocklist", "prohibited_content", "spii"), "refusal"),
}  # fmt: skip
_OWN_FAULT = (400, 403, 422, 451)  # what such a status refuses may be this conversation alone
_PASSING = (408, 409, 425, 429)  # and everything from 500 on
# Names (code, type, parameter) in errors.
_NAMES = ("code", "type", "param", "status", "error_code", "reason")
_IS_MONEY = re.compile(r"(insufficient|current)_(quota|balance|credit|fund)|credit_balance|billing|spend_limit|arrear")
_IS_TOO_LONG = re.compile(r"context_(length|size|window)|request_too_large|^input_tokens$|string_|token_limit")
_IS_REFUSAL = re.compile(r"content_(filter|policy)|^responsibleai|^invalid_prompt|inspection_?failed|^safety|^refusal")
# These errors have no name of their own: exhausted credit (Anthropic), refused content (DeepSeek, OpenRouter), and a
# conversation that is too long (vLLM, SGLang, Google, Anthropic). Other words cost one more request.
_SAYS_MONEY = re.compile(r"credit balance is too low|reached your specified api usage limits", re.IGNORECASE)
_SAYS_REFUSAL = re.compile(r"content exists risk|'flagged_input'", re.IGNORECASE)
_SAYS_TOO_LONG = re.compile(
    r"maximum (?:context|model) length|model's (?:maximum )?context length|input token count \(?\d+\)? exceeds|"
    r"prompt is too long",
    re.IGNORECASE,
)
_FIELDS = ("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "reasoning_effort")
_SILENT_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reference"})  # of a content in parts
_LONGEST_PAUSE = 30.0  # seconds between attempts
_LONGEST_WAIT = 120.0  # seconds that a server may ask for (Retry-After)
_SILENCE = 60.0  # seconds without an answer to any request, after which the log says what is waited for
_log = logging.getLogger(__name__)


class _Attempt(NamedTuple):
    """The end of an attempt: an answer, or an error to raise; ``outcome`` is for the bill. With ``again`` another
    attempt may help, after at least ``wait`` seconds; ``late``: no answer came in time. ``own``: the conversation
    itself may be the cause."""

    result: Completion | ModelFailure
    outcome: Outcome
    again: bool = False
    wait: float = 0.0
    late: bool = False
    own: bool = False


class _Unfinished(Exception):
    """An answer with another ending than those of :data:`_ENDINGS`."""


class ServedModel(Model):
    """A model behind ``spec.address``, through the package ``package``.

    A key is read from the first environment variable of ``keys`` when a request is sent, and stored nowhere. The entry
    of the model names those variables, so that no provider gets another's key. Lost connections, answers that are
    empty, unfinished or in another form, 408, 409, 425, 429 and 5xx are tried again, as the official clients do, not
    before the time that the server asks for (``Retry-After``); an answer that stays empty is returned. A request
    without an answer in time is tried once more, and only if the server has answered others since: otherwise it hangs.
    Redirects are not followed. Proxies serve only open cases on other machines.
    """

    package: ClassVar[str]
    key_names: ClassVar[tuple[str, ...]]

    def __init__(self, spec: ModelSpec, tokenizer: ChatTokenizer | None = None) -> None:
        self.spec, self.address, self.tokenizer = spec, spec.address, tokenizer
        self.keys = spec.entry.key_names if spec.entry else self.key_names
        self._label = f"model {spec.name!r} at {host_of(self.address)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._answered, self._is_silent = 0.0, False
        self._ranks: dict[str, int] = {}  # of cases: the server's replica that answers
        self._problems: set[str] = set()
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
        control: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> list[Completion]:
        """The answers to ``ask(client, k)`` for every sample k. ``read`` parses and checks one: AttributeError,
        LookupError or TypeError for another form. ``most_tokens``: bounds of prompt and answer. ``control``: the
        request with harmless words; with its answer :data:`FAILED` replaces an error."""
        self.spec.check()
        client, gate = self._connected()

        async def one(k: int) -> Completion:
            async with gate:
                last = await self._tries(lambda: ask(client, k), read, most_tokens, self.spec.retries)
                if control and last.own and isinstance(last.result, ModelFailure):
                    retries = 0 if last.again else self.spec.retries
                    harmless = await self._tries(lambda: control(client), read, most_tokens, retries)
                    if isinstance(harmless.result, Completion):
                        return FAILED
            if isinstance(last.result, ModelFailure):
                raise last.result
            return last.result

        return list(await asyncio.gather(*map(one, samples)))

    async def _tries(
        self,
        ask: Callable[[], Awaitable[Any]],
        read: Callable[[Any], Completion],
        most_tokens: tuple[int, int],
        retries: int,
    ) -> _Attempt:
        """The last of at most ``retries`` + 1 attempts."""
        begun, late = time.monotonic(), 0
        for number in range(retries + 1):
            if self.spec.server:
                self.spec.server.ready()  # blocks: no other request can be served before either
            bill = await self._spending.reserve(*most_tokens) if self._spending else None
            last = await self._attempt(ask(), read)
            if self._spending and bill is not None:
                self._spending.book(bill, last.outcome)
            late += last.late
            if not last.again or number == retries or late > (self._answered > begun):
                break
            running().retries += 1
            await asyncio.sleep(max(last.wait, min(self.spec.pause * 2**number, _LONGEST_PAUSE)))
        return last

    async def _attempt(self, request: Awaitable[Any], read: Callable[[Any], Completion]) -> _Attempt:
        """One attempt. Returns errors: raised here, they would have the package's error as context, which may quote."""
        notice = asyncio.get_running_loop().call_later(_SILENCE, self._say_silent, time.monotonic())
        try:
            async with asyncio.timeout(self.spec.timeout):  # of the whole answer: a server may also drip
                answer = await request
        except TimeoutError:
            advice = "it hangs, or is too slow; see to the server, then start again: answers so far are kept"
            error = ModelUnavailable(f"{self._label}: no answer within {self.spec.timeout:g} seconds; {advice}")
            return _Attempt(error, "unknown", again=True, late=True)
        except self._sdk.APIConnectionError as error:
            cause = error.__cause__
            is_sent = not isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout))
            return self._trouble(f"no connection ({type(cause).__name__})", "unknown" if is_sent else "free")
        except self._sdk.APIStatusError as error:
            return self._refused(error.status_code, error.body, error.response.headers)
        except (self._sdk.APIError, ValueError, RecursionError):
            return self._trouble("what came back is no JSON", "unknown", own=True)
        finally:
            notice.cancel()
        try:
            if error := _error_in(answer):  # in place of an answer, with status 200
                code = error.get("code") if isinstance(error, Mapping) else None
                status = int(code) if re.fullmatch(r"[45]\d\d", str(code)) else 500
                return self._refused(status, error, {})._replace(outcome="unknown")
            completion = read(answer)
        except _Unfinished as error:
            return self._trouble(f"the answer ended with {error} as its reason", _usage(answer) or "unknown", own=True)
        except (AttributeError, LookupError, TypeError):
            return self._trouble("what came back has not the form of an answer", "unknown", own=True)
        self._answered = time.monotonic()
        if self._is_silent:
            self._is_silent = False
            _log.warning("%s: answers again", self._label)
        # Behind a prompt of tokens an immediate end is a draw like any other.
        is_empty = not completion.token_ids and not completion.is_answer
        return _Attempt(completion, completion.usage or "unknown", again=is_empty)

    def _say_silent(self, begun: float) -> None:
        if not self._is_silent and self._answered < begun:
            self._is_silent = True
            _log.warning("%s: waiting for an answer, at most %g seconds", self._label, self.spec.timeout)

    def _refused(self, status: int, body: Any, headers: Mapping[str, str]) -> _Attempt:
        """An attempt that ends with an error: its status, what the server says of it, and the headers."""
        names, words, problem = list(_names(body)), str(body), f"status {status}"
        if status == 402 or any(map(_IS_MONEY.search, names)) or _SAYS_MONEY.search(words):
            advice = "the account has no money left, or reached its limit; answers so far are kept"
            return _Attempt(ModelUnavailable(f"{self._label}: {problem}; {advice}"), "free")
        is_own = status in (*_OWN_FAULT, 413)
        if status == 413 or any(map(_IS_TOO_LONG.search, names)) or (is_own and _SAYS_TOO_LONG.search(words)):
            return _Attempt(UNREAD, "free")
        if any(map(_IS_REFUSAL.search, names)) or (is_own and _SAYS_REFUSAL.search(words)):
            return _Attempt(REFUSED, "free")
        hint = headers.get("x-should-retry")
        if hint == "true" or (hint != "false" and (status in _PASSING or status >= 500)):
            seconds = _seconds(headers)
            if seconds <= _LONGEST_WAIT:
                return self._trouble(problem, "free", seconds, own=status in (500, 502))
            advice = f"the server asks to wait {seconds:.0f} seconds; start again then: answers so far are kept"
            return _Attempt(ModelUnavailable(f"{self._label}: {problem}, and {advice}"), "free")
        if status in (400, 422):
            named = [field for field in _FIELDS if re.search(rf"['\"`]{field}['\"`]", words)]
            why = f"; it names {', '.join(named)}, see `sampling` and `extra` of the model's entry" if named else ""
            error = ModelFailure(f"{self._label}: {problem}, the server does not accept the request{why}")
        else:
            advice = f"check address, model name and key ({self.keys[0]})"
            error = ModelUnavailable(f"{self._label}: {problem}; {advice}")
        return _Attempt(error, "free", own=is_own)

    def _trouble(self, problem: str, outcome: Outcome, wait: float = 0.0, own: bool = False) -> _Attempt:
        """An attempt with a problem that may pass, and the error if it does not."""
        if problem not in self._problems:
            self._problems.add(problem)
            _log.warning("%s: %s; trying again (said once)", self._label, problem)
        times = self.spec.retries + 1
        error = ModelUnavailable(f"{self._label}: {problem}, {times} times; see whether the server is well")
        return _Attempt(error, outcome, again=True, wait=wait, own=own)

    def _connected(self) -> tuple[Any, asyncio.Semaphore]:
        """One connection pool for all requests of an event loop; a pool for each would cost more than the request."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            socket, unlimited = unix_socket(self.address), httpx2.Limits()  # the semaphore limits open requests
            connection = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(uds=socket, limits=unlimited) if socket else None,
                limits=unlimited,
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


class OpenAIServer(ServedModel):
    """Answers messages; with a ``tokenizer`` also prompts of token ids, as vLLM serves them.

    Reply k to a token prompt is a function of prompt, seed and k, also where one request asks for several successive k.
    Token prompts ask for token ids (``return_token_ids``, vLLM 0.10.2 and later); from a server without them the text
    is tokenised, possibly into other tokens than the sampled ones. No log-probabilities: replies are not trained on.
    """

    package = "openai"
    key_names = ("CDPR_API_KEY", "OPENAI_API_KEY")

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
        fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p, "extra_body": extra} | ({"stop": ["\n"]} if sampling.first_line else {})
        if self.spec.replicas > 1:  # one replica reads all prompts of a case; cases take turns
            rank = self._ranks.setdefault(CASE.get(), len(self._ranks) % self.spec.replicas)
            fields["extra_headers"] = {"X-data-parallel-rank": str(rank)}
        base = derive_seed(seed, 0)

        async def together(numbers: Sequence[int]) -> list[Completion]:
            """One request: vLLM draws reply i of it with the seed + i, and reads the prompt once."""
            several = {"n": len(numbers)} if len(numbers) > 1 else {}
            completions: list[Completion] = []

            def ask(client: Any, _: int) -> Awaitable[Any]:
                own = {"seed": (base + numbers[0]) % 2**63}
                return client.completions.create(model=self.spec.name, prompt="", **fields, **own, **several)

            def read(answer: Any) -> Completion:
                completions[:] = self._continuations(answer, len(numbers))
                return min(completions, key=lambda completion: len(completion.token_ids))

            bounds = len(prompt_ids), len(numbers) * sampling.max_tokens
            self._drawn(await self._all((0,), ask, read, bounds))
            return self._drawn(completions)

        requests = [(k,) for k in samples] if sampling.temperature == 0 else successive(samples)
        return [one for several in await asyncio.gather(*map(together, requests)) for one in several]

    async def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        if self.tokenizer is None:
            return await super().score(prompt_ids, continuations)

        def ask(client: Any, k: int) -> Awaitable[Any]:
            extra = {"prompt": [*prompt_ids, *continuations[k]], "prompt_logprobs": 0}  # of the prompt's own tokens
            return client.completions.create(model=self.spec.name, prompt="", max_tokens=1, extra_body=extra)

        most = len(prompt_ids) + max(map(len, continuations), default=0)
        whole = self._drawn(await self._all(range(len(continuations)), ask, _prompt_logprobs, (most, 1)))
        pairs = zip(whole, continuations, strict=True)
        return [score_of(given, len(prompt_ids), rows.token_ids, rows.logprobs) for rows, given in pairs]

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        entry = self.spec.entry
        provider = PROVIDERS[entry.provider if entry else "own"]
        extra = {"top_k": sampling.top_k} if sampling.top_k else {}
        extra |= entry.extra if entry else {}
        fields: dict[str, Any] = {provider.limit: sampling.max_tokens}
        fields |= {} if sampling.temperature is None else {"temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        fields |= {"extra_body": extra} if extra else {}

        def ask(client: Any, k: int, messages: Messages = messages) -> Awaitable[Any]:
            seeds = {"seed": derive_seed(seed, k)} if provider.seeds else {}
            turns = [dict(message) for message in messages]
            return client.chat.completions.create(model=self.spec.name, messages=turns, **fields, **seeds)

        most = worst_case(messages), sampling.max_tokens
        return await self._all(samples, ask, _openai_answer, most, lambda client: ask(client, 0, _harmless(messages)))

    def _drawn(self, completions: list[Completion]) -> list[Completion]:
        """The completions. Raises ModelFailure where one is no draw of the policy."""
        for completion in completions:
            if completion.finish_reason not in ("stop", "length"):
                what = "exceeds what the server reads" if completion is UNREAD else "was refused"
                raise ModelFailure(f"{self._label}: the prompt {what}")
        return completions

    def _continuations(self, answer: Any, count: int) -> list[Completion]:
        """The ``count`` completions of a prompt; the first has the usage of all."""
        choices = answer.choices
        if len(choices) != count:
            raise TypeError("not as many completions as requested")
        if count > 1:
            choices = sorted(choices, key=lambda choice: choice.index)
        return [self._continuation(choice, Usage(0, 0) if i else _usage(answer)) for i, choice in enumerate(choices)]

    def _continuation(self, choice: Any, usage: Usage | None) -> Completion:
        tokenizer = self.tokenizer
        ids, finish = getattr(choice, "token_ids", None), _ending(choice.finish_reason)
        if ids is None:
            text = _text(choice.text)
            ids = tokenizer.encode(text) + [tokenizer.end_of_turn] * (finish == "stop")
        elif isinstance(ids, list) and all(isinstance(i, int) for i in ids):
            text = tokenizer.decode(ids)
        else:
            raise TypeError("token ids are no numbers")
        return Completion(text, tuple(ids), (), finish, usage)


def successive(numbers: Sequence[int]) -> list[list[int]]:
    """The numbers in runs of successive ones, in their order."""
    runs = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    return [[k for _, k in run] for _, run in runs]


def _prompt_logprobs(answer: Any) -> Completion:
    """The prompt's tokens but the first with their log-probabilities, as vLLM gives them: {id: {"logprob": ..}}."""
    _ending(answer.choices[0].finish_reason)
    rows = [next(iter(token.items())) for token in answer.choices[0].prompt_logprobs[1:]]
    ids, logprobs = (int(token) for token, _ in rows), (float(row["logprob"]) for _, row in rows)
    return Completion("", tuple(ids), tuple(logprobs), "length", _usage(answer))


def _openai_answer(answer: Any) -> Completion:
    choice = answer.choices[0]
    refusal, finish = getattr(choice.message, "refusal", None), _ending(choice.finish_reason)
    if refusal or finish == "refusal":  # what a filter left of an answer is none
        return Completion(_text(refusal or ""), (), (), "refusal", _usage(answer), _model(answer))
    text = choice.message.content or ""  # none: only thoughts, which the server keeps apart
    return Completion(_text(text), (), (), finish, _usage(answer), _model(answer))


def _ending(reason: Any) -> Literal["stop", "length", "refusal"]:
    """How an answer ended, without the detail behind a colon. Raises :class:`_Unfinished` for any other word."""
    word = str(reason).casefold().partition(":")[0].strip()
    if word not in _ENDINGS:
        raise _Unfinished(repr(word) if re.fullmatch(r"[a-z_]{1,40}", word) else "an unknown word")
    return _ENDINGS[word]


def _error_in(answer: Any) -> Any:
    """The error that a gateway puts in the place of an answer, or beside what came of it."""
    choices = getattr(answer, "choices", None)
    return getattr(answer, "error", None) or (getattr(choices[0], "error", None) if choices else None)


def _names(body: Any) -> Iterator[str]:
    """The names in an error, at any depth, in lower case."""
    todo = [body]
    while todo:
        part = todo.pop()
        todo += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
        if isinstance(part, Mapping):
            yield from (str(part[key]).casefold() for key in _NAMES if isinstance(part.get(key), str))


def _seconds(headers: Mapping[str, str]) -> float:
    """The seconds that a server asks to wait; 0 where it does not say so, or in no known form."""
    wait, milliseconds = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    for text, unit in ((milliseconds, 1000), (wait, 1)):
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text) / unit
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
    except ValueError:
        return 0.0


_HARMLESS = "Hello."


def _harmless(messages: Messages) -> Messages:
    """The conversation with harmless words in all its messages."""
    return [{**message, "content": _HARMLESS} for message in messages]


def _usage(answer: Any) -> Usage | None:
    """Google counts thoughts, which it charges, in the sum only, not in the completion's tokens. Anthropic counts
    tokens from and for its cache apart."""
    usage = getattr(answer, "usage", None)

    def count(name: str) -> Any:
        return getattr(usage, name, None)

    if known := Usage.of(count("input_tokens"), count("output_tokens")):
        cached = Usage.of(count("cache_creation_input_tokens") or 0, count("cache_read_input_tokens") or 0)
        more = cached.prompt_tokens + cached.completion_tokens if cached else 0
        return Usage.of(known.prompt_tokens + more, known.completion_tokens)
    if (known := Usage.of(count("prompt_tokens"), count("completion_tokens"))) and type(count("total_tokens")) is int:
        beside = count("total_tokens") - known.prompt_tokens
        return Usage.of(known.prompt_tokens, max(known.completion_tokens, beside))
    return known


def _model(answer: Any) -> str | None:
    """The server's name of the model that answered."""
    name = getattr(answer, "model", None)
    return clean_text(name) if isinstance(name, str) else None


def _text(value: Any) -> str:
    """A content as text; of one in parts (Mistral) the text without thoughts and references."""
    if isinstance(value, list):
        parts = [part for part in value if part["type"] not in _SILENT_PARTS]
        value = "".join(part["text"] for part in parts)
    if not isinstance(value, str):
        raise TypeError("the answer is no text")
    return clean_text(value)


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
        fields |= {"extra_body": self.spec.entry.extra} if self.spec.entry else {}
        turns = [dict(m) for m in messages if m["role"] != "system"]

        def ask(client: Any, k: int, turns: Messages = turns, **others: Any) -> Awaitable[Any]:
            own = {"model": self.spec.name, "messages": turns, "max_tokens": sampling.max_tokens}
            return client.messages.create(**own, **fields | others)

        def control(client: Any) -> Awaitable[Any]:
            return ask(client, 0, _harmless(turns), **({"system": _HARMLESS} if system else {}))

        most = worst_case(messages), sampling.max_tokens
        return await self._all(samples, ask, _anthropic_answer, most, control)


def _anthropic_answer(answer: Any) -> Completion:
    finish = _ending(answer.stop_reason)
    # What was written before a refusal is to be discarded.
    texts = (block.text for block in answer.content if block.type == "text" and finish != "refusal")
    return Completion(_text("".join(texts)), (), (), finish, _usage(answer), _model(answer))
