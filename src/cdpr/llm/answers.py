"""What an answer or an error of a server means. It is decided by structure: the ending, the status, the names in an
error."""

import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from .types import REFUSED, UNREAD, Completion, Usage, clean_text

# How an answer ended; every other word is no whole answer. tests/unit/test_providers.py names the sources.
_ENDINGS: dict[str, Literal["stop", "length", "refusal"]] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "eos", "eos_token", "complete"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length", "model_context_window_exceeded"), "length"),
    **dict.fromkeys(("content_filter", "content_filtered", "refusal", "sensitive", "guardrail_intervened", "safety",
                     "recitation", "language", "blocklist", "prohibited_content", "spii"), "refusal"),
}  # fmt: skip
OWN_FAULT = (400, 403, 422, 451)
"""What such a status refuses may be this conversation alone."""
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


class UnfinishedAnswer(Exception):
    """An answer with another ending than those of :data:`_ENDINGS`."""


def ending(reason: Any) -> Literal["stop", "length", "refusal"]:
    """How an answer ended, without the detail behind a colon. Raises :class:`UnfinishedAnswer` for an unknown word."""
    word = str(reason).casefold().partition(":")[0].strip()
    if word not in _ENDINGS:
        raise UnfinishedAnswer(repr(word) if re.fullmatch(r"[a-z_]{1,40}", word) else "an unknown word")
    return _ENDINGS[word]


def read_openai(answer: Any) -> Completion:
    """The completion of OpenAI's chat protocol. Raises UnfinishedAnswer, and AttributeError, LookupError or TypeError
    for another form, like all readers here."""
    choice = answer.choices[0]
    refusal, finish = getattr(choice.message, "refusal", None), ending(choice.finish_reason)
    if refusal or finish == "refusal":  # what a filter left of an answer is none
        return Completion(plain_text(refusal or ""), (), (), "refusal", usage_of(answer), _model(answer))
    text = choice.message.content or ""  # none: only thoughts, which the server keeps apart
    return Completion(plain_text(text), (), (), finish, usage_of(answer), _model(answer))


def read_anthropic(answer: Any) -> Completion:
    """The completion of Anthropic's protocol."""
    finish = ending(answer.stop_reason)
    # What was written before a refusal is to be discarded.
    texts = (block.text for block in answer.content if block.type == "text" and finish != "refusal")
    return Completion(plain_text("".join(texts)), (), (), finish, usage_of(answer), _model(answer))


def read_prompt_logprobs(answer: Any) -> Completion:
    """The prompt's tokens but the first with their log-probabilities, as vLLM gives them: {id: {"logprob": ..}}."""
    ending(answer.choices[0].finish_reason)
    rows = [next(iter(token.items())) for token in answer.choices[0].prompt_logprobs[1:]]
    ids, logprobs = (int(token) for token, _ in rows), (float(row["logprob"]) for _, row in rows)
    return Completion("", tuple(ids), tuple(logprobs), "length", usage_of(answer))


def plain_text(value: Any) -> str:
    """A content as text; of one in parts (Mistral) the text without thoughts and references."""
    if isinstance(value, list):
        value = "".join(part["text"] for part in value if part["type"] not in _SILENT_PARTS)
    if not isinstance(value, str):
        raise TypeError("the answer is no text")
    return clean_text(value)


def _model(answer: Any) -> str | None:
    """The server's name of the model that answered."""
    name = getattr(answer, "model", None)
    return clean_text(name) if isinstance(name, str) else None


def usage_of(answer: Any) -> Usage | None:
    """The tokens of an answer; None where unknown. Google counts thoughts, which it charges, in the sum only, not in
    the completion's tokens. Anthropic counts tokens from and for its cache apart."""
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


# Errors


def error_in(answer: Any) -> tuple[int, Any] | None:
    """Status and body of the error that a gateway puts in the place of an answer, or beside what came of it."""
    choices = getattr(answer, "choices", None)
    error = getattr(answer, "error", None) or (getattr(choices[0], "error", None) if choices else None)
    code = str(error.get("code")) if isinstance(error, Mapping) else ""
    return (int(code) if re.fullmatch(r"[45]\d\d", code) else 500, error) if error else None


def result_of_error(status: int, body: Any) -> Completion | Literal["no money"] | None:
    """What an error says by its status and its ``body``: :data:`~.types.UNREAD` or :data:`~.types.REFUSED` of a
    conversation, no money left, or (None) something else."""
    names, words, may_be_own = list(_names(body)), str(body), status in (*OWN_FAULT, 413)
    if status == 402 or any(map(_IS_MONEY.search, names)) or _SAYS_MONEY.search(words):
        return "no money"
    if status == 413 or any(map(_IS_TOO_LONG.search, names)) or (may_be_own and _SAYS_TOO_LONG.search(words)):
        return UNREAD
    is_refusal = any(map(_IS_REFUSAL.search, names)) or (may_be_own and _SAYS_REFUSAL.search(words))
    return REFUSED if is_refusal else None


def named_fields(body: Any) -> list[str]:
    """Fields of a request that an error quotes."""
    return [field for field in _FIELDS if re.search(rf"['\"`]{field}['\"`]", str(body))]


def _names(body: Any) -> Iterator[str]:
    """The names in an error, at any depth, in lower case."""
    todo = [body]
    while todo:
        part = todo.pop()
        todo += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
        if isinstance(part, Mapping):
            yield from (str(part[key]).casefold() for key in _NAMES if isinstance(part.get(key), str))


def seconds_to_wait(headers: Mapping[str, str]) -> float:
    """The seconds that a server asks to wait (Retry-After); 0 where it does not say so, or in no known form."""
    wait, milliseconds = headers.get("retry-after", ""), headers.get("retry-after-ms", "")
    for text, unit in ((milliseconds, 1000), (wait, 1)):
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return float(text) / unit
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
    except ValueError:
        return 0.0
