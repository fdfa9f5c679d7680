"""Reads the answers and errors of servers. What they mean follows from their structure: the reason why an answer
ended, the status, and the names in an error."""

import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from .types import REFUSED, UNREAD, Completion, Usage, clean_text

# The reasons why an answer ended, by the words of providers. An unknown word means that the answer is not whole.
# tests/unit/test_providers.py names the sources.
_ENDINGS: dict[str, Literal["stop", "length", "refusal"]] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "content_filtered", "refusal", "sensitive", "guardrail_intervened", "safety",
                     "recitation", "language", "blocklist", "prohibited_content", "spii"), "refusal"),
}  # fmt: skip
OWN_FAULT = (400, 403, 422, 451)
"""Statuses with which a server may refuse one conversation, though it answers others."""
# Fields of an error that hold a name (a code, a type, a parameter).
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


class UnfinishedAnswer(Exception):
    """An answer whose reason to end is not among those of :data:`_ENDINGS`, so that it may not be whole."""


def ending(reason: Any) -> Literal["stop", "length", "refusal"]:
    """Translate a provider's ``reason`` why an answer ended; details behind a colon are ignored. Raises
    :class:`UnfinishedAnswer` for an unknown word."""
    word = str(reason).casefold().partition(":")[0].strip()
    if word not in _ENDINGS:
        raise UnfinishedAnswer(repr(word) if re.fullmatch(r"[a-z_]{1,40}", word) else "an unknown word")
    return _ENDINGS[word]


def read_openai(answer: Any) -> Completion:
    """Read the completion in an answer of OpenAI's chat protocol. Like all readers here it raises UnfinishedAnswer, and
    AttributeError, LookupError or TypeError for an answer of another form."""
    choice = answer.choices[0]
    refusal, finish = getattr(choice.message, "refusal", None), ending(choice.finish_reason)
    if refusal or finish == "refusal":  # the text that a content filter left is no answer
        return Completion(plain_text(refusal or ""), (), (), "refusal", read_usage(answer), _model_name(answer))
    text = choice.message.content or ""  # none: only thoughts, which the server keeps apart
    return Completion(plain_text(text), (), (), finish, read_usage(answer), _model_name(answer))


def read_anthropic(answer: Any) -> Completion:
    """Read the completion in an answer of Anthropic's protocol."""
    finish = ending(answer.stop_reason)
    # Text before a refusal is no answer.
    texts = (block.text for block in answer.content if block.type == "text" and finish != "refusal")
    return Completion(plain_text("".join(texts)), (), (), finish, read_usage(answer), _model_name(answer))


def read_prompt_logprobs(answer: Any) -> Completion:
    """Read the log-probabilities of the prompt's own tokens in an answer of vLLM; returns all tokens but the first,
    with their log-probabilities, as a completion. vLLM gives them as ``{id: {"logprob": ...}}``."""
    ending(answer.choices[0].finish_reason)
    rows = [next(iter(token.items())) for token in answer.choices[0].prompt_logprobs[1:]]
    ids, logprobs = (int(token) for token, _ in rows), (float(row["logprob"]) for _, row in rows)
    return Completion("", tuple(ids), tuple(logprobs), "length", read_usage(answer))


def plain_text(value: Any) -> str:
    """Read the text of a message's content, a text or a list of parts (Mistral); of the parts, thoughts and references
    are left out. Raises TypeError for anything else."""
    if isinstance(value, list):
        value = "".join(part["text"] for part in value if part["type"] not in _SILENT_PARTS)
    if not isinstance(value, str):
        raise TypeError("the answer is no text")
    return clean_text(value)


def _model_name(answer: Any) -> str | None:
    """The name under which the server's model answered; None where the answer has none."""
    name = getattr(answer, "model", None)
    return clean_text(name) if isinstance(name, str) else None


def read_usage(answer: Any) -> Usage | None:
    """Read the numbers of tokens that an answer is charged for; None where the server does not report them.

    Anthropic reports tokens read from and written to its cache separately from the prompt's. Google reports the tokens
    of thoughts only in the total.
    """
    usage = getattr(answer, "usage", None)

    def count(name: str) -> Any:
        """The reported number ``name``; None where it is missing."""
        return getattr(usage, name, None)

    if anthropic := Usage.of(count("input_tokens"), count("output_tokens")):
        cached = Usage.of(count("cache_creation_input_tokens") or 0, count("cache_read_input_tokens") or 0)
        cached_tokens = cached.prompt_tokens + cached.completion_tokens if cached else 0
        return Usage.of(anthropic.prompt_tokens + cached_tokens, anthropic.completion_tokens)
    openai, total = Usage.of(count("prompt_tokens"), count("completion_tokens")), count("total_tokens")
    if openai and type(total) is int:
        return Usage.of(openai.prompt_tokens, max(openai.completion_tokens, total - openai.prompt_tokens))
    return openai


# Errors


def error_in(answer: Any) -> tuple[int, Any] | None:
    """Find an error that a gateway sent as an answer with status 200, or beside a partial answer; returns its status
    (500 where it names none) and its body, or None."""
    choices = getattr(answer, "choices", None)
    error = getattr(answer, "error", None) or (getattr(choices[0], "error", None) if choices else None)
    code = str(error.get("code")) if isinstance(error, Mapping) else ""
    return (int(code) if re.fullmatch(r"[45]\d\d", code) else 500, error) if error else None


def classify_error(status: int, body: Any) -> Completion | Literal["no money"] | None:
    """Classify an error of a server by its status and body: returns :data:`~.types.UNREAD` where the conversation is
    too long, :data:`~.types.REFUSED` where its content is refused, ``no money`` where the account is empty, and None
    for any other error."""
    names, text, may_be_refusal = list(_error_names(body)), str(body), status in (*OWN_FAULT, 413)
    if status == 402 or any(map(_IS_MONEY.search, names)) or _SAYS_MONEY.search(text):
        return "no money"
    if status == 413 or any(map(_IS_TOO_LONG.search, names)) or (may_be_refusal and _SAYS_TOO_LONG.search(text)):
        return UNREAD
    is_refusal = any(map(_IS_REFUSAL.search, names)) or (may_be_refusal and _SAYS_REFUSAL.search(text))
    return REFUSED if is_refusal else None


def named_fields(body: Any) -> list[str]:
    """List the fields of a request (such as ``temperature``) that the body of an error names in quotes."""
    return [field for field in _FIELDS if re.search(rf"['\"`]{field}['\"`]", str(body))]


def _error_names(body: Any) -> Iterator[str]:
    """Yield the texts in the fields :data:`_NAMES` of an error's body, at any depth, in lower case."""
    pending = [body]
    while pending:
        part = pending.pop()
        if isinstance(part, Mapping):
            yield from (str(part[key]).casefold() for key in _NAMES if isinstance(part.get(key), str))
        pending += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()


def seconds_to_wait(headers: Mapping[str, str]) -> float:
    """Read how many seconds a server asks to wait before the next request (header Retry-After); 0 where it does not
    ask, or in an unknown form."""
    wait, milliseconds = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    for text, unit in ((milliseconds, 1000), (wait, 1)):
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text) / unit
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
    except ValueError:
        return 0.0
