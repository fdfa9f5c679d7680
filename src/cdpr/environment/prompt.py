"""The prompt of a state: the paper's, or the same grammar in few tokens for the tiny model (style ``compact``)."""

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
# Replaces an empty reply in a conversation: servers refuse empty messages.
NO_ANSWER = "(no answer)"
_FORCED_NOTE = "No further examination is possible. Give your final diagnosis now."
_EMPTY = {"", "none", "non contributory", "noncontributory", "unremarkable", "unknown", "not available"}


def opening_text(settings: Prompt, case: CaseRecord, whole: bool = False) -> str:
    """The text of the first user message: the presentation; with ``whole``, for static diagnosis, also every result."""
    results = case.key_pertinent_results_dict.items() if whole else ()
    if settings.style == "compact":
        parts = [f"{exam}: {compact_result(text)}" for exam, text in results]
        return " | ".join([compact_presentation(case.case_summary), *parts])
    lines = [f"- {exam}: {text}" for exam, text in results]
    return "\n".join([case.case_summary, *(["Examination results:"] if whole else []), *lines])


def opening_messages(settings: Prompt, text: str) -> Conversation:
    """The messages before the first reply: the paper's agent prompt (appendix, "Prompt Templates") as system message,
    then ``text``. The compact style has no system message."""
    if settings.style == "compact":
        return [{"role": "user", "content": text}]
    common = text_file("common_diagnoses.txt") if settings.common_diagnoses else ""
    system = text_file("agent.txt").replace("{common_diagnoses}\n", common + "\n")
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def observation_text(settings: Prompt, step: Step, forced: bool) -> str:
    """The user message after a step: the environment's answer. ``forced`` adds that a diagnosis must follow."""
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
    """The sections of a case summary without headings and without empty ones, joined by " | "."""
    parts = []
    for line in summary.splitlines():
        _, separator, content = line.partition(": ")
        content = (content if separator else line).strip(" -\n")
        if content.rstrip(".").lower().replace("-", " ") not in _EMPTY:
            parts.append(content)
    return " | ".join(parts)


@functools.lru_cache(maxsize=1 << 15)
def compact_result(text: str) -> str:
    """A laboratory result in few words: the analytes out of range with their level and grade
    (:attr:`~cdpr.cases.Analyte.grade`), "normal" where there are none. A report is returned unchanged."""
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
    """The text of a file in the folder ``prompts``."""
    return shipped_text(__package__, "prompts", name)


class PromptBuilder:
    """Builds the prompt of a state: token ids, or messages for models without a ``tokenizer``
    (:class:`cdpr.llm.tokenizer.ChatTokenizer`).

    Token prompts reuse the sampled tokens, so that nothing is tokenised twice; those of a forced turn end with the
    first words of a diagnosis. Messages ask for the diagnosis in words. ``whole`` shows the whole record, for static
    diagnosis. The first prompt has at most ``max_prompt_tokens`` tokens.
    """

    def __init__(self, settings: Prompt, tokenizer: Any, max_prompt_tokens: int):
        self.settings, self.max_prompt_tokens, self.tokenizer = settings, max_prompt_tokens, tokenizer
        self._opening = functools.lru_cache(maxsize=4096)(self._encode_opening)
        self._followup = functools.lru_cache(maxsize=1 << 15)(lambda text: tuple(self.tokenizer.followup(text)))
        self._encoded = functools.lru_cache(maxsize=1 << 14)(lambda text: tuple(self.tokenizer.encode(text)))

    def messages(self, state: State, forced: bool, whole: bool = False) -> Conversation:
        """The messages before the next reply."""
        messages = opening_messages(self.settings, opening_text(self.settings, state.case, whole))
        for step in state.history:
            messages.append({"role": "assistant", "content": step.turn.text if step.turn.text.strip() else NO_ANSWER})
            messages.append({"role": "user", "content": observation_text(self.settings, step, False)})
        if forced:
            messages[-1]["content"] += f"\n{_FORCED_NOTE}"
        return messages

    def prompt_ids(self, state: State, forced: bool, whole: bool = False) -> tuple[int, ...]:
        """Token ids of everything before the next reply. With ``forced`` they end with the first words of a diagnosis,
        which the reply continues."""
        whole_record = opening_text(self.settings, state.case, whole)
        ids = self._opening(whole_record)[0] if whole else self.context_ids(state, forced)
        return (*ids, *self.forced_prefix_ids) if forced else ids

    def context_ids(self, state: State, forced: bool = False) -> tuple[int, ...]:
        """Token ids of the first prompt and of all replies and observations so far; ``forced`` adds to the last
        observation that a diagnosis must follow."""
        if not state.history:
            return self._opening(opening_text(self.settings, state.case))[0]
        last = state.history[-1]
        # A sampled reply carries its prompt; other histories are built from the start.
        before = last.turn.prompt_ids or self.context_ids(State(state.case, state.history[:-1]))
        followup = self._followup(observation_text(self.settings, last, forced))
        return (*before, *self.reply_ids(last), *followup)

    def response_length(self, state: State) -> int:
        """Number of tokens of replies and observations so far: :meth:`context_ids` without the first prompt."""
        return len(self.context_ids(state)) - len(self.context_ids(State(state.case)))

    def reply_ids(self, step: Step) -> tuple[int, ...]:
        """Token ids of a reply, with the end-of-turn token at the end."""
        ids = step.turn.token_ids or self._encoded(step.turn.text)
        return ids if ids and ids[-1] in self.tokenizer.eos_ids else (*ids, self.tokenizer.end_of_turn)

    @property
    def forced_prefix_ids(self) -> tuple[int, ...]:
        """Token ids of the first words of a diagnosis, with which a forced reply begins."""
        return self._encoded(FORCED_PREFIX[self.settings.style])

    def is_cut(self, case: CaseRecord, whole: bool = False) -> bool:
        """Whether the first prompt leaves out a part of the case, which exceeds ``max_prompt_tokens``."""
        return self._opening(opening_text(self.settings, case, whole))[1]

    def _encode_opening(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Token ids of the first prompt, and whether its text was cut. A text that is too long loses its middle; the
        prompt leaves room for the prefix of a forced reply. Raises SettingsError where even an empty text is too long.
        """
        limit = self.max_prompt_tokens - len(self.forced_prefix_ids)

        @functools.cache
        def cut_ids(characters: int) -> tuple[int, ...]:
            half = characters // 2
            cut = text if characters >= len(text) else f"{text[:half]} ... {text[len(text) - half :]}"
            return tuple(self.tokenizer.opening(opening_messages(self.settings, cut)))

        if len(cut_ids(len(text))) <= limit:
            return cut_ids(len(text)), False
        longest = bisect_right(range(len(text)), limit, key=lambda characters: len(cut_ids(characters))) - 1
        if longest < 0:
            raise SettingsError(
                f"policy.max_prompt_tokens: {self.max_prompt_tokens} tokens do not hold the prompt without a case, "
                f"which takes {len(cut_ids(0)) + len(self.forced_prefix_ids)}; raise it, or shorten environment.prompt"
            )
        return cut_ids(longest), True
