"""How a state reads: the paper's prompt, or the same grammar in few tokens for a tiny model."""

import functools
from bisect import bisect_right
from typing import Any

from ..cases import CaseRecord, parse_analytes
from ..files import shipped_text
from ..settings import SettingsError
from ..settings.schema import Prompt
from .state import State, Step

Conversation = list[dict[str, str]]

# A forced turn continues these first words of a diagnosis, so that it always names one.
FORCED_PREFIX = {"full": "ACTION: FINAL_DIAGNOSIS\nDiagnosis:", "compact": "FINAL_DIAGNOSIS:"}
# A silent turn, where it comes before another one: servers refuse messages without a word.
NO_ANSWER = "(no answer)"
_FORCED_NOTE = "No further examination is possible. Give your final diagnosis now."
_EMPTY = {"", "none", "non contributory", "noncontributory", "unremarkable", "unknown", "not available"}


def opening_text(settings: Prompt, case: CaseRecord, whole: bool = False) -> str:
    """What a model reads first: the presentation; for static diagnosis the ``whole`` record, with every result."""
    results = case.key_pertinent_results_dict.items() if whole else ()
    if settings.style == "compact":
        parts = [f"{exam}: {compact_result(text)}" for exam, text in results]
        return " | ".join([compact_presentation(case.case_summary), *parts])
    lines = [f"- {exam}: {text}" for exam, text in results]
    return "\n".join([case.case_summary, *(["Examination results:"] if whole else []), *lines])


def opening_messages(settings: Prompt, text: str) -> Conversation:
    """The messages before the first reply: the paper's agent prompt (appendix, "Prompt Templates") and the opening
    text, in the compact style the text alone."""
    if settings.style == "compact":
        return [{"role": "user", "content": text}]
    common = text_file("common_diagnoses.txt") if settings.common_diagnoses else ""
    system = text_file("agent.txt").replace("{common_diagnoses}\n", common + "\n")
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def observation_text(settings: Prompt, step: Step, forced: bool) -> str:
    """The user message that answers a request; ``forced`` adds that a diagnosis must follow."""
    answer, name = step.observation, getattr(step.action, "name", "")
    if settings.style == "compact":
        return compact_result(answer.text) if answer.kind in ("result", "repeat") else answer.kind.replace("_", " ")
    texts = {
        "result": f"Result of {answer.exam_key}: {answer.text}",
        "repeat": f"{answer.exam_key} was obtained already: {answer.text}",
        "unavailable": f"{name} is not available for this patient. Request a different examination or diagnose.",
        "over_budget": f"{name} would exceed the examination budget and was not done.",
    }
    invalid = "The reply could not be parsed. Follow the response format: request one test or give a diagnosis."
    text = texts.get(answer.kind, invalid)
    return f"{text}\n{_FORCED_NOTE}" if forced else text


@functools.lru_cache(maxsize=1 << 12)
def compact_presentation(summary: str) -> str:
    """The summary's contents without headings and empty sections, joined by bars."""
    parts = []
    for line in summary.splitlines():
        _, separator, content = line.partition(": ")
        content = (content if separator else line).strip(" -\n")
        if content.rstrip(".").lower().replace("-", " ") not in _EMPTY:
            parts.append(content)
    return " | ".join(parts)


@functools.lru_cache(maxsize=1 << 15)
def compact_result(text: str) -> str:
    """The values of a laboratory result out of range, and how far (:attr:`~cdpr.cases.Analyte.grade`); reports
    unchanged."""
    analytes = parse_analytes(text)
    if not analytes:
        return text
    notable = []
    for analyte in analytes:
        if analyte.level is None:
            notable.append(f"{analyte.label} {analyte.value or analyte.comments or ''}".strip())
        elif analyte.level != "normal":
            notable.append(f"{analyte.label} {analyte.level}" + (f" {analyte.grade}" if analyte.grade else ""))
    return ", ".join(notable) or "normal"


@functools.cache
def text_file(name: str) -> str:
    """A prompt of the folder ``prompts``."""
    return shipped_text(__package__, "prompts", name)


class PromptBuilder:
    """A state as a model reads it: token ids, built from the exact sampled tokens (nothing is tokenised twice), or
    messages for models that take nothing else. ``tokenizer`` is a :class:`cdpr.llm.tokenizer.ChatTokenizer`, or None
    for messages. ``whole``: for static diagnosis, the whole record.

    Token prompts of a forced turn end in the first words of the diagnosis; messages ask for the diagnosis in words, and
    the reply is parsed like any other.
    """

    def __init__(self, settings: Prompt, tokenizer: Any, max_prompt_tokens: int):
        self.settings, self.max_prompt_tokens, self.tokenizer = settings, max_prompt_tokens, tokenizer
        self._opening = functools.lru_cache(maxsize=4096)(self._encode_opening)
        self._followup = functools.lru_cache(maxsize=1 << 15)(lambda text: tuple(self.tokenizer.followup(text)))
        self._encoded = functools.lru_cache(maxsize=1 << 14)(lambda text: tuple(self.tokenizer.encode(text)))

    def messages(self, state: State, forced: bool, whole: bool = False) -> Conversation:
        """The conversation up to where the next reply begins."""
        messages = opening_messages(self.settings, opening_text(self.settings, state.case, whole))
        for step in state.history:
            messages.append({"role": "assistant", "content": step.turn.text if step.turn.text.strip() else NO_ANSWER})
            messages.append({"role": "user", "content": observation_text(self.settings, step, False)})
        if forced:
            messages[-1]["content"] += f"\n{_FORCED_NOTE}"
        return messages

    def prompt_ids(self, state: State, forced: bool, whole: bool = False) -> tuple[int, ...]:
        """Everything up to where the next reply begins; a forced reply begins with its prefix."""
        whole_record = opening_text(self.settings, state.case, whole)
        ids = self._opening(whole_record)[0] if whole else self.context_ids(state, forced)
        return (*ids, *self.forced_prefix_ids) if forced else ids

    def context_ids(self, state: State, forced: bool = False) -> tuple[int, ...]:
        """Prompt, replies and observations so far."""
        if not state.history:
            return self._opening(opening_text(self.settings, state.case))[0]
        last = state.history[-1]
        # A sampled reply carries its prompt; other histories are built from the start.
        before = last.turn.prompt_ids or self.context_ids(State(state.case, state.history[:-1]))
        followup = self._followup(observation_text(self.settings, last, forced))
        return (*before, *self.reply_ids(last), *followup)

    def response_length(self, state: State) -> int:
        """Tokens of :meth:`context_ids` behind the first prompt: replies and observations."""
        return len(self.context_ids(state)) - len(self.context_ids(State(state.case)))

    def reply_ids(self, step: Step) -> tuple[int, ...]:
        """Tokens of a reply, closed by the end-of-turn token."""
        ids = step.turn.token_ids or self._encoded(step.turn.text)
        return ids if ids and ids[-1] in self.tokenizer.eos_ids else (*ids, self.tokenizer.end_of_turn)

    @property
    def forced_prefix_ids(self) -> tuple[int, ...]:
        """Tokens with which a forced reply begins."""
        return self._encoded(FORCED_PREFIX[self.settings.style])

    def is_cut(self, case: CaseRecord, whole: bool = False) -> bool:
        """Whether the first prompt lacks a part of the case."""
        return self._opening(opening_text(self.settings, case, whole))[1]

    def _encode_opening(self, text: str) -> tuple[tuple[int, ...], bool]:
        """The first prompt, and whether its text lost its middle, so that the prompt fits also where a forced reply
        begins. Raises SettingsError where it does not fit without any text."""
        most = self.max_prompt_tokens - len(self.forced_prefix_ids)

        @functools.cache
        def ids(keep: int) -> tuple[int, ...]:
            part = text if keep >= len(text) else f"{text[: keep // 2]} ... {text[len(text) - keep // 2 :]}"
            return tuple(self.tokenizer.opening(opening_messages(self.settings, part)))

        if len(ids(len(text))) <= most:
            return ids(len(text)), False
        keep = bisect_right(range(len(text)), most, key=lambda keep: len(ids(keep))) - 1
        if keep < 0:
            raise SettingsError(
                f"policy.max_prompt_tokens: {self.max_prompt_tokens} tokens do not hold the prompt without a case, "
                f"which takes {len(ids(0)) + len(self.forced_prefix_ids)}; raise it, or shorten environment.prompt"
            )
        return ids(keep), True
