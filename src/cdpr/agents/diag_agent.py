"""DiagAgent (Qiu et al. 2025): a model trained for sequential diagnosis, called in the format of its training.

A reply gives a working diagnosis and one examination, or it says that the information suffices and gives a final
diagnosis. :meth:`DiagAgent.act` appends the action in our grammar to each reply; the conversation that the model reads
has the replies without it. A message with a result begins with fixed words (:data:`RESULT`).
"""

import re
from functools import partial
from pathlib import Path

from ..environment import NO_ANSWER, FinalDiagnosis, RequestTest, State, Turn, observation_text, render_action
from ..environment.state import Action
from ..llm import Model
from ..settings import Settings, SettingsError
from .framework import Framework, append_action, complete_turn, fill_prompt

_PROMPT = partial(fill_prompt, "diag_agent")  # fills in a prompt of prompts/diag_agent.yaml
MAX_TOKENS = 2048  # of one reply, as in the published code
# The words of a reply with a final diagnosis, and the first words of a message with a result.
SUFFICES = "The available information is sufficient to make a diagnosis."
RESULT = "Here is the test result: "
# A line that names examinations, such as "Further test needed: CT abdomen".
_EXAM = re.compile(r"(?:performed|needed):(.*)", re.IGNORECASE)
_OUR_ACTION = render_action(RequestTest(""), "full")  # the words before the examination in our grammar
_FENCE = re.compile(r"^\s*```.*$\n?", re.MULTILINE)  # a line that begins or ends a block of code
# The final diagnosis ("Diagnosis: X", up to "Reason:") and the working diagnosis ("Current diagnosis: X").
_DIAGNOSIS = re.compile(r"^\W*Diagnosis:(.*?)(?:^\W*Reason:|\Z)", re.MULTILINE | re.DOTALL)
_WORKING_DIAGNOSIS = re.compile(r"^\W*Current diagnosis:[ \t*]*(\S.*)$", re.IGNORECASE | re.MULTILINE)


class DiagAgent(Framework):
    """The agent DiagAgent: it continues one conversation with a model that was trained for sequential diagnosis."""

    reads = ("frameworks.diag_agent",)

    def __init__(self, model: Model, settings: Settings, temperature: float):
        """Read the model's instruction from the file that the settings name. Without a file, or with an empty one, take
        our own instruction."""
        super().__init__(model, settings, temperature)
        path = settings.frameworks.diag_agent.instruction
        instruction = _read_instruction(path) if path else ""
        self.instruction = instruction or _PROMPT("instruction", suffices=SUFFICES)

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Continue the conversation with the model. Returns its reply, with the action appended in our grammar. A
        ``forced`` reply without a final diagnosis gets its working diagnosis ("Current diagnosis: ...") as the final
        one, or without that its first line (:func:`complete_turn`)."""
        summary = state.case.case_summary
        messages = [{"role": "system", "content": self.instruction}, {"role": "user", "content": summary}]
        for step in state.history:
            # The model reads its own text, without the action that was appended to it (if one was).
            own_text, appended_action, _ = step.turn.text.rpartition(_OUR_ACTION)
            reply = own_text.rstrip() if appended_action else step.turn.text
            has_result = step.observation.kind in ("result", "repeat")
            answer = RESULT + step.observation.text if has_result else observation_text(self.prompt, step, False)
            messages += [{"role": "assistant", "content": reply or NO_ANSWER}, {"role": "user", "content": answer}]
        if forced:
            messages[-1]["content"] += "\n\n" + _PROMPT("forced", suffices=SUFFICES)
        reply = await self.ask(messages, MAX_TOKENS, seed)
        action = self.parse_reply(reply)
        if forced and not isinstance(action, FinalDiagnosis):
            working = _WORKING_DIAGNOSIS.search(reply)
            return append_action(reply, FinalDiagnosis(working.group(1))) if working else complete_turn(reply, forced)
        return append_action(reply, action) if action else Turn(reply)

    def parse_reply(self, reply: str) -> Action | None:
        """Read the action in a reply in the model's own format: a diagnosis after "Diagnosis:", or the first
        examination after "performed:" or "needed:". A reply with both is a diagnosis if it says that the information
        suffices, else a request. Returns None where there is no action."""
        text = _FENCE.sub("", reply).strip()
        diagnosis = _DIAGNOSIS.search(text)
        if diagnosis and (SUFFICES in text or not _EXAM.search(text)):
            name = " ".join(diagnosis.group(1).split())
            return FinalDiagnosis(name) if name.strip(".*") else None  # dots and stars alone are no name
        # The first examination in the first line that names any.
        lines_with_exams = filter(None, map(_EXAM.search, text.splitlines()))
        request = next(lines_with_exams, None)
        if request is None:
            return None
        first_exam, *_ = re.split(r"[,;](?![^(]*\))", request.group(1))  # a comma inside brackets does not separate
        exam = first_exam.strip(" .*[]")
        return RequestTest(exam) if exam else None


def _read_instruction(path: str) -> str:
    """Read the model's instruction from a file. Raises SettingsError where the file is missing or is not text in
    UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"frameworks.diag_agent.instruction: {path} cannot be read as text: {error}") from error
