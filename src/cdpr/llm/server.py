"""Models on servers: connection, key, time-outs, retries, and errors that quote no text of a case.

The official clients (``openai``, ``anthropic``) send the requests; connection, key and retries are ours, so that
credentialed text goes only to the checked host. :mod:`.answers` reads answers and errors. An error of unknown cause is
tested by sending the same request with harmless words. If the server answers that one, the conversation is the cause,
and only this reply is lost; otherwise the request is wrong, or the server has a problem.
"""

import asyncio
import importlib
import itertools
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import httpx2

from ..seeding import derive_seed
from ..settings import SettingsError
from ..settings.models import PROVIDERS
from . import answers
from .agent_model import current_meter
from .guard import host_of, is_local, unix_socket
from .spec import ModelSpec
from .spending import Outcome, Spending, bound_prompt_tokens
from .tokenizer import ChatTokenizer
from .types import (
    CASE,
    FAILED,
    Completion,
    Messages,
    Model,
    ModelFailure,
    ModelUnavailable,
    Sampling,
    Usage,
    continuation_logprobs,
)

_RETRIED = (408, 409, 425, 429)  # statuses that may pass, beside all from 500 on
_LONGEST_PAUSE = 30.0  # seconds between attempts
_LONGEST_WAIT = 120.0  # seconds that a server may ask for (Retry-After)
_SILENCE = 60.0  # seconds without any answer of the server until the log says that it is waiting
_log = logging.getLogger(__name__)


class _Attempt(NamedTuple):
    """How one attempt to send a request ended: with a completion, or with an error to raise (``result``). ``outcome``
    says what it cost. ``retry``: another attempt may succeed, after at least ``wait`` seconds. ``timed_out``: no answer
    came in time. ``may_be_text``: the text of the conversation may be the cause of the error."""

    result: Completion | ModelFailure
    outcome: Outcome
    retry: bool = False
    wait: float = 0.0
    timed_out: bool = False
    may_be_text: bool = False


class _Question(NamedTuple):
    """A request that may be sent several times: ``send(client, k)`` sends it for sample k, ``read`` turns the answer
    into a completion (see the readers of :mod:`.answers`), ``most_tokens`` are upper bounds of the tokens of prompt and
    answer."""

    send: Callable[[Any, int], Awaitable[Any]]
    read: Callable[[Any], Completion]
    most_tokens: tuple[int, int]


class ServedModel(Model):
    """A model at ``spec.address``, called through the Python package ``package``.

    The key is read from the first environment variable of ``keys`` when a request is sent, and stored nowhere. These
    are variables of the model's own provider, so that no provider gets another's key. Retried are lost connections,
    answers that are empty, unfinished or of another form, and the statuses 408, 409, 425, 429 and 5xx, after the time
    that the server asks for (``Retry-After``). An answer that stays empty is returned. A request that timed out is
    retried once, if the server has answered other requests since. Redirects are not followed. Proxies are used only for
    open cases on other machines.
    """

    package: ClassVar[str]
    key_names: ClassVar[tuple[str, ...]]

    def __init__(self, spec: ModelSpec, tokenizer: ChatTokenizer | None = None) -> None:
        self.spec, self.address, self.tokenizer = spec, spec.address or "", tokenizer
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
        self._spending = Spending.open(spec, self._label)
        # Its detailed log would quote questions, even if the environment asks for it.
        logging.getLogger(self.package).setLevel(logging.WARNING)

    def __repr__(self) -> str:
        return f"<{self._label}>"

    @abstractmethod
    def client(self, connection: httpx2.AsyncClient) -> Any:
        """Make the package's client over ``connection``, without retries and keys of its own."""

    @abstractmethod
    def send(self, client: Any, messages: Messages, sampling: Sampling, seed: int) -> Awaitable[Any]:
        """Send a conversation; returns the package's answer, for ``read``."""

    read: ClassVar[Callable[[Any], Completion]]

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample answers to a conversation, one request for each."""

        def send(client: Any, k: int, messages: Messages = messages) -> Awaitable[Any]:
            """Send the conversation for sample k."""
            return self.send(client, messages, sampling, derive_seed(seed, k))

        harmless = [{**message, "content": "Hello."} for message in messages]
        question = _Question(send, type(self).read, (bound_prompt_tokens(messages), sampling.max_tokens))
        return await self._ask_all(samples, question, lambda client, _: send(client, 0, harmless))

    async def _ask_all(
        self, samples: Sequence[int], question: _Question, control: Callable[[Any, int], Awaitable[Any]] | None = None
    ) -> list[Completion]:
        """Send a request for all ``samples`` at the same time; returns their completions. Raises ModelFailure for an
        error.

        ``control`` sends the same request with harmless words. Where the server answers that after an error, the text
        of the conversation was the cause, and the completion is :data:`FAILED`.
        """
        self.spec.check()
        client, limit = self._connect()

        async def ask(k: int) -> Completion:
            """The completion for sample k."""
            async with limit:
                last = await self._try_repeatedly(client, question, k, self.spec.retries)
                if control and last.may_be_text and isinstance(last.result, ModelFailure):
                    retries = 0 if last.retry else self.spec.retries
                    harmless = await self._try_repeatedly(client, question._replace(send=control), k, retries)
                    if isinstance(harmless.result, Completion):
                        return FAILED
            if isinstance(last.result, ModelFailure):
                raise last.result
            return last.result

        return list(await asyncio.gather(*map(ask, samples)))

    async def _try_repeatedly(self, client: Any, question: _Question, k: int, retries: int) -> _Attempt:
        """Send a request until an attempt succeeds or retrying does not help, at most ``retries`` + 1 times; returns
        the last attempt. The cost of each is booked."""
        begin, timeouts = time.monotonic(), 0
        for number in range(retries + 1):
            if self.spec.server:
                self.spec.server.ready()  # blocks all requests, which need the server too
            bill = await self._spending.reserve(*question.most_tokens) if self._spending else None
            last = await self._attempt(question.send(client, k), question.read)
            if self._spending and bill is not None:
                self._spending.book(bill, last.outcome)
            timeouts += last.timed_out
            if not last.retry or number == retries or timeouts > (self._answered > begin):
                break
            current_meter().retries += 1
            await asyncio.sleep(max(last.wait, min(self.spec.pause * 2**number, _LONGEST_PAUSE)))
        return last

    async def _attempt(self, request: Awaitable[Any], read: Callable[[Any], Completion]) -> _Attempt:
        """Await a request and read its answer. Errors are returned, not raised: raised here, they would have the
        package's error as context, which may quote the text of a case."""
        notice = asyncio.get_running_loop().call_later(_SILENCE, self._log_silence, time.monotonic())
        try:
            async with asyncio.timeout(self.spec.timeout):  # for the whole answer, which may arrive in pieces
                answer = await request
        except TimeoutError:
            advice = "it hangs, or is too slow; see to the server, then start again: answers so far are kept"
            error = ModelUnavailable(f"{self._label}: no answer within {self.spec.timeout:g} seconds; {advice}")
            return _Attempt(error, "unknown", retry=True, timed_out=True)
        except self._sdk.APIConnectionError as error:
            cause = error.__cause__
            is_sent = not isinstance(cause, (httpx2.ConnectError, httpx2.ConnectTimeout))
            return self._retryable(f"no connection ({type(cause).__name__})", "unknown" if is_sent else "free")
        except self._sdk.APIStatusError as error:
            return self._status_error(error.status_code, error.body, error.response.headers)
        except (self._sdk.APIError, ValueError, RecursionError):
            return self._retryable("the response is no JSON", "unknown", may_be_text=True)
        finally:
            notice.cancel()
        try:
            if inner_error := answers.error_in(answer):  # sent as an answer, with status 200
                return self._status_error(*inner_error, {})._replace(outcome="unknown")
            completion = read(answer)
        except answers.UnfinishedAnswer as error:
            outcome: Outcome = answers.read_usage(answer) or "unknown"
            return self._retryable(f"the answer ended with {error} as its reason", outcome, may_be_text=True)
        except (AttributeError, LookupError, TypeError):
            return self._retryable("the response has not the form of an answer", "unknown", may_be_text=True)
        self._answered = time.monotonic()
        if self._is_silent:
            self._is_silent = False
            _log.warning("%s: answers again", self._label)
        # An empty completion of a token prompt is a sample like any other.
        is_empty = not completion.token_ids and not completion.is_answer
        return _Attempt(completion, completion.usage or "unknown", retry=is_empty)

    def _log_silence(self, begin: float) -> None:
        """Log, once, that the server has answered nothing since ``begin``."""
        if not self._is_silent and self._answered < begin:
            self._is_silent = True
            _log.warning("%s: waiting for an answer, at most %g seconds", self._label, self.spec.timeout)

    def _status_error(self, status: int, body: Any, headers: Mapping[str, str]) -> _Attempt:
        """Decide what an error of the server means, by its status, body and headers; returns the attempt."""
        problem, result = f"status {status}", answers.classify_error(status, body)
        if result == "no money":
            advice = "the account has no money left, or reached its limit; answers so far are kept"
            return _Attempt(ModelUnavailable(f"{self._label}: {problem}; {advice}"), "free")
        if result is not None:
            return _Attempt(result, "free")
        hint = headers.get("x-should-retry")
        if hint == "true" or (hint != "false" and (status in _RETRIED or status >= 500)):
            seconds = answers.seconds_to_wait(headers)
            if seconds <= _LONGEST_WAIT:
                return self._retryable(problem, "free", seconds, may_be_text=status in (500, 502))
            advice = f"the server asks to wait {seconds:.0f} seconds; start again then: answers so far are kept"
            return _Attempt(ModelUnavailable(f"{self._label}: {problem}, and {advice}"), "free")
        if status in (400, 422):
            named = answers.named_fields(body)
            why = f"; it names {', '.join(named)}, see `sampling` and `extra` of the model's entry" if named else ""
            error = ModelFailure(f"{self._label}: {problem}, the server does not accept the request{why}")
        else:
            advice = f"check address, model name and key ({self.keys[0]})"
            error = ModelUnavailable(f"{self._label}: {problem}; {advice}")
        return _Attempt(error, "free", may_be_text=status in answers.OWN_FAULT)

    def _retryable(self, problem: str, outcome: Outcome, wait: float = 0.0, may_be_text: bool = False) -> _Attempt:
        """Make the attempt that ended with a ``problem`` which may pass; logs each kind of problem once."""
        if problem not in self._problems:
            self._problems.add(problem)
            _log.warning("%s: %s; trying again (this warning comes once)", self._label, problem)
        times = self.spec.retries + 1
        error = ModelUnavailable(f"{self._label}: {problem}, {times} times; see whether the server is well")
        return _Attempt(error, outcome, retry=True, wait=wait, may_be_text=may_be_text)

    def _connect(self) -> tuple[Any, asyncio.Semaphore]:
        """Get the client, and the semaphore that limits its open requests. All requests of an event loop share them,
        because a new connection pool costs more than a request."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            socket, unlimited = unix_socket(self.address), httpx2.Limits()  # the semaphore limits open requests
            connection = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(uds=socket, limits=unlimited) if socket else None,
                limits=unlimited,
                timeout=None,
                follow_redirects=False,
                trust_env=not (self.spec.credentialed or is_local(self.address)),
                auth=self._add_key,
            )
            self._loop = loop
            self._pool = self.client(connection), asyncio.Semaphore(self.spec.at_once)
        return self._pool

    def _add_key(self, request: httpx2.Request) -> httpx2.Request:
        """Put the API key into the headers of a request; a server that this process started gets none."""
        request.headers.pop("Authorization", None)  # the package's placeholder
        names = () if self.spec.server else self.keys  # an own server needs no key
        key = next((os.environ[name] for name in names if os.environ.get(name)), None)
        if key:
            request.headers["Authorization"] = f"Bearer {key}"
        return request


class OpenAIServer(ServedModel):
    """A server with OpenAI's protocol. It answers messages, and with a ``tokenizer`` also token prompts (vLLM).

    Reply k to a token prompt depends on prompt, seed and k alone, even where one request asks for several k. Token
    prompts ask for token ids (``return_token_ids``, vLLM 0.10.2 and later); without them the text is tokenised, perhaps
    into other tokens than the sampled ones. There are no log-probabilities: replies are not trained on.
    """

    package, read = "openai", answers.read_openai
    key_names = ("CDPR_API_KEY", "OPENAI_API_KEY")

    def client(self, connection: httpx2.AsyncClient) -> Any:
        """Make the client of the package ``openai``."""
        url = "http://localhost/v1" if unix_socket(self.address) else self.address
        return self._sdk.AsyncOpenAI(
            api_key="unused", base_url=url, http_client=connection, max_retries=0, timeout=None
        )

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """Sample completions of a token prompt: one request for each run of successive numbers in ``samples``. At
        temperature 0 one for each number, since vLLM then gives only one reply per request."""
        if (tokenizer := self.tokenizer) is None:
            return await super().sample(prompt_ids, samples, sampling, seed)
        # In `extra_body`, which the package sends as it is; it would look at every token of `prompt`.
        extra = {"prompt": list(prompt_ids), "top_k": sampling.top_k or -1, "return_token_ids": True}
        fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p, "extra_body": extra} | ({"stop": ["\n"]} if sampling.first_line else {})
        if self.spec.replicas > 1:  # one replica reads all prompts of a case, whose prefixes it has cached
            rank = self._ranks.setdefault(CASE.get(), len(self._ranks) % self.spec.replicas)
            fields["extra_headers"] = {"X-data-parallel-rank": str(rank)}
        base = derive_seed(seed, 0)

        async def request(numbers: Sequence[int]) -> list[Completion]:
            """Sample successive numbers by one request: vLLM samples reply i with the seed + i."""
            own = {"seed": (base + numbers[0]) % 2**63} | ({"n": len(numbers)} if len(numbers) > 1 else {})
            completions: list[Completion] = []

            def send(client: Any, _: int) -> Awaitable[Any]:
                """Send the request."""
                return client.completions.create(model=self.spec.name, prompt="", **fields, **own)

            def read(answer: Any) -> Completion:
                """Put all completions of the answer into ``completions``; returns the shortest."""
                # The caller expects one completion a request. It gets the shortest: where that has no token, the
                # request is sent again.
                completions[:] = self._continuations(tokenizer, answer, len(numbers))
                return min(completions, key=lambda completion: len(completion.token_ids))

            bounds = len(prompt_ids), len(numbers) * sampling.max_tokens
            self._check_sampled(await self._ask_all((0,), _Question(send, read, bounds)))
            return self._check_sampled(completions)

        runs = [(k,) for k in samples] if sampling.temperature == 0 else split_runs(samples)
        return [completion for row in await asyncio.gather(*map(request, runs)) for completion in row]

    async def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Score given continuations of a token prompt, one request for each (vLLM)."""
        if self.tokenizer is None:
            return await super().score(prompt_ids, continuations)

        def send(client: Any, k: int) -> Awaitable[Any]:
            """Send the prompt with continuation k, and ask for the log-probabilities of all its tokens."""
            extra = {"prompt": [*prompt_ids, *continuations[k]], "prompt_logprobs": 0}  # of the prompt's own tokens
            return client.completions.create(model=self.spec.name, prompt="", max_tokens=1, extra_body=extra)

        most = len(prompt_ids) + max(map(len, continuations), default=0)
        question = _Question(send, answers.read_prompt_logprobs, (most, 1))
        whole = self._check_sampled(await self._ask_all(range(len(continuations)), question))
        pairs = zip(whole, continuations, strict=True)
        return [continuation_logprobs(given, len(prompt_ids), rows.token_ids, rows.logprobs) for rows, given in pairs]

    def send(self, client: Any, messages: Messages, sampling: Sampling, seed: int) -> Awaitable[Any]:
        """Send a conversation, with the fields that the provider of the model understands."""
        entry = self.spec.entry
        provider = PROVIDERS[entry.provider if entry else "own"]
        extra = {"top_k": sampling.top_k} if sampling.top_k else {}
        extra |= entry.extra if entry else {}
        fields: dict[str, Any] = {provider.limit: sampling.max_tokens}
        fields |= {} if sampling.temperature is None else {"temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p} if sampling.top_p < 1 else {}
        fields |= {"extra_body": extra} if extra else {}
        fields |= {"seed": seed} if provider.seeds else {}
        turns = [dict(message) for message in messages]
        return client.chat.completions.create(model=self.spec.name, messages=turns, **fields)

    def _check_sampled(self, completions: list[Completion]) -> list[Completion]:
        """Return the completions unchanged. Raises ModelFailure where one was not sampled, because the prompt was too
        long or refused."""
        for completion in completions:
            if completion.finish_reason not in ("stop", "length"):
                is_long = completion.finish_reason == "too_long"
                problem = "exceeds what the server reads" if is_long else "was refused"
                raise ModelFailure(f"{self._label}: the prompt {problem}")
        return completions

    def _continuations(self, tokenizer: ChatTokenizer, answer: Any, count: int) -> list[Completion]:
        """Read the ``count`` completions in an answer to a token prompt; the first one gets the usage of all. Raises
        TypeError for another number of completions, and for token ids that are no numbers."""
        choices = answer.choices
        if len(choices) != count:
            raise TypeError("not as many completions as requested")
        if count > 1:
            choices = sorted(choices, key=lambda choice: choice.index)
        completions: list[Completion] = []
        for choice in choices:
            ids, finish = getattr(choice, "token_ids", None), answers.ending(choice.finish_reason)
            if ids is None:
                text = answers.plain_text(choice.text)
                ids = tokenizer.encode(text) + [tokenizer.end_of_turn] * (finish == "stop")
            elif isinstance(ids, list) and all(isinstance(i, int) for i in ids):
                text = tokenizer.decode(ids)
            else:
                raise TypeError("token ids are no numbers")
            usage = Usage(0, 0) if completions else answers.read_usage(answer)
            completions.append(Completion(text, tuple(ids), (), finish, usage))
        return completions


def split_runs(numbers: Sequence[int]) -> list[list[int]]:
    """Split numbers into runs of successive ones: 1 2 3 7 8 into [1, 2, 3] and [7, 8]."""
    runs = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    return [[k for _, k in run] for _, run in runs]


class AnthropicServer(ServedModel):
    """Anthropic's own API. It answers messages. Since its version of 2026-10-21 it takes neither temperature nor seed:
    only ``max_tokens`` of the sampling counts, and answers cannot be repeated."""

    package, read = "anthropic", answers.read_anthropic
    key_names = ("CDPR_API_KEY", "ANTHROPIC_API_KEY")

    def client(self, connection: httpx2.AsyncClient) -> Any:
        """Make the client of the package ``anthropic``."""
        return self._sdk.AsyncAnthropic(
            api_key="unused",
            base_url=self.address,
            http_client=connection,
            max_retries=0,
            timeout=self.spec.timeout,
            open_telemetry=False,
        )

    def send(self, client: Any, messages: Messages, sampling: Sampling, seed: int) -> Awaitable[Any]:
        """Send a conversation; its system messages become the field ``system``."""
        fields: dict[str, Any] = {"model": self.spec.name, "max_tokens": sampling.max_tokens}
        if system := "\n\n".join(m["content"] for m in messages if m["role"] == "system"):
            fields["system"] = system
        fields |= {"extra_body": self.spec.entry.extra} if self.spec.entry else {}
        return client.messages.create(messages=[dict(m) for m in messages if m["role"] != "system"], **fields)
