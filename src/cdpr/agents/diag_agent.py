"""DiagAgent (Qiu et al. 2025): a model trained for sequential diagnosis, asked in the format that it was trained on.

A reply either gives a working diagnosis and one examination, or says that the information suffices and diagnoses; a
result comes back behind fixed words. Replies are kept as they were said, with our action behind them.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..environment import Action, FinalDiagnosis, RequestTest, State, Step, Turn, render_action
from ..environment.prompt import observation_text
from ..llm import Model
from ..settings import Settings, SettingsError
from .framework import Calls, Framework, Prompts, decision, spelled

_SAY = Prompts("diag_agent")
MAX_TOKENS = 2048  # of one reply, as in the published code
SUFFICES = "The available information is sufficient to make a diagnosis."
RESULT = "Here is the test result: "
_EXAM = re.compile(r"(?:performed|needed):(.*)", re.IGNORECASE)
_FENCE = re.compile(r"^\s*```.*$\n?", re.MULTILINE)
_DIAGNOSIS = re.compile(r"^\W*Diagnosis:(.*?)(?:^\W*Reason:|\Z)", re.MULTILINE | re.DOTALL)
_WORKING = re.compile(r"^\W*Current diagnosis:[ \t*]*(\S.*)$", re.IGNORECASE | re.MULTILINE)


class DiagAgent(Framework):
    """A conversation of one model."""

    reads = ("frameworks.diag_agent",)

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.diag_agent
        self.instruction = _read(self.settings.instruction) or _SAY("instruction", suffices=SUFFICES)

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        return Calls((1, 1, 1), MAX_TOKENS)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        messages = [
            {"role": "system", "content": self.instruction},
            {"role": "user", "content": state.case.case_summary},
        ]
        for step in state.history:
            messages += [
                {"role": "assistant", "content": _own_words(step) or "(no answer)"},
                {"role": "user", "content": self._answer(step)},
            ]
        if forced and self.settings.forced == "asked":
            messages[-1]["content"] += "\n\n" + _SAY("forced", suffices=SUFFICES)
        reply = await self.ask(messages, MAX_TOKENS, seed)
        action = self.action(reply)
        if not forced or isinstance(action, FinalDiagnosis):
            return spelled(reply, action) if action else Turn(reply)
        working = _WORKING.search(reply)
        return spelled(reply, FinalDiagnosis(working.group(1))) if working else decision(reply, forced)

    def action(self, reply: str) -> Action | None:
        """What a reply in the model's own format says; None where it says neither."""
        text = _FENCE.sub("", reply).strip()
        diagnosis = _DIAGNOSIS.search(text)
        if diagnosis and (SUFFICES in text or not _EXAM.search(text)):
            name = " ".join(diagnosis.group(1).split())
            return FinalDiagnosis(name) if name.strip(".*") else None
        requests = filter(None, map(_EXAM.search, text.splitlines()))
        exam = next((_first(request.group(1)) for request in requests), "")
        return RequestTest(exam) if exam else None

    def _answer(self, step: Step) -> str:
        observation = step.observation
        if observation.kind in ("result", "repeat"):
            return RESULT + observation.text
        return observation_text(self.prompt, step, False)


def _own_words(step: Step) -> str:
    """What the model said, without our action behind it."""
    words, action, _ = step.turn.text.rpartition(render_action(RequestTest(""), "full"))
    return words.rstrip() if action else step.turn.text


def _first(exams: str) -> str:
    """The first of several examinations; a comma inside brackets sets nothing apart."""
    return re.split(r"[,;](?![^(]*\))", exams)[0].strip(" .*[]")


def _read(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"frameworks.diag_agent.instruction: {path} cannot be read as text: {error}") from error
