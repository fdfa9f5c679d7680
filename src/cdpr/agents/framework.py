"""The base class of published multi-agent frameworks, which send several requests to a language model per decision.

The published frameworks answer one question. Here a framework runs once per state: the question is all that is known
about the patient, the answer is one action. Differences from the published code: docs/deviations.md, D30 to D34.
"""

import functools
import re
from collections.abc import Iterable
from typing import Self

from ..environment import NO_ANSWER, Agent, observation_text, opening_messages
from ..environment.state import Action, FinalDiagnosis, Invalid, State, Turn, parse_action, render_action
from ..files import parse_yaml, shipped_text
from ..llm import Messages, Model, ModelSpec, Sampling, open_model
from ..settings import Settings

# A line with a diagnosis, "Final diagnosis: X"; an answer to a question.
_DIAGNOSIS = re.compile(r"^\W*(?:final |current )?diagnosis\W*:[ \t*]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


@functools.cache
def prompts(file: str) -> dict[str, str]:
    """Read the prompts in the file ``prompts/FILE.yaml``; returns their texts by name."""
    return parse_yaml(shipped_text(__package__, "prompts", f"{file}.yaml"))


def fill_prompt(file: str, name: str, /, **parts: object) -> str:
    """Fill in the prompt ``name`` of the file ``prompts/FILE.yaml``; returns the text. Each of ``parts`` replaces its
    name in braces: ``goal="..."`` replaces ``{goal}``. Raises KeyError for an unknown prompt or a missing part."""
    return prompts(file)[name].format(**parts)


_COMMON_PROMPT = functools.partial(fill_prompt, "shared")  # fills in a prompt that all frameworks use


class Framework(Agent):
    """An agent that decides by one or several conversations with ``model``. Subclasses implement :meth:`act`.

    ``temperature`` is that of the evaluated decoding (0: greedy). ``talk_temperature`` is that of discussions between
    the clinicians that the model plays, None where it is the same. Subclasses give every request a seed of its own,
    derived from the seed of the turn.
    """

    def __init__(self, model: Model, settings: Settings, temperature: float):
        """Keep the model and the settings of environment and prompt. ``temperature`` is for decisions, the setting
        ``frameworks.temperature`` for discussions."""
        self.model, self.temperature = model, temperature
        self.talk_temperature = settings.frameworks.temperature
        self.environment = settings.environment
        # The full style, whatever the policy reads: these agents are made for models that read sentences.
        self.prompt = settings.environment.prompt.model_copy(update={"style": "full"})

    @classmethod
    def build(cls, settings: Settings, spec: ModelSpec, temperature: float, dataset: str = "") -> Self:
        """Build the framework for an evaluation with this decoding ``temperature``, and open the model of ``spec``.
        ``dataset`` is not used."""
        return cls(open_model(spec), settings, temperature)

    def refresh(self) -> None:
        """Clear the caches of the model."""
        self.model.refresh()

    async def ask(self, messages: Messages, max_tokens: int, seed: int, temperature: float | None = None) -> str:
        """Send a conversation to the model. Returns the text of its answer, at most ``max_tokens`` tokens, without
        spaces at the ends. ``temperature`` None means that of the evaluated decoding. Raises ModelFailure where the
        model gives no answer."""
        sampling = Sampling(max_tokens, self.temperature if temperature is None else temperature)
        [answer] = await self.model.chat(messages, (0,), sampling, seed)  # one answer, with the index 0
        return answer.text.strip()

    def describe_state(self, state: State, forced: bool) -> str:
        """Write all that is known about the patient at a state: the presentation, the examinations in order with their
        results, and how many more can follow. With ``forced`` the text says that none can."""
        results = number_lines(observation_text(self.prompt, step, False) for step in state.history) or "None yet."
        # How many examinations can follow. With ``within`` the last of the turns is kept for the diagnosis.
        for_diagnosis = 1 if self.environment.forced_turn == "within" else 0
        left = self.environment.max_turns - for_diagnosis - len(state.history)
        possible = _COMMON_PROMPT("none_left") if forced else _COMMON_PROMPT("left", left=max(left, 1))
        return _COMMON_PROMPT("record", summary=state.case.case_summary, examinations=results, possible=possible)

    def describe_task(self, forced: bool) -> str:
        """Write the instruction to decide, with the format of the answer. It contains the paper's agent prompt, which
        other models get as their system message. With ``forced`` it demands a diagnosis."""
        system, _user = opening_messages(self.prompt, "")
        which = _COMMON_PROMPT("must_diagnose" if forced else "may_examine")
        return _COMMON_PROMPT("task", words=system["content"], which=which)


def append_action(reply: str, action: Action) -> Turn:
    """Make the turn of a reply that has no action in our grammar: the reply's text, then ``action`` in our grammar."""
    return Turn(f"{reply}\n\n{render_action(action, 'full')}".lstrip())


def complete_turn(reply: str, forced: bool) -> Turn:
    """Make the turn of a reply. Where a ``forced`` reply has no action, a diagnosis is appended: the text after
    "Diagnosis:", or else the first line (D21 of docs/deviations.md). Any other reply, also an empty one, stays as it
    is."""
    if not forced or not isinstance(parse_action(reply), Invalid):
        return Turn(reply)
    match = _DIAGNOSIS.search(reply)
    diagnosis = match.group(1).strip() if match else reply.strip().partition("\n")[0].strip()
    return append_action(reply, FinalDiagnosis(diagnosis)) if diagnosis else Turn(reply)


def parse_yes_no(reply: str) -> bool | None:
    """Read the first "yes" or "no" in a reply: returns True for yes, False for no, None where it has neither."""
    word = _YES_NO.search(reply)
    return word.group().lower() == "yes" if word else None


def number_lines(items: Iterable[str]) -> str:
    """Write the items on numbered lines: "1. first", then "2. second" and so on. Empty without items."""
    return "\n".join(f"{n}. {item}" for n, item in enumerate(items, 1))


def join_by_author(names: Iterable[str], texts: Iterable[str]) -> str:
    """Join the texts, each below the name of its author and a colon. An empty text becomes "(no answer)"."""
    return "\n\n".join(f"{name}:\n{text or NO_ANSWER}" for name, text in zip(names, texts, strict=True))
