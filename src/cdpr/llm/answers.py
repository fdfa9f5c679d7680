"""Reads the answers and errors of model servers. What they mean is taken from their structure, not from free text where
possible: the finish reason, the HTTP status, and the codes in an error."""

import json
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import httpx2

from ..files import parse_yaml, shipped_text
from .types import Completion, Usage, repair_text

CONVERSATION_ERRORS = (400, 403, 422, 451)
"""Statuses with which a server may refuse one conversation, though it answers others."""
_MEANINGS = parse_yaml(shipped_text(__package__, "answers.yaml"))


class UnfinishedAnswer(Exception):
    """An answer has an unknown finish reason, so it may be incomplete."""


def parse_finish_reason(reason: Any) -> Literal["stop", "length", "refusal"]:
    """Translate the finish reason of any provider into one of three: ``end_turn`` becomes ``stop``, ``SAFETY:
    violence`` becomes ``refusal``. Raises :class:`UnfinishedAnswer` for an unknown one."""
    word = str(reason).casefold().partition(":")[0].strip()
    for meaning, words in _MEANINGS["finish_reasons"].items():
        if word in words:
            return meaning
    is_harmless = re.fullmatch(r"[a-z_]{1,40}", word)  # other words might quote the case
    raise UnfinishedAnswer(repr(word) if is_harmless else "an unknown word")


def read_openai(answer: Any) -> Completion:
    """Read the completion in an ``answer`` of OpenAI's chat protocol (parsed JSON). The text of
    a refused answer is the refusal, if the model wrote one; that of an answer with thoughts alone is empty.

    Raises UnfinishedAnswer for an unknown finish reason, and AttributeError, LookupError or TypeError for an answer of
    another form.
    """
    choice = answer["choices"][0]
    message, finish = choice["message"], parse_finish_reason(choice["finish_reason"])
    content = message.get("content")  # None: only thoughts, which the server keeps apart
    if message.get("refusal") or finish == "refusal":
        finish, content = "refusal", message.get("refusal")  # the text that a content filter left over is no answer
    # (), (): neither token ids nor log-probabilities are in the answer.
    return Completion(read_content(content or ""), (), (), finish, read_usage(answer), _read_model_name(answer))


def read_anthropic(answer: Any) -> Completion:
    """Read the completion in an ``answer`` of Anthropic's protocol (parsed JSON). Its text
    is empty where the model refused. Raises the same errors as :func:`read_openai`."""
    finish = parse_finish_reason(answer["stop_reason"])
    text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    if finish == "refusal":  # text before a refusal is no answer
        text = ""
    # (), (): neither token ids nor log-probabilities are in the answer.
    return Completion(read_content(text), (), (), finish, read_usage(answer), _read_model_name(answer))


def read_prompt_logprobs(answer: Any) -> Completion:
    """Read the log-probabilities that vLLM computed for the tokens of the prompt itself.

    The answer has a list ``prompt_logprobs`` with a dictionary ``{token id: {"logprob": ...}}`` for each token of the
    prompt; that of the first token is None, since nothing comes before it. Returns a completion whose ``token_ids`` and
    ``logprobs`` are those of all prompt tokens but the first. Raises the same errors as :func:`read_openai`.
    """
    choice = answer["choices"][0]
    parse_finish_reason(choice["finish_reason"])  # only to raise UnfinishedAnswer for an unknown one
    # Of each dictionary the first entry, that of the prompt's own token; likelier tokens may follow it.
    entries = [next(iter(alternatives.items())) for alternatives in choice["prompt_logprobs"][1:]]
    ids = tuple(int(token) for token, _ in entries)
    logprobs = tuple(float(entry["logprob"]) for _, entry in entries)
    # "length" or "stop": the caller only needs a reason that is no refusal.
    return Completion("", ids, logprobs, "length", read_usage(answer))


def read_content(content: Any) -> str:
    """Read the text of a message's ``content``: a string, or a list of parts (Mistral) whose texts are joined, thoughts
    and references left out. Raises TypeError for anything else."""
    if isinstance(content, list):
        content = "".join(part["text"] for part in content if part["type"] not in _MEANINGS["hidden_parts"])
    if not isinstance(content, str):
        raise TypeError("the answer is no text")
    return repair_text(content)


def _read_model_name(answer: Any) -> str | None:
    """Read the name of the model from a server's answer; None where the answer has none."""
    name = answer.get("model")
    return repair_text(name) if isinstance(name, str) else None


def read_usage(answer: Any) -> Usage | None:
    """Read how many tokens of prompt and completion an answer is charged for; None where the server does not report
    them.

    Anthropic reports tokens read from and written to its cache separately: they are added to the prompt's. Google
    counts the tokens of thoughts only in the total: they are added to the completion's.
    """
    usage = answer.get("usage")
    counts: Mapping[str, Any] = usage if isinstance(usage, Mapping) else {}
    count = counts.get
    anthropic = Usage.from_counts(count("input_tokens"), count("output_tokens"))
    if anthropic:
        cached = [count("cache_creation_input_tokens") or 0, count("cache_read_input_tokens") or 0]
        if Usage.from_counts(*cached) is None:  # implausible numbers are ignored
            cached = []
        return Usage.from_counts(anthropic.prompt_tokens + sum(cached), anthropic.completion_tokens)
    openai, total = Usage.from_counts(count("prompt_tokens"), count("completion_tokens")), count("total_tokens")
    if openai and type(total) is int:
        thoughts_and_text = total - openai.prompt_tokens
        return Usage.from_counts(openai.prompt_tokens, max(openai.completion_tokens, thoughts_and_text))
    return openai


# Errors


def find_error(answer: Any) -> tuple[int, Any] | None:
    """Find the error in an ``answer`` that arrived with HTTP status 200, as gateways to other providers send them.
    Returns the status code that the error names (500 if it names none) and the error itself; None for an answer without
    an error."""
    choices = answer.get("choices")
    error = answer.get("error") or (choices[0].get("error") if choices else None)
    if not error:
        return None
    code = str(error.get("code")) if isinstance(error, Mapping) else ""
    status = int(code) if re.fullmatch(r"[45]\d\d", code) else 500  # other codes are words or numbers of the gateway
    return status, error


def read_body(response: httpx2.Response) -> Any:
    """Read the body of an error: parsed JSON, or the text where it is none."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return response.text


def classify_error(status: int, body: Any) -> Literal["no_money", "too_long", "refusal"] | None:
    """Decide what an error of a server means, from its HTTP ``status`` and its ``body`` (parsed JSON, or text).

    Returns ``no_money`` where the account is empty or at its limit, ``too_long`` where the conversation is too long for
    the model, ``refusal`` where the server refuses the content of the conversation, and None for any other error.
    """
    # The codes and types in the error: the strings in its fields of these names, at any depth.
    names = re.findall(rf'"(?:{"|".join(_MEANINGS["names"])})": "([^"]*)"', json.dumps(body))
    # With any other status the error is not about the conversation, even if its text has such words.
    text = str(body) if status in CONVERSATION_ERRORS else ""
    for meaning, signs in _MEANINGS["errors"].items():
        is_named = any(re.search(signs["names"], name, re.IGNORECASE) for name in names)
        if status == signs["status"] or is_named or re.search(signs["words"], text, re.IGNORECASE):
            return meaning
    return None


def find_named_fields(body: Any) -> list[str]:
    """List the sampling fields of a request (such as ``temperature``) that the ``body`` of an error names in quotes:
    the server probably does not accept these fields."""
    return [field for field in _MEANINGS["fields"] if re.search(rf"['\"`]{field}['\"`]", str(body))]


def parse_retry_after(headers: Mapping[str, str]) -> float:
    """Read how many seconds a server asks the client to wait before the next request. It says so in the header
    ``retry-after-ms``, or in ``Retry-After`` as seconds or as a date. Returns 0 where both are missing or of another
    form."""
    wait, milliseconds = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    for text, units_per_second in ((milliseconds, 1000), (wait, 1)):
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text) / units_per_second
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
    except ValueError:
        return 0.0
