"""A model as agents call it: calls and tokens are counted, and requests and answers follow its registry entry."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from ..settings import ModelEntry
from .types import Completion, Messages, Model, Sampling


@dataclass
class Meter:
    """Counts of the model calls of an agent.

    - ``calls``: the answers. ``prompt_tokens``, ``completion_tokens``: their tokens; None once a server has not
      reported them.
    - ``silent``: answers without text. Some of these conversations were ``too_long``, ``refused``, or ``failed`` for an
      unknown reason.
    - ``cut``: calls whose prompt lost a part, here (``policy.max_prompt_tokens``) or at the server.
    - ``unmarked``: answers in which :func:`cut_answer` found no mark.
    - ``retries``: repeated requests, those of judges and matchers included.
    - ``models``: the names under which servers answered.
    - ``prompts``: the number of prompt tokens of each conversation so far, by the contents of its messages.
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
        """Add answers to the counts; ``messages`` is the conversation that they answer, empty for token prompts."""
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
        """Whether the server read only a part of the conversation. Then it reports fewer prompt tokens than the
        messages must have, or than it reported two messages ago plus those of the last message. Assistant messages are
        not counted, since templates remove the thoughts in them."""
        if not messages or completion.usage is None or completion.finish_reason not in ("stop", "length"):
            return False
        contents = tuple(message["content"] for message in messages)
        fewest = sum(_fewest_tokens(m["content"]) for m in messages if m["role"] != "assistant")
        if contents[:-2] in self.prompts:
            fewest = max(fewest, self.prompts[contents[:-2]] + _fewest_tokens(contents[-1]))
        self.prompts[contents] = completion.usage.prompt_tokens
        return completion.usage.prompt_tokens < fewest


def _fewest_tokens(text: str) -> int:
    """Compute a lower bound of the number of tokens of a text: one per word, and one per four Chinese characters."""
    return len(text.split()) + len(_CHINESE.findall(text)) // 4


_CHINESE = re.compile("[\u3400-\u9fff]")
# The suffix that providers append to the name of a model: a date, or the version of a preview.
_SNAPSHOT = re.compile(r"([-@:.](\d+|latest|preview|exp))*")


def is_same_model(name: str, other: str) -> bool:
    """Whether a server that answers under the name ``other`` ran the requested model ``name``: "gpt-5" may answer as
    "gpt-5-2026-01-31", "org/Qwen3" as "qwen3". Folders before a name, and a date or version behind it, do not count."""
    requested, answered = (full.casefold().rstrip("/").rpartition("/")[2] for full in (name, other))
    return answered.startswith(requested) and _SNAPSHOT.fullmatch(answered[len(requested) :]) is not None


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextlib.contextmanager
def metering() -> Iterator[Meter]:
    """Count the model calls in a context, also those of tasks started in it; yields the meter. Calls in a nested
    context count only in the inner meter: so the calls of judges do not count for the agent."""
    meter, outer = Meter(), current_meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)
        outer.retries += meter.retries


def current_meter() -> Meter:
    """The meter of the innermost :func:`metering`; outside of any a new one, whose counts are dropped."""
    return _METER.get() or Meter()


class AgentModel(Model):
    """A wrapper of ``model`` that counts its answers in the current meter, also recorded ones.

    With an ``entry`` (a model of the registry) it takes only messages. The entry says how to sample, whether to fold
    the system message into the first user message, and how to cut the answer out of a reply.
    """

    def __init__(self, model: Model, entry: ModelEntry | None = None) -> None:
        self.model, self.entry = model, entry or ModelEntry()
        self.tokenizer = None if entry else model.tokenizer

    def __repr__(self) -> str:
        return repr(self.model)

    async def sample(
        self, prompt_ids: Sequence[int], samples: Sequence[int], sampling: Sampling, seed: int
    ) -> list[Completion]:
        """Sample completions of a token prompt and count them."""
        if self.tokenizer is None:
            return await super().sample(prompt_ids, samples, sampling, seed)
        completions = await self.model.sample(prompt_ids, samples, sampling, seed)
        current_meter().count(completions)
        return completions

    async def chat(self, messages: Messages, samples: Sequence[int], sampling: Sampling, seed: int) -> list[Completion]:
        """Sample answers to a conversation and add them to the current meter; returns them without the model's thoughts
        before the answer."""
        messages = _fold_system(messages) if self.entry.system == "fold" else messages
        completions = await self.model.chat(messages, samples, self._merge_sampling(sampling), seed)
        current_meter().count(completions, messages)
        return [self._cut_answer(completion) for completion in completions]

    def _merge_sampling(self, sampling: Sampling) -> Sampling:
        """Replace sampling parameters by those that the model's entry sets; of the two ``max_tokens`` the larger
        counts, so that the model has room for its thoughts."""
        own = self.entry.sampling
        temperature = sampling.temperature if own.temperature == "evaluation" else own.temperature
        most = max(sampling.max_tokens, own.max_tokens or 0)
        top_p, top_k = own.top_p or sampling.top_p, own.top_k or sampling.top_k
        return replace(sampling, max_tokens=most, temperature=temperature, top_p=top_p, top_k=top_k)

    def refresh(self) -> None:
        """Clear the caches of the model."""
        self.model.refresh()

    def _cut_answer(self, completion: Completion) -> Completion:
        """Cut the text of a completion down to its answer; an answer without a mark is counted."""
        text, is_marked = cut_answer(completion.text, self.entry.answer)
        current_meter().unmarked += not is_marked and completion.finish_reason not in ("too_long", "failed")
        return replace(completion, text=text)


def cut_answer(text: str, expressions: Sequence[str]) -> tuple[str, bool]:
    """Find the answer in a reply that begins with thoughts; returns it, and whether one of ``expressions`` marked it.

    These are the regular expressions of :attr:`~cdpr.settings.ModelEntry.answer`, such as ``</think>``. The answer is
    the text behind the last match of the first one that matches, or the group of that match. Without a match it is the
    whole text: the model's thoughts were cut off, or the server had removed them. Without expressions every reply
    counts as marked.
    """
    for expression in expressions:
        matches = list(re.finditer(expression, text))
        if matches:
            last = matches[-1]
            answer = last[1] if last.re.groups else text[last.end() :]
            return answer.strip(), True
    return text, not expressions


def _fold_system(messages: Messages) -> Messages:
    """Move the system messages of a conversation to the beginning of its first user message."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    first, *others = [message for message in messages if message["role"] != "system"]
    return [{**first, "content": "\n\n".join([*system, first["content"]])}, *others]
