"""MedAgents (Tang et al. 2024): experts of several fields analyse a question, vote on a report, and decide.

At every state the model proposes options, and names fields of experts for the case and for the options. Each expert
writes an analysis, and the analyses become a report. All experts vote on the report, up to three times. Those against
it give advice, and the report is revised. Then the model decides. This takes 19 calls when all agree at once, and at
most 57. The numbers are those of the published code.
"""

import re
from asyncio import gather
from collections.abc import Sequence
from functools import partial

from ..cases import normalise
from ..environment.state import Action, FinalDiagnosis, RequestTest, State, Turn, parse_action
from ..seeding import derive_seed
from .framework import Framework, append_action, complete_turn, fill_prompt, join_by_author, parse_yes_no

# Experts for the question and for the options: NUM_QD and NUM_OD of the published code.
QUESTION_EXPERTS, OPTION_EXPERTS = 5, 2
VOTES = 3  # most votes on the report (max_attempt_vote of the published code)
CANDIDATES = 4  # most options: our choice (docs/deviations.md, D31)
# The longest answer of each stage, in tokens.
FIELD_TOKENS, ANALYSIS_TOKENS, REPORT_TOKENS, VOTE_TOKENS, ADVICE_TOKENS, DECISION_TOKENS = 50, 300, 2500, 30, 500, 2500
_PROMPT = partial(fill_prompt, "med_agents")  # fills in a prompt of prompts/med_agents.yaml
_GENERAL = "General Medicine"  # the field of the expert where the model names no field
_LETTERS = "ABCDE"  # the names of the options
# A chosen option in a reply: "Option B", or "B." at the beginning of a line.
_OPTION = re.compile(r"\b(?:[Oo]ption|OPTION)\W{0,4}([A-E])\b")
_OPTION_LINE = re.compile(r"^\W*([A-E])(?:[.):]|\W*$)", re.MULTILINE)
# The mark before an item of a list ("1.", "A)"); and a text up to the end of its last whole sentence.
_LIST_MARK = re.compile(r"^\W*(?:\d+\s*[.):]|[A-E]\s*[.):])?\s*")
_SENTENCES = re.compile(r".*[.!?](?!\w)", re.DOTALL)


class MedAgents(Framework):
    """The framework MedAgents: experts of several fields analyse the options at a state, vote on a report, and
    decide."""

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Let experts discuss a state: the model proposes options, experts analyse them and agree on a report, and the
        model chooses. Returns its reply, to which the chosen option is appended as the action. Where no options were
        proposed, the model writes the action itself."""
        question = self.describe_state(state, forced)
        options = await self._propose_options(question, forced, seed)
        lettered = zip(_LETTERS, options, strict=False)
        lines = "\n".join(f"{letter}. {_describe_option(option)}" for letter, option in lettered)
        analyses = await self._analyse(question, lines, seed)
        report = await self._agree_on_report(question, lines, analyses, seed)
        if not options:
            prompt = _PROMPT("decide_openly", question=question, report=report, task=self.describe_task(forced))
            return complete_turn(await self._ask(prompt, DECISION_TOKENS, seed, "decision"), forced)
        prompt = _PROMPT("decide", question=question, options=lines, report=report)
        reply = await self._ask(prompt, DECISION_TOKENS, seed, "decision")
        choice = _parse_choice(reply, options) or (options[0] if forced else None)
        return append_action(reply, choice) if choice else Turn(reply)

    async def _propose_options(self, question: str, forced: bool, seed: int) -> tuple[Action, ...]:
        """Let the model propose actions, only diagnoses if ``forced``. Returns at most :data:`CANDIDATES` different
        actions; none where the reply has no action. ``question`` is what is known about the patient."""
        prompt = _PROMPT("propose", question=question, task=self.describe_task(forced), most=CANDIDATES)
        reply = await self._ask(prompt, DECISION_TOKENS, seed, "options")
        actions: dict[tuple[type, str], Action] = {}  # by kind and name, so that none comes twice
        # An action on each line, or one action over several lines: some models answer in the format of the task.
        for line in (*reply.splitlines(), reply):
            action = parse_action(_LIST_MARK.sub("", line, count=1))
            if isinstance(action, FinalDiagnosis) or (isinstance(action, RequestTest) and not forced):
                name = action.text if isinstance(action, FinalDiagnosis) else action.name
                actions.setdefault((type(action), normalise(name)), action)
        return tuple(actions.values())[:CANDIDATES]

    async def _analyse(self, question: str, options: str, seed: int) -> dict[str, str]:
        """Let experts for the case, and others for the ``options`` (one per line), write analyses. Returns a dictionary
        from the system message of each expert (:meth:`_ask_experts`) to the analysis. Where ``options`` is empty, there
        are no experts for them."""
        fields = await self._name_fields("question_fields", QUESTION_EXPERTS, seed, question=question)
        prompt = _PROMPT("analyse_question", question=question)
        analyses = await self._ask_experts("question", fields, prompt, seed)
        if not options:
            return analyses
        fields = await self._name_fields("option_fields", OPTION_EXPERTS, seed, question=question, options=options)
        prompt = _PROMPT("analyse_options", question=question, options=options, analyses="\n\n".join(analyses.values()))
        return analyses | await self._ask_experts("option", fields, prompt, seed)

    async def _name_fields(self, prompt: str, most: int, seed: int, **parts: str) -> list[str]:
        """Let the model name fields of medicine. ``prompt`` is the name of the prompt that asks for them, ``parts``
        fill it. Returns at most ``most`` different fields, "General Medicine" where the reply names none."""
        reply = await self._ask(_PROMPT(prompt, most=most, **parts), FIELD_TOKENS, seed, prompt)
        _, _, answer = reply.rpartition(":")  # without words such as "Medical fields:"
        # The names between separators, without list numbers before them and marks around them.
        fields = [re.sub(r"^[\W\d]+|[\W]+$", "", name) for name in re.split(r"[|,;\n]", answer)]
        return list(dict.fromkeys(filter(None, fields)))[:most] or [_GENERAL]

    async def _ask_experts(self, kind: str, fields: list[str], prompt: str, seed: int) -> dict[str, str]:
        """Let one expert for each of ``fields`` answer ``prompt`` with an analysis. An expert is a system message that
        describes the role; ``kind`` (``question`` or ``option``) chooses its wording. Returns a dictionary from this
        message to the analysis, headed by the field of the expert and cut after its last whole sentence. An analysis
        without a whole sentence is kept as it is."""
        experts = [_PROMPT(f"{kind}_expert", field=field) for field in fields]
        calls = (self._ask(prompt, ANALYSIS_TOKENS, seed, kind, n, expert=expert) for n, expert in enumerate(experts))
        analyses = {}
        for field, expert, reply in zip(fields, experts, await gather(*calls), strict=True):
            whole_sentences = _SENTENCES.match(reply)
            text = whole_sentences.group() if whole_sentences else reply
            analyses[expert] = join_by_author([f"Expert in {field}"], [text])
        return analyses

    async def _agree_on_report(self, question: str, options: str, analyses: dict[str, str], seed: int) -> str:
        """Let the model write a report, let the experts vote on it, and revise it by the advice of those who object.
        This ends when none objects, or after :data:`VOTES` votes. Returns the report. The keys of ``analyses`` are the
        system messages of the experts. A vote is an objection only if its first "yes" or "no" is "no"."""
        ask, experts = self._ask, list(enumerate(analyses))  # an expert: index (for the seed) and system message
        fill = partial(_PROMPT, question=question, options=options)  # all prompts below contain these two
        # In calls of ``ask`` the arguments after ``seed`` name the request, and give it a seed of its own.
        report = await ask(fill("report", analyses="\n\n".join(analyses.values())), REPORT_TOKENS, seed, "report")
        for ballot in range(VOTES):
            prompt = fill("vote", report=report)
            calls = [ask(prompt, VOTE_TOKENS, seed, "vote", ballot, n, expert=expert) for n, expert in experts]
            votes = await gather(*calls)
            against = [expert for expert, vote in zip(experts, votes, strict=True) if parse_yes_no(vote) is False]
            if not against:
                break
            prompt = fill("advise", report=report)
            calls = [ask(prompt, ADVICE_TOKENS, seed, "advice", ballot, n, expert=expert) for n, expert in against]
            prompt = fill("revise", report=report, advice="\n\n".join(await gather(*calls)))
            report = await ask(prompt, REPORT_TOKENS, seed, "revision", ballot)
        return report

    async def _ask(self, prompt: str, max_tokens: int, seed: int, *call: object, expert: str = "") -> str:
        """Send ``prompt`` to the model and return the answer. ``expert`` is the system message (empty: that of the
        assistant who leads the discussion). Experts do not remember earlier calls. ``call`` names the request: its seed
        is derived from ``seed`` and ``call``, so that different requests are independent."""
        messages = [{"role": "system", "content": expert or _PROMPT("assistant")}, {"role": "user", "content": prompt}]
        return await self.ask(messages, max_tokens, derive_seed(seed, *call))


def _parse_choice(reply: str, options: Sequence[Action]) -> Action | None:
    """Read the chosen option in a reply: that of the last "Option B", or else of the last line that begins with a
    letter ("B."). None where there is no letter, or no option with this letter."""
    letters = _OPTION.findall(reply) or _OPTION_LINE.findall(reply)
    option_by_letter = dict(zip(_LETTERS, options, strict=False))
    return option_by_letter.get(letters[-1]) if letters else None


def _describe_option(option: Action) -> str:
    """Write an option as a sentence for the experts, such as "Request the examination: CBC"."""
    if isinstance(option, RequestTest):
        return f"Request the examination: {option.name}"
    assert isinstance(option, FinalDiagnosis)
    return f"Give the final diagnosis: {option.text}"
