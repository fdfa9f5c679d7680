"""What published agents share that ask a language model many times for one decision.

Each runs once per state: the question is the patient as known so far, the answer one action. Where an agent differs
from its published code: docs/deviations.md, D30 to D34.
"""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from ..environment import Action, Agent, FinalDiagnosis, Invalid, State, Turn, parse_action, render_action
from ..environment.prompt import observation_text, opening_messages
from ..llm import Messages, Model, ModelSpec, Sampling, open_model
from ..settings import Settings, SettingsError

_PROMPT_NAME = re.compile(r"^\[(\w+)\]\n", re.MULTILINE)


class Prompts:
    """The prompts of ``NAME.txt``; called with a prompt's name and what fills its braces."""

    def __init__(self, name: str):
        self._texts = _read(name)

    def __call__(self, name: str, /, **parts: object) -> str:
        """Raises KeyError for a prompt that is not there, or a brace that nothing fills."""
        return self._texts[name].format(**parts)


@functools.cache
def _read(name: str) -> dict[str, str]:
    text = resources.files(__package__).joinpath("prompts", f"{name}.txt").read_text(encoding="utf-8")
    _, *parts = _PROMPT_NAME.split(text)
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


_SHARED = Prompts("shared")
_DIAGNOSIS = re.compile(r"^\W*(?:final |current )?diagnosis\W*:[ \t*]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Calls:
    """How often a framework asks its model at least, as expected and at most: in one ``turn``, and ``once`` for a case.
    An answer has ``longest`` tokens at most. The model is assumed to answer in the form that the prompt asks for."""

    turn: tuple[float, float, float]
    longest: int
    once: tuple[float, float, float] = (0, 0, 0)


class Framework(Agent):
    """An agent that decides by a conversation, or many, with ``model``; subclasses write it as :meth:`act`.

    ``temperature`` is that of the decoding that is evaluated. Every call has a seed of its own, derived from that of
    the turn.
    """

    def __init__(self, model: Model, settings: Settings, temperature: float):
        self.model, self.temperature = model, temperature
        self.environment = settings.environment
        # Whatever the policy reads: these agents are made for models that read sentences.
        self.prompt = settings.environment.prompt.model_copy(update={"style": "full"})

    @classmethod
    def build(cls, settings: Settings, spec: ModelSpec | None, temperature: float, dataset: str = "") -> Framework:
        """The agent with the model of ``spec``, opened. Raises SettingsError where there is none."""
        if spec is None:
            raise SettingsError(f"{cls.__name__} acts by a language model: name its `model` (a folder, a server)")
        return cls(open_model(spec), settings, temperature)

    def refresh(self) -> None:
        self.model.refresh()

    @classmethod
    @abstractmethod
    def calls(cls, settings: Settings) -> Calls:
        """Calls of a workup, known before any is sent."""

    async def ask(self, messages: Messages, max_tokens: int, seed: int, temperature: float | None = None) -> str:
        """One answer. Raises ModelFailure."""
        warmth = self.temperature if temperature is None else temperature
        [answer] = await self.model.chat(messages, (0,), Sampling(max_tokens, warmth), seed)
        return answer.text.strip()

    def record(self, state: State, forced: bool) -> str:
        """The patient as known so far: presentation, what was examined in its order, and what is still possible."""
        results = numbered(observation_text(self.prompt, step, False) for step in state.history) or "None yet."
        left = self.environment.max_turns - (self.environment.forced_turn == "within") - len(state.history)
        possible = _SHARED("none_left") if forced else _SHARED("left", left=max(left, 1))
        return _SHARED("record", summary=state.case.case_summary, examinations=results, possible=possible)

    def task(self, forced: bool) -> str:
        """What is to be decided and in which form: the very words that every other model reads."""
        words = opening_messages(self.prompt, "")[0]["content"]
        return _SHARED("task", words=words, which=_SHARED("must_diagnose" if forced else "may_examine"))


def spelled(reply: str, action: Action) -> Turn:
    """A reply in other words than our grammar, followed by its action in our grammar."""
    return Turn(f"{reply}\n\n{render_action(action, 'full')}".lstrip())


def decision(reply: str, forced: bool) -> Turn:
    """A reply in our grammar. A forced one without an action gives what stands under "Diagnosis:" as the diagnosis, or
    its first line, as if it had begun with the words of the diagnosis (D21)."""
    if not forced or not isinstance(parse_action(reply), Invalid):
        return Turn(reply)
    label = _DIAGNOSIS.search(reply)
    diagnosis = label.group(1) if label else next((line for line in reply.splitlines() if line.strip()), "")
    return spelled(reply, FinalDiagnosis(diagnosis.strip())) if diagnosis else Turn(reply)


def yes_or_no(reply: str) -> bool | None:
    """The first word "yes" or "no"; None where there is neither."""
    word = _YES_NO.search(reply)
    return word.group().lower() == "yes" if word else None


def numbered(items: Iterable[str]) -> str:
    """Lines "1. ...", "2. ..."."""
    return "\n".join(f"{n}. {item}" for n, item in enumerate(items, 1))


def titled(parts: Iterable[tuple[str, str]]) -> str:
    """Texts under the names of who said them."""
    return "\n\n".join(f"{name}:\n{text or '(no answer)'}" for name, text in parts)
