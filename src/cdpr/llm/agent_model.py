"""The wrapper through which agents call a language model. It counts calls and tokens, and follows the model's entry in
``workflow/models.yaml``: sampling parameters, system message, and where the answer begins in a reply."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from ..settings import ModelEntry
from .types import Completion, Ids, Messages, Model, Sampling


@dataclass
class Meter:
    """Counts of the model calls of an agent; they are reported beside its results.

    - ``calls``: completions that the agent received. ``prompt_tokens`` and ``completion_tokens``: the sums of their
      tokens; None as soon as a server has not reported those of a completion.
    - ``silent``: completions without text.
    - ``too_long``, ``refused``, ``failed``: completions with the finish reason ``too_long``, ``refusal`` or ``failed``
      (:class:`~.types.Completion`).
    - ``cut``: calls whose prompt lost a part, because the agent shortened it to ``policy.max_prompt_tokens`` or the
      server read only a part.
    - ``unmarked``: replies in which :func:`cut_answer` did not find where the answer begins.
    - ``retries``: requests that were sent again, also those of a judge or matcher that is a model.
    - ``models``: the names under which servers answered.
    - ``prompts``: for each conversation that was sent, the number of prompt tokens that the server reported. The key is
      the tuple of the texts of its messages.
    """

    calls: int = 0
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    unmarked: int = 0
    silent: int = 0
    too_long: int = 0
    refused: int = 0
    failed: int = 0
    cut: int = 0
    models: set[str] = field(default_factory=set)
    retries: int = 0
    prompts: dict[tuple[str, ...], int] = field(default_factory=dict)

    def count(self, completions: Iterable[Completion], messages: Messages = ()) -> None:
        """Add completions to the counts. ``messages`` is the conversation that they answer; it is empty where the
        prompt was given as token ids."""
        for completion in completions:
            self.calls += 1
            self.silent += not completion.text.strip()
            self.too_long += completion.finish_reason == "too_long"
            self.refused += completion.finish_reason == "refusal"
            self.failed += completion.finish_reason == "failed"
            self.cut += self._is_cut(messages, completion)
            if completion.model:
                self.models.add(completion.model)
            if completion.usage is None or self.prompt_tokens is None or self.completion_tokens is None:
                self.prompt_tokens = self.completion_tokens = None
            else:
                self.prompt_tokens += completion.usage.prompt_tokens
                self.completion_tokens += completion.usage.completion_tokens

    def _is_cut(self, messages: Messages, completion: Completion) -> bool:
        """Whether the server read only a part of the conversation ``messages``: whether the number of prompt tokens
        that it reported with ``completion`` is smaller than the texts of the messages allow (:func:`_fewest_tokens`).
        False where the number is unknown.

        Adds the number to ``prompts``, so that the number of the next turn is compared with it.
        """
        if not messages or completion.usage is None or completion.finish_reason not in ("stop", "length"):
            return False
        reported = completion.usage.prompt_tokens
        texts = tuple(message["content"] for message in messages)
        # Without the replies of the assistant, since chat templates remove the model's thoughts from them.
        fewest = sum(_fewest_tokens(message["content"]) for message in messages if message["role"] != "assistant")
        earlier = texts[:-2]  # the conversation before the last reply and the last user message
        if earlier in self.prompts:  # the new prompt holds all tokens of the earlier one, and the last user message
            fewest = max(fewest, self.prompts[earlier] + _fewest_tokens(texts[-1]))
        self.prompts[texts] = reported
        return reported < fewest


def _fewest_tokens(text: str) -> int:
    """Compute a lower bound of the number of tokens of a text in any tokenizer: one per word separated by spaces, and
    one per four Chinese characters, which have no spaces."""
    return len(text.split()) + len(_CHINESE.findall(text)) // 4


_CHINESE = re.compile("[\u3400-\u9fff]")
# The suffix that providers append to the name of a model: a date, or the version of a preview ("-preview-09-2025").
_SNAPSHOT = re.compile(r"([-@:.](\d+|latest|preview|exp))*")


def is_same_model(name: str, other: str) -> bool:
    """Whether a server that answers under the name ``other`` ran the requested model ``name``. The names may differ in
    case, in the folders before the name, and by a date or version behind ``other``: "gpt-5" may answer as
    "gpt-5-2026-01-31", and "org/Qwen3" as "qwen3"."""
    _folders, _, requested = name.casefold().rstrip("/").rpartition("/")
    _folders, _, answered = other.casefold().rstrip("/").rpartition("/")
    return answered.startswith(requested) and _SNAPSHOT.fullmatch(answered.removeprefix(requested)) is not None


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)  # that of the innermost `metering` context


@contextlib.contextmanager
def metering() -> Iterator[Meter]:
    """Count the model calls that are made inside this context manager, also in asyncio tasks started there; yields the
    :class:`Meter`.

    A call counts only in the innermost context, so that the calls of a judge do not count for the agent that it judges.
    Repeated requests (``retries``) count in the outer meter too.
    """
    meter, outer = Meter(), current_meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)
        outer.retries += meter.retries


def current_meter() -> Meter:
    """Get the :class:`Meter` that counts model calls here: that of the innermost :func:`metering` context. Outside of
    any context it is a new one, whose counts are not reported."""
    return _METER.get() or Meter()


class AgentModel(Model):
    """A wrapper of ``model`` that counts its completions in the current :class:`Meter`, those replayed from recordings
    included.

    With ``entry``, the model's entry in ``workflow/models.yaml``, it takes only messages, no token ids. The entry says
    how to sample, whether the system message becomes part of the first user message, and how to cut the answer out of a
    reply.
    """

    def __init__(self, model: Model, entry: ModelEntry | None = None) -> None:
        """Wrap ``model``. ``entry`` is its entry in ``workflow/models.yaml``; without one nothing of requests and
        replies is changed."""
        self.model, self.entry = model, entry or ModelEntry()
        self.tokenizer = None if entry else model.tokenizer

    def __repr__(self) -> str:
        """The name of the wrapped model, for error messages."""
        return repr(self.model)

    async def sample(self, prompt_ids: Ids, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one completion of the prompt ``prompt_ids`` (token ids) for each index in ``samples``, and count them.
        Raises SettingsError for a model that takes only messages."""
        if self.tokenizer is None:
            return await super().sample(prompt_ids, samples, sampling, seed)  # raises
        completions = await self.model.sample(prompt_ids, samples, sampling, seed)
        current_meter().count(completions)
        return completions

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample one reply to a conversation for each index in ``samples``, and count them. Returns them with only
        their answer as text: the thoughts before it are cut off (:func:`cut_answer`)."""
        messages = _fold_system(messages) if self.entry.system == "fold" else messages
        completions = await self.model.chat(messages, samples, self._merge_sampling(sampling), seed)
        current_meter().count(completions, messages)
        return [self._cut_answer(completion) for completion in completions]

    def _merge_sampling(self, sampling: Sampling) -> Sampling:
        """Replace the sampling parameters of a request by those that the model's entry sets. The temperature
        ``evaluation`` of an entry stands for that of the request. An entry can only raise ``max_tokens``, so that the
        model has room for its thoughts."""
        own = self.entry.sampling
        temperature = sampling.temperature if own.temperature == "evaluation" else own.temperature
        max_tokens = max(sampling.max_tokens, own.max_tokens or 0)
        top_p, top_k = own.top_p or sampling.top_p, own.top_k or sampling.top_k
        return replace(sampling, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k)

    def refresh(self) -> None:
        """Clear the caches of the wrapped model."""
        self.model.refresh()

    def _cut_answer(self, completion: Completion) -> Completion:
        """Return the completion with only its answer as text (:func:`cut_answer`), and count it as ``unmarked`` where
        no mark of the answer was found."""
        text, is_marked = cut_answer(completion.text, self.entry.answer)
        # Completions of these two reasons have no text that could be marked.
        current_meter().unmarked += not is_marked and completion.finish_reason not in ("too_long", "failed")
        return replace(completion, text=text)


def cut_answer(text: str, expressions: Sequence[str | re.Pattern[str]]) -> tuple[str, bool]:
    """Find the answer in a reply that begins with the model's thoughts. Returns the answer, and whether a mark of it
    was found.

    The marks are the regular ``expressions`` of the model's entry, such as ``</think>``. The first expression that
    matches anywhere counts, and of it the last match: the answer is the text behind this match, or the group of the
    match if the expression has one. Example: ``"so flu</think> Flu"`` gives ``("Flu", True)``.

    Without a match the whole text is returned as the answer: the reply ended within the thoughts, or the server has
    removed them already. Without ``expressions`` every reply counts as marked.
    """
    for expression in expressions:
        matches = list(re.finditer(expression, text))
        if matches:
            last = matches[-1]
            answer = last[1] if last.re.groups else text[last.end() :]
            return answer.strip(), True
    return text, not expressions  # without expressions no mark is expected, so none is missing


def _fold_system(messages: Messages) -> Messages:
    """Move the texts of the system messages to the beginning of the first user message, for models whose chat template
    has no system role. Returns the new conversation."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    first, *others = [message for message in messages if message["role"] != "system"]
    return [{**first, "content": "\n\n".join([*system, first["content"]])}, *others]
