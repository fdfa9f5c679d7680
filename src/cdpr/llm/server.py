"""Models on servers: connection, API key, time-outs, retries, and errors that quote no text of a case.

A request is a path and a JSON object, which goes over a connection of ours, so that credentialed text goes only to the
checked host. :mod:`.answers` reads answers and errors. After an error of unknown cause the same request is sent with
harmless words. If the server answers those, the text of the conversation is the cause, and only this reply is lost.
Otherwise the request is wrong, or the server has a problem.
"""

import asyncio
import functools
import logging
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import httpx2

from ..seeding import derive_seed
from ..settings import PROVIDERS
from . import answers
from .agent_model import current_meter
from .guard import host_of, is_local, parse_unix_socket
from .spec import ModelSpec
from .spending import Cost, Spending, bound_prompt_tokens
from .tokenizer import ChatTokenizer
from .types import CASE, Completion, Ids, Messages, Model, ModelFailure, ModelUnavailable, Sampling, Usage, unanswered

# HTTP statuses of problems that may pass (time-out, conflict, too early, too many requests), beside all from 500 on.
_RETRIED_STATUSES = (408, 409, 425, 429)
_LONGEST_PAUSE = 30.0  # seconds between attempts
_LONGEST_WAIT = 120.0  # seconds; if a server asks for a longer wait (Retry-After), the request fails
_SILENCE = 60.0  # seconds without any answer of the server until the log says that it is waiting
_log = logging.getLogger(__name__)


class _Request(NamedTuple):
    """A request for completions, which may be sent several times.

    - ``path``: where it is sent, behind the model's address; ``body``: what is sent, for JSON.
    - ``read(answer)`` reads the completions in the answer, parsed JSON (see the readers of :mod:`.answers`).
    - ``most_tokens``: upper bounds of the number of tokens of the prompt and of the answer, for the budget.
    - ``headers``: further headers.
    - ``harmless``: the same body with other words, to test whether the text of the conversation causes an error. It is
      None for prompts of token ids.
    """

    path: str
    body: Mapping[str, Any]
    read: Callable[[Any], list[Completion]]
    most_tokens: tuple[int, int]
    headers: Mapping[str, str] = {}
    harmless: Mapping[str, Any] | None = None


class _Attempt(NamedTuple):
    """How one attempt to send a request ended. ``result`` are the completions, or the error to raise.

    - ``cost``: what the attempt cost: the tokens of a :class:`~.types.Usage`, ``free``, or ``unknown``.
    - ``retry``: another attempt may succeed, after at least ``wait`` seconds.
    - ``timed_out``: no answer came in time.
    - ``may_be_text``: the text of the conversation may be the cause of the error.
    """

    result: list[Completion] | ModelFailure
    cost: Cost
    retry: bool = False
    wait: float = 0.0
    timed_out: bool = False
    may_be_text: bool = False


class ServedModel(Model):
    """A model at the address ``spec.address``. A subclass serves one protocol.

    - The API key is read from the first environment variable in ``keys`` that is set, when a request is sent, and
      stored nowhere. The variables are those of the model's own provider, so that no provider gets another's key.
    - A request is sent again after a lost connection, after an answer that is empty, unfinished or of another form,
      and after the statuses 408, 409, 425, 429 and 5xx, unless the server's header ``x-should-retry`` decides
      otherwise. It waits as long as the server asks for (``Retry-After``), but at least its own pause; if the server
      asks for more than two minutes, the request fails. If the answer is still empty in the last attempt, it is
      returned.
    - A request that timed out is sent again once, and only if the server has answered other requests since.
    - Redirects are not followed. Proxies are used only for open cases on other machines.
    """

    key_names: ClassVar[tuple[str, ...]]  # environment variables with the key of a model that has no entry
    chat_path: ClassVar[str]  # to which conversations are sent, behind the address
    headers: ClassVar[Mapping[str, str]] = {}  # of every request

    def __init__(self, spec: ModelSpec, tokenizer: ChatTokenizer | None = None) -> None:
        """Prepare the model; no request is sent. ``tokenizer`` is for prompts of token ids (None: it takes messages
        alone). Raises SettingsError where a budget is set although the price of the model is unknown."""
        self.spec, self.address, self.tokenizer = spec, spec.address or "", tokenizer
        self.keys = spec.entry.key_names if spec.entry else self.key_names
        self._label = f"model {spec.name!r} at {host_of(self.address)}"
        self._loop: asyncio.AbstractEventLoop | None = None  # the one for which `_connect` made a client
        # When the server answered last (time.monotonic), and whether the log says that it is silent since.
        self._last_answer, self._is_silent = 0.0, False
        self._ranks: dict[str, int] = {}  # for each case the number of the server's replica that answers it
        self._problems: set[str] = set()  # the problems that were logged, each once
        self._spending = Spending.open(spec, self._label)

    def __repr__(self) -> str:
        """The name of the model and its host, for error messages."""
        return f"<{self._label}>"

    @abstractmethod
    def chat_body(self, messages: Messages, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Write the body of a request for one answer to a conversation."""

    @staticmethod
    @abstractmethod
    def read(answer: Any) -> Completion:
        """Read the completion in an answer to a conversation, parsed JSON. Raises the errors of
        :func:`~.answers.read_openai`."""

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one answer to a conversation for each index in ``samples``, with one request each and a seed of its
        own. Raises ModelFailure or ModelUnavailable where the server fails."""
        harmless = [{**message, "content": "Hello."} for message in messages]

        def make_request(sample: int) -> _Request:
            """Make the request for the answer with the index ``sample``."""
            own_seed = derive_seed(seed, sample)
            return _Request(
                path=self.chat_path,
                body=self.chat_body(messages, sampling, own_seed),
                read=lambda answer: [self.read(answer)],
                most_tokens=(bound_prompt_tokens(messages), sampling.max_tokens),
                harmless=self.chat_body(harmless, sampling, own_seed),
            )

        batches = await asyncio.gather(*(self._complete(make_request(k)) for k in samples))
        return [completion for [completion] in batches]

    async def _complete(self, request: _Request) -> list[Completion]:
        """Send a request, again if need be; returns its completions. Raises the error of the last attempt, a
        ModelFailure.

        Where the error may be due to the text of the conversation, the same request is sent with harmless words. If the
        server answers these, the text was the cause, and the finish reason of the completion is ``failed``.
        """
        self.spec.check()
        client, open_requests = self._connect()
        async with open_requests:
            last = await self._try_repeatedly(client, request, self.spec.retries)
            if isinstance(last.result, ModelFailure) and last.may_be_text and request.harmless:
                # If the request was retried, a problem that passes has had time to pass: then the harmless request
                # needs no retry.
                retries = 0 if last.retry else self.spec.retries
                control = await self._try_repeatedly(client, request._replace(body=request.harmless), retries)
                if not isinstance(control.result, ModelFailure):  # harmless words are answered: the text is the cause
                    return [unanswered("failed")]
        if isinstance(last.result, ModelFailure):
            raise last.result
        return last.result

    async def _try_repeatedly(self, client: httpx2.AsyncClient, request: _Request, retries: int) -> _Attempt:
        """Send a request until an attempt succeeds or retrying does not help, at most ``retries`` + 1 times; returns
        the last attempt. The cost of every attempt is counted against the budget.

        An attempt that timed out is repeated once, and only if the server has meanwhile answered another request.
        """
        begin, timeouts = time.monotonic(), 0
        for number in range(retries + 1):
            if self.spec.server:
                self.spec.server.ensure_ready()  # blocks all requests, which need the server too
            reservation = await self._spending.reserve(*request.most_tokens) if self._spending else None
            last = await self._attempt(client, request)
            if self._spending and reservation is not None:
                self._spending.book(reservation, last.cost)
            timeouts += last.timed_out
            # A server that has answered nothing since this request began hangs: no retry helps.
            allowed_timeouts = 1 if self._last_answer > begin else 0
            if not last.retry or number == retries or timeouts > allowed_timeouts:
                break
            current_meter().retries += 1
            pause = min(self.spec.pause * 2**number, _LONGEST_PAUSE)
            await asyncio.sleep(max(last.wait, pause))
        return last

    async def _attempt(self, client: httpx2.AsyncClient, request: _Request) -> _Attempt:
        """Send a request and read its answer; returns how the attempt ended. Errors are returned, not raised: raised
        here, they would have the library's error as context, which may quote the text of a case."""
        notice = asyncio.get_running_loop().call_later(_SILENCE, self._log_silence, time.monotonic())
        try:
            async with asyncio.timeout(self.spec.timeout):  # for the whole answer, which may arrive in parts
                response = await client.post(request.path, json=request.body, headers=request.headers)
            if not response.is_success:
                return self._interpret_error(response.status_code, answers.read_body(response), response.headers)
            answer = response.json()
        except TimeoutError:
            advice = "it hangs, or is too slow; see to the server, then start again: answers so far are kept"
            error = ModelUnavailable(f"{self._label}: no answer within {self.spec.timeout:g} seconds; {advice}")
            return _Attempt(error, "unknown", retry=True, timed_out=True)
        except httpx2.HTTPError as error:
            # The server may have billed what it got.
            cost: Cost = "free" if isinstance(error, httpx2.ConnectError) else "unknown"
            return self._make_retryable(f"no connection ({type(error).__name__})", cost)
        except (ValueError, RecursionError):
            return self._make_retryable("the response is no JSON", "unknown", may_be_text=True)
        finally:
            notice.cancel()
        return self._read_answer(answer, request.read)

    def _read_answer(self, answer: Any, read: Callable[[Any], list[Completion]]) -> _Attempt:
        """Read the completions in an answer of the server, parsed JSON; returns the finished attempt. An error within
        the answer, an unreadable answer, and one with an empty text are to be retried if the server may do better."""
        try:
            inner_error = answers.find_error(answer)
            if inner_error:
                # It came as an answer with status 200, so it may have been billed.
                status, body = inner_error
                return self._interpret_error(status, body, headers={})._replace(cost="unknown")
            completions = read(answer)
        except answers.UnfinishedAnswer as error:
            cost: Cost = answers.read_usage(answer) or "unknown"
            return self._make_retryable(f"the answer ended with {error} as its reason", cost, may_be_text=True)
        except (AttributeError, LookupError, TypeError):
            return self._make_retryable("the response has not the form of an answer", "unknown", may_be_text=True)
        if self._is_silent:
            _log.warning("%s: answers again", self._label)
        self._last_answer, self._is_silent = time.monotonic(), False
        # Empty are answers without text. A reply whose only sampled token ended the turn has no text either, but it has
        # a token id: it is a sample like any other.
        is_empty = any(not completion.token_ids and not completion.is_answer for completion in completions)
        # The first completion has the usage of all (:meth:`OpenAIServer._read_continuations`).
        return _Attempt(completions, completions[0].usage or "unknown", retry=is_empty)

    def _log_silence(self, begin: float) -> None:
        """Log a warning if the server has answered no request since the time ``begin`` (of ``time.monotonic``). Further
        calls log nothing until the server has answered."""
        if not self._is_silent and self._last_answer < begin:
            self._is_silent = True
            _log.warning("%s: waiting for an answer, at most %g seconds", self._label, self.spec.timeout)

    def _interpret_error(self, status: int, body: Any, headers: Mapping[str, str]) -> _Attempt:
        """Decide what an error of the server means, by its HTTP status, body (parsed JSON, or text) and headers.
        Returns the attempt. Its result is one completion without text where the conversation is too long or refused.
        Otherwise the result is an exception; the request is to be sent again if the error may
        pass."""
        problem, meaning = f"status {status}", answers.classify_error(status, body)
        if meaning == "no_money":
            advice = "the account has no money left, or reached its limit; answers so far are kept"
            return _Attempt(ModelUnavailable(f"{self._label}: {problem}; {advice}"), "free")
        if meaning is not None:
            return _Attempt([unanswered(meaning)], "free")
        hint = headers.get("x-should-retry")  # with which OpenAI and Anthropic overrule the status
        may_pass = status in _RETRIED_STATUSES or status >= 500
        if hint == "true" or (may_pass and hint != "false"):
            seconds = answers.parse_retry_after(headers)
            if seconds <= _LONGEST_WAIT:
                # Some servers answer 500 or 502 to a text that they cannot process.
                return self._make_retryable(problem, "free", seconds, may_be_text=status in (500, 502))
            advice = f"the server asks to wait {seconds:.0f} seconds; start again then: answers so far are kept"
            return _Attempt(ModelUnavailable(f"{self._label}: {problem}, and {advice}"), "free")
        if status in (400, 422):
            fields = ", ".join(answers.find_named_fields(body))
            why = f"; it names {fields}, see `sampling` and `extra` of the model's entry" if fields else ""
            error = ModelFailure(f"{self._label}: {problem}, the server does not accept the request{why}")
        else:
            advice = f"check address, model name and key ({next(iter(self.keys), 'none is named')})"
            error = ModelUnavailable(f"{self._label}: {problem}; {advice}")
        return _Attempt(error, "free", may_be_text=status in answers.CONVERSATION_ERRORS)

    def _make_retryable(self, problem: str, cost: Cost, wait: float = 0.0, may_be_text: bool = False) -> _Attempt:
        """Make the attempt that ended with a ``problem`` which may pass, such as "status 503"; ``cost``, ``wait``
        and ``may_be_text`` are those of :class:`_Attempt`. Logs each problem once."""
        if problem not in self._problems:
            self._problems.add(problem)
            _log.warning("%s: %s; trying again (this warning comes once)", self._label, problem)
        times = self.spec.retries + 1
        error = ModelUnavailable(f"{self._label}: {problem}, {times} times; see whether the server is well")
        return _Attempt(error, cost, retry=True, wait=wait, may_be_text=may_be_text)

    def _connect(self) -> tuple[httpx2.AsyncClient, asyncio.Semaphore]:
        """Get the connection, and the semaphore that limits the number of open requests. All requests of an event loop
        share both, because a new pool of connections costs more than a request."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            socket, no_limits = parse_unix_socket(self.address), httpx2.Limits()  # the semaphore limits open requests
            client = httpx2.AsyncClient(
                base_url="http://localhost/v1" if socket else self.address,
                headers=self.headers,
                transport=httpx2.AsyncHTTPTransport(uds=socket, limits=no_limits) if socket else None,
                limits=no_limits,
                timeout=None,  # `_attempt` limits the time
                follow_redirects=False,
                trust_env=not (self.spec.credentialed or is_local(self.address)),  # proxies of the environment
                auth=self._add_key,
            )
            self._loop, self._pool = loop, (client, asyncio.Semaphore(self.spec.at_once))
        return self._pool

    def _add_key(self, request: httpx2.Request) -> httpx2.Request:
        """Put the API key into the headers of a request and return the request. A server that this process started gets
        no key."""
        names = () if self.spec.server else self.keys
        keys = [os.environ[name] for name in names if os.environ.get(name)]
        if keys:
            request.headers["Authorization"] = f"Bearer {keys[0]}"  # of the first variable that is set
        return request


class OpenAIServer(ServedModel):
    """A server with OpenAI's protocol. It answers conversations, and with a ``tokenizer`` also prompts of token ids
    (vLLM).

    For a prompt of token ids the completion with the index k depends on prompt, seed and k alone, even where one
    request asks for several completions. The server is asked to return token ids (``return_token_ids``, vLLM 0.10.2 and
    later). If it returns only text, the text is tokenised here, perhaps into other tokens than the sampled ones. The
    completions have no log-probabilities, so no policy can be trained on them.
    """

    read = staticmethod(answers.read_openai)
    key_names = ("CDPR_API_KEY", "OPENAI_API_KEY")
    chat_path = "chat/completions"

    async def sample(self, prompt_ids: Ids, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one completion of the prompt ``prompt_ids`` (token ids) for each index in ``samples``; returns
        them in this order.

        Successive indices, such as 4, 5, 6, share one request, in which the server counts the seed up. Raises
        SettingsError without a tokenizer, and ModelFailure where the server fails or refuses the prompt.
        """
        tokenizer = self.tokenizer
        if tokenizer is None:
            return await super().sample(prompt_ids, samples, sampling, seed)  # raises
        indices_of_requests: list[list[int]] = []  # the indices 1, 2, 3, 7, 8 give [1, 2, 3], [7, 8]
        for index in samples:
            # An index that is the next after the last index of the last request joins that request. Not at temperature
            # 0, where vLLM gives only one completion per request.
            if indices_of_requests and index == indices_of_requests[-1][-1] + 1 and sampling.temperature != 0:
                indices_of_requests[-1].append(index)
            else:
                indices_of_requests.append([index])
        requests = [self._token_request(tokenizer, prompt_ids, ks, sampling, seed) for ks in indices_of_requests]
        completions_of_requests = await asyncio.gather(*map(self._complete, requests))
        return self._check_sampled([c for completions in completions_of_requests for c in completions])

    def _token_request(
        self, tokenizer: ChatTokenizer, prompt_ids: Sequence[int], indices: Sequence[int], sampling: Sampling, seed: int
    ) -> _Request:
        """Make the request for the completions with these successive ``indices`` of the prompt ``prompt_ids`` (token
        ids)."""
        # vLLM samples the first completion of a request with the request's seed, the next with that + 1, and so on. So
        # index k has the seed derive_seed(seed, 0) + k, whichever request asks for it. vLLM takes seeds below 2**63.
        first_seed = (derive_seed(seed, 0) + indices[0]) % 2**63
        body = {"model": self.spec.name, "prompt": [*prompt_ids], "return_token_ids": True, "n": len(indices)}
        body |= {"seed": first_seed, "max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        body |= {"top_p": sampling.top_p, "top_k": sampling.top_k or -1}  # -1: no limit
        if sampling.first_line:
            body["stop"] = ["\n"]
        headers = {}
        if self.spec.replicas > 1:
            # Cases take the replicas in turn. One replica gets all prompts of a case, whose prefixes it has cached.
            rank = self._ranks.setdefault(CASE.get(), len(self._ranks) % self.spec.replicas)
            headers["X-data-parallel-rank"] = str(rank)
        read = functools.partial(self._read_continuations, tokenizer, len(indices))
        return _Request("completions", body, read, (len(prompt_ids), len(indices) * sampling.max_tokens), headers)

    async def score_tokens(self, ids: list[int]) -> tuple[Ids, Sequence[float]]:
        """Get the log-probabilities of the tokens ``ids`` but the first (vLLM), as :meth:`~.types.Model.score_tokens`.
        Raises SettingsError without a tokenizer, and ModelFailure where the server fails or refuses the prompt."""
        if self.tokenizer is None:
            return await super().score_tokens(ids)
        # The server must sample a token (max_tokens), which is not used. 0 (prompt_logprobs): it adds no likelier
        # tokens to those of the prompt.
        body = {"model": self.spec.name, "prompt": ids, "max_tokens": 1, "prompt_logprobs": 0}
        request = _Request("completions", body, lambda answer: [answers.read_prompt_logprobs(answer)], (len(ids), 1))
        [scored] = self._check_sampled(await self._complete(request))
        return scored.token_ids, scored.logprobs

    def chat_body(self, messages: Messages, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Write the body of a request, with the sampling fields that the model's provider understands and the further
        fields ``extra`` of its entry in ``workflow/models.yaml``."""
        entry = self.spec.entry
        provider = PROVIDERS[entry.provider if entry else "own"]
        fields = {provider.limit_field: sampling.max_tokens, "temperature": sampling.temperature}
        fields |= {"top_p": sampling.top_p if sampling.top_p < 1 else None, "top_k": sampling.top_k or None}
        fields |= {"seed": seed if provider.takes_seeds else None}
        # None: the field is left out, since some providers refuse it.
        sent = {name: value for name, value in fields.items() if value is not None}
        extra = entry.extra if entry else {}
        return {"model": self.spec.name, "messages": [dict(message) for message in messages], **sent, **extra}

    def _check_sampled(self, completions: list[Completion]) -> list[Completion]:
        """Return the completions unchanged. Raises ModelFailure where the server sampled none, because the prompt was
        too long or refused."""
        for completion in completions:
            if completion.finish_reason == "too_long":
                raise ModelFailure(f"{self._label}: the prompt exceeds what the server reads")
            if completion.finish_reason not in ("stop", "length"):
                raise ModelFailure(f"{self._label}: the prompt was refused")
        return completions

    def _read_continuations(self, tokenizer: ChatTokenizer, count: int, answer: Any) -> list[Completion]:
        """Read the ``count`` completions in an answer to a prompt of token ids. The server reports one usage for all of
        them: the first completion gets it, the others a usage of 0, so that their sum is right. Raises TypeError for
        another number of completions, and for token ids that are no integers."""
        choices = answer["choices"]
        if len(choices) != count:
            raise TypeError("not as many completions as requested")
        if count > 1:
            choices = sorted(choices, key=lambda choice: choice["index"])
        completions: list[Completion] = []
        for choice in choices:
            ids, finish = choice.get("token_ids"), answers.parse_finish_reason(choice["finish_reason"])
            if ids is None:
                text = answers.read_content(choice["text"])
                end = [tokenizer.end_of_turn] if finish == "stop" else []  # a special token, which is not in the text
                ids = tokenizer.encode(text) + end
            elif isinstance(ids, list) and all(isinstance(i, int) for i in ids):
                text = tokenizer.decode(ids)
            else:
                raise TypeError("token ids are no numbers")
            usage = Usage(0, 0) if completions else answers.read_usage(answer)
            completions.append(Completion(text, tuple(ids), (), finish, usage))
        return completions


class AnthropicServer(ServedModel):
    """Anthropic's own API. It answers conversations. Since its version of 2026-10-21 it takes neither temperature nor
    seed: of the sampling parameters only ``max_tokens`` is sent, and answers cannot be repeated."""

    read = staticmethod(answers.read_anthropic)
    key_names = ("CDPR_API_KEY", "ANTHROPIC_API_KEY")
    chat_path = "v1/messages"
    headers: ClassVar = {"anthropic-version": "2026-10-21"}

    def chat_body(self, messages: Messages, sampling: Sampling, seed: int) -> dict[str, Any]:
        """Write the body of a request; the system messages become its field ``system``."""
        turns = [dict(message) for message in messages if message["role"] != "system"]
        body: dict[str, Any] = {"model": self.spec.name, "max_tokens": sampling.max_tokens, "messages": turns}
        if system := "\n\n".join(message["content"] for message in messages if message["role"] == "system"):
            body["system"] = system
        return body | (self.spec.entry.extra if self.spec.entry else {})
