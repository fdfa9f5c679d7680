"""A model as agents use it: its calls and tokens are counted, and requests and answers follow its registry entry."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from ..settings import ModelEntry
from .types import Completion, Messages, Model, Sampling


@dataclass
class Meter:
    """Calls (several answers to one question are several) and their tokens; tokens are None once a server left them
    out. ``silent`` calls brought no word: some were ``too_long`` for the model, others ``refused`` or, for an unknown
    reason, ``failed``. ``cut`` calls lost a part of their prompt; ``unmarked`` counts answers without their mark
    (:func:`cut_answer`). ``models`` are the names under which servers answered. ``retries`` were needed for these
    calls and for those of judges and matchers."""

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
        """Add these answers, to ``messages`` if there are any."""
        for completion in completions:
            self.calls += 1
            self.silent += not completion.text.strip()
            self.too_long += completion.finish_reason == "too_long"
            self.refused += completion.finish_reason == "refusal"
            self.failed += completion.finish_reason == "failed"
            self.cut += self._is_cut(messages, completion)
            self.models |= {completion.model} if completion.model else set()
            if completion.usage is None or self.prompt_tokens is None or self.completion_tokens is None:
                self.prompt_tokens = self.completion_tokens = None
            else:
                self.prompt_tokens += completion.usage.prompt_tokens
                self.completion_tokens += completion.usage.completion_tokens

    def _is_cut(self, messages: Messages, completion: Completion) -> bool:
        """Whether the server read less than it was sent: fewer tokens than there are words, or hardly more than before
        the last two messages. Replies do not count, since templates leave the thoughts in them out."""
        if not messages or completion.usage is None or completion.finish_reason not in ("stop", "length"):
            return False
        tokens = completion.usage.prompt_tokens
        contents = tuple(message["content"] for message in messages)
        least = sum(_words(m["content"]) for m in messages if m["role"] != "assistant")
        if before := self.prompts.get(contents[:-2]):
            least = max(least, before + _words(contents[-1]))
        self.prompts[contents] = tokens
        return tokens < least


def _words(text: str) -> int:
    """Words, and Chinese characters in fours: no tokenizer makes fewer tokens of a text."""
    return len(text.split()) + len(_CHINESE.findall(text)) // 4


_CHINESE = re.compile("[\u3400-\u9fff]")
# What providers append to the name of a model: a date, a version of a preview.
_SNAPSHOT = re.compile(r"([-@:.](\d+|latest|preview|exp))*")


def is_same_model(name: str, other: str) -> bool:
    """Whether ``other``, a server's name of a model, is the ``name`` of the request, but for a folder before and a date
    behind."""
    first, second = (full.casefold().rstrip("/").rpartition("/")[2] for full in (name, other))
    return second.startswith(first) and _SNAPSHOT.fullmatch(second[len(first) :]) is not None


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def metering() -> Iterator[Meter]:
    """A meter that counts all calls of the block, also those of tasks started in it. An inner block has a meter of its
    own, which the outer one does not count: so the calls of judges do not."""
    meter, outer = Meter(), running()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)
        outer.retries += meter.retries


def running() -> Meter:
    """The current meter; a new one outside of :func:`metering`."""
    return _METER.get() or Meter()


class AgentModel(Model):
    """``model`` as agents use it: the current meter counts its answers, recorded ones like paid ones.

    With the ``entry`` of a model of the registry it takes messages alone, here as on a server: the system message is
    folded for templates without that role, answers are drawn as the entry says and cut out of the reply.
    """

    def __init__(self, model: Model, entry: ModelEntry | None = None) -> None:
        self.model, self.entry = model, entry or ModelEntry()
        self.tokenizer = None if entry else model.tokenizer

    def __repr__(self) -> str:
        return repr(self.model)

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        if self.tokenizer is None:
            return await super().sample(prompt_ids, samples, sampling, seed)
        completions = await self.model.sample(prompt_ids, samples, sampling, seed)
        running().count(completions)
        return completions

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Answers, without the thoughts before them."""
        messages = _fold_system(messages) if self.entry.system == "fold" else messages
        own = self.entry.sampling.model_dump(exclude_none=True) | {"temperature": self.entry.sampling.temperature}
        if own["temperature"] == "evaluation":
            del own["temperature"]
        own["max_tokens"] = max(sampling.max_tokens, own.get("max_tokens", 0))  # room for the thoughts of the model
        completions = await self.model.chat(messages, samples, replace(sampling, **own), seed)
        running().count(completions, messages)
        return [self._answer(completion) for completion in completions]

    def refresh(self) -> None:
        self.model.refresh()

    def _answer(self, completion: Completion) -> Completion:
        text, marked = cut_answer(completion.text, self.entry.answer)
        running().unmarked += not marked and completion.finish_reason not in ("too_long", "failed")
        return replace(completion, text=text)


def cut_answer(text: str, expressions: Sequence[str]) -> tuple[str, bool]:
    """The answer in ``text``, and whether it was marked (:attr:`~cdpr.settings.ModelEntry.answer`): the text behind the
    last match of the first expression that matches, or the group of that match. Without a mark (a thought was cut off,
    a server had removed it) the answer is the whole text."""
    for expression in expressions:
        *_, last = [None, *re.finditer(expression, text)]
        if last is not None:
            answer = last[1] if last.re.groups else text[last.end() :]
            return answer.strip(), True
    return text, not expressions


def _fold_system(messages: Messages) -> Messages:
    """The conversation with its system messages as the beginning of the first turn of the user."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    first, *others = [message for message in messages if message["role"] != "system"]
    return [{**first, "content": "\n\n".join([*system, first["content"]])}, *others]
