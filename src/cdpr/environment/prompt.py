"""The prompt of a state. It is that of the paper, or in the style ``compact`` a short one with the same actions, for
the tiny model."""

import functools
from bisect import bisect_right
from typing import Any

from ..cases import CaseRecord, parse_analytes
from ..files import parse_yaml, shipped_text
from ..settings import Prompt, SettingsError
from .state import State, Step

Conversation = list[dict[str, str]]

# The words that introduce a diagnosis, by the style of the prompt. A forced prompt ends with them, so that the reply,
# which continues them, always names a diagnosis.
FORCED_PREFIX = {"full": "ACTION: FINAL_DIAGNOSIS\nDiagnosis:", "compact": "FINAL_DIAGNOSIS:"}
# Replaces an empty reply in a conversation: servers refuse empty messages.
NO_ANSWER = "(no answer)"
_OBSERVATIONS = parse_yaml(shipped_text(__package__, "prompts", "observations.yaml"))  # by the kind of an observation
_FORCED_NOTE = "No further examination is possible. Give your final diagnosis now."
# Contents of a section of a case summary that say nothing, in small letters and without hyphens.
_EMPTY = {"", "none", "non contributory", "noncontributory", "unremarkable", "unknown", "not available"}


def opening_text(settings: Prompt, case: CaseRecord, whole: bool = False) -> str:
    """Write the first user message of an episode: the presentation of the case and, with ``whole``, every result on
    record. The compact style shortens the presentation and the results, and joins them by " | "."""
    results = case.key_pertinent_results_dict.items() if whole else ()
    if settings.style == "compact":
        shortened = [f"{exam}: {compact_result(text)}" for exam, text in results]
        return " | ".join([compact_presentation(case.case_summary), *shortened])
    heading = ["Examination results:"] if whole else []
    return "\n".join([case.case_summary, *heading, *(f"- {exam}: {text}" for exam, text in results)])


def opening_messages(settings: Prompt, text: str) -> Conversation:
    """Make the messages before the first reply: a system message with the agent prompt of the paper (appendix, "Prompt
    Templates"), and a user message with ``text``. The compact style has no system message."""
    if settings.style == "compact":
        return [{"role": "user", "content": text}]
    # The list of diagnoses replaces the line `{common_diagnoses}` of the prompt; without a list the line is empty.
    common = text_file("common_diagnoses.txt") if settings.common_diagnoses else ""
    system = text_file("agent.txt").replace("{common_diagnoses}\n", common + "\n")
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def observation_text(settings: Prompt, step: Step, forced: bool) -> str:
    """Write the user message after a step: its observation in words, such as "Result of CBC: WBC high". With ``forced``
    it also says that a diagnosis must follow. The compact style writes only the shortened result, or the kind of an
    observation without one, such as "over budget"."""
    answer, name = step.observation, getattr(step.action, "name", "")  # of the requested examination; else empty
    if settings.style == "compact":
        return compact_result(answer.text) if answer.kind in ("result", "repeat") else answer.kind.replace("_", " ")
    text = _OBSERVATIONS[answer.kind].format(name=name, exam=answer.exam_key, result=answer.text)
    return f"{text}\n{_FORCED_NOTE}" if forced else text


@functools.lru_cache(maxsize=1 << 12)
def compact_presentation(summary: str) -> str:
    """Shorten a case summary to the contents of its sections, without headings, joined by " | ". Sections that say
    nothing ("None", "Unremarkable") are left out."""
    parts = []
    for line in summary.splitlines():
        _, separator, content = line.partition(": ")
        content = (content if separator else line).strip(" -\n")
        if content.rstrip(".").lower().replace("-", " ") not in _EMPTY:
            parts.append(content)
    return " | ".join(parts)


@functools.lru_cache(maxsize=1 << 15)
def compact_result(text: str) -> str:
    """Shorten a laboratory result to its notable analytes: "WBC high 1, Sodium low". An analyte out of its reference
    range has its level, and its grade (:attr:`~cdpr.cases.Analyte.grade`) unless that is 0; one without a known range
    has its value. Returns "normal" where none is notable. A report in words is returned unchanged."""
    analytes = parse_analytes(text)
    if not analytes:
        return text
    notable = []
    for analyte in analytes:
        if analyte.level is None:
            notable.append(f"{analyte.label} {analyte.value or analyte.comments or ''}".strip())
        elif analyte.level != "normal":
            notable.append(f"{analyte.label} {analyte.level} {analyte.grade or ''}".rstrip())  # grade 0: left out
    return ", ".join(notable) or "normal"


@functools.cache
def text_file(name: str) -> str:
    """Read the text file ``name`` in this package's folder ``prompts``, once per process."""
    return shipped_text(__package__, "prompts", name)


class PromptBuilder:
    """Builds the prompt of a state: token ids by a ``tokenizer`` (:class:`cdpr.llm.tokenizer.ChatTokenizer`), or chat
    messages for models without one.

    Token prompts reuse the sampled tokens, so that nothing is tokenised twice. A token prompt that forces a diagnosis
    ends with the words that introduce one ("FINAL_DIAGNOSIS:", :data:`FORCED_PREFIX`); messages demand it in a
    sentence. With ``whole`` a prompt shows all results on record. The first prompt of an episode has at most
    ``max_prompt_tokens`` tokens.
    """

    def __init__(self, settings: Prompt, tokenizer: Any, max_prompt_tokens: int):
        """Prepare three functions that encode a text: as the first prompt, as a user message, and as it is. They cache
        their results, because the same texts come in every episode of a case and at every turn of an episode."""
        self.settings, self.max_prompt_tokens, self.tokenizer = settings, max_prompt_tokens, tokenizer
        self._encode_opening = functools.lru_cache(4096)(self._cut_opening)
        self._encode_user_turn = functools.lru_cache(1 << 15)(lambda text: tuple(tokenizer.encode_user_turn(text)))
        self._encode = functools.lru_cache(1 << 14)(lambda text: tuple(tokenizer.encode(text)))

    def messages(self, state: State, forced: bool, whole: bool = False) -> Conversation:
        """The chat messages before the next reply at a state. With ``forced`` the last one demands a diagnosis; with
        ``whole`` the first shows all results on record."""
        messages = opening_messages(self.settings, opening_text(self.settings, state.case, whole))
        for step in state.history:
            messages.append({"role": "assistant", "content": step.turn.text if step.turn.text.strip() else NO_ANSWER})
            messages.append({"role": "user", "content": observation_text(self.settings, step, False)})
        if forced:
            messages[-1]["content"] += f"\n{_FORCED_NOTE}"
        return messages

    def prompt_ids(self, state: State, forced: bool, whole: bool = False) -> tuple[int, ...]:
        """The token ids of everything before the next reply at a state. With ``forced`` they end with the words that
        introduce a diagnosis ("FINAL_DIAGNOSIS:"), so that the reply can only name one. With ``whole`` they hold all
        results on record, and no history."""
        if whole:
            ids, _is_cut = self._encode_opening(opening_text(self.settings, state.case, whole=True))
        else:
            ids = self.context_ids(state, forced)
        return (*ids, *self.forced_prefix_ids) if forced else ids

    def context_ids(self, state: State, forced: bool = False) -> tuple[int, ...]:
        """The token ids of the first prompt and of all replies and observations so far. With ``forced`` the last
        observation also says that a diagnosis must follow."""
        if not state.history:
            ids, _is_cut = self._encode_opening(opening_text(self.settings, state.case))
            return ids
        last = state.history[-1]
        # A sampled reply has the ids of its own prompt; those of another one are built from the start.
        before = last.turn.prompt_ids or self.context_ids(State(state.case, state.history[:-1]))
        observation = self._encode_user_turn(observation_text(self.settings, last, forced))
        return (*before, *self.reply_ids(last), *observation)

    def response_length(self, state: State) -> int:
        """The number of tokens of all replies and observations so far: :meth:`context_ids` without the first prompt."""
        return len(self.context_ids(state)) - len(self.context_ids(State(state.case)))

    def reply_ids(self, step: Step) -> tuple[int, ...]:
        """The token ids of the reply of a step: those that were sampled, or else those of its text. An end-of-turn
        token is added where they do not end with an end token."""
        ids = step.turn.token_ids or self._encode(step.turn.text)
        return ids if ids and ids[-1] in self.tokenizer.eos_ids else (*ids, self.tokenizer.end_of_turn)

    @property
    def forced_prefix_ids(self) -> tuple[int, ...]:
        """The token ids of the words that introduce a diagnosis (:data:`FORCED_PREFIX`). A forced prompt ends with
        them."""
        return self._encode(FORCED_PREFIX[self.settings.style])

    def is_cut(self, case: CaseRecord, whole: bool = False) -> bool:
        """Whether the first prompt of a case leaves out a part of its text, because it would exceed
        ``max_prompt_tokens``."""
        _ids, is_cut = self._encode_opening(opening_text(self.settings, case, whole))
        return is_cut

    def _cut_opening(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Encode the first prompt, with the user message ``text``: returns its token ids, and whether the text was cut.

        A text with which the prompt exceeds ``max_prompt_tokens`` loses as much of its middle as necessary. Room is
        left for :attr:`forced_prefix_ids`. Raises SettingsError where the prompt is too long even without a text.
        """
        limit = self.max_prompt_tokens - len(self.forced_prefix_ids)

        @functools.cache
        def cut_ids(characters: int) -> tuple[int, ...]:
            """The token ids of the prompt whose text keeps this many characters, half of them from its beginning and
            half from its end."""
            half = characters // 2
            cut = text if characters >= len(text) else f"{text[:half]} ... {text[len(text) - half :]}"
            return tuple(self.tokenizer.encode_conversation(opening_messages(self.settings, cut)))

        if len(cut_ids(len(text))) <= limit:
            return cut_ids(len(text)), False
        # The most characters with which the prompt is not too long, found by bisection; -1 where 0 are too many.
        longest = bisect_right(range(len(text)), limit, key=lambda characters: len(cut_ids(characters))) - 1
        if longest < 0:
            raise SettingsError(
                f"policy.max_prompt_tokens: {self.max_prompt_tokens} tokens do not hold the prompt without a case, "
                f"which takes {len(cut_ids(0)) + len(self.forced_prefix_ids)}; raise it, or shorten environment.prompt"
            )
        return cut_ids(longest), True
