"""MedAgents (Tang et al. 2024): experts of several fields analyse a question, vote on a report, and decide.

At every state the model proposes options, and names fields of experts for the case and for the options. Each expert
writes an analysis, and the analyses become a report. Up to three times all experts vote on it; those against it give
advice, and the report is revised. Then the model decides. These are 19 calls when all agree at once, 57 at most. The
numbers are those of the published code.
"""

import re
from asyncio import gather
from collections.abc import Sequence
from functools import partial

from ..cases import normalise
from ..environment.state import Action, FinalDiagnosis, RequestTest, State, Turn, parse_action
from ..seeding import derive_seed
from .framework import Framework, decision, fill_prompt, signed_texts, with_action, yes_or_no

QUESTION_EXPERTS, OPTION_EXPERTS = 5, 2  # NUM_QD, NUM_OD of the published code
VOTES = 3  # on the report, at most (max_attempt_vote)
CANDIDATES = 4  # options, at most: ours (D31)
# Tokens of the longest answer of each stage.
FIELDS, ANALYSIS, REPORT, VOTE, ADVICE, DECISION = 50, 300, 2500, 30, 500, 2500
_PROMPT = partial(fill_prompt, "med_agents")
_GENERAL = "General Medicine"
_LETTERS = "ABCDE"
_OPTION = re.compile(r"\b(?:[Oo]ption|OPTION)\W{0,4}([A-E])\b")
_LINE = re.compile(r"^\W*([A-E])(?:[.):]|\W*$)", re.MULTILINE)
_LIST_MARK = re.compile(r"^\W*(?:\d+\s*[.):]|[A-E]\s*[.):])?\s*")
_SENTENCES = re.compile(r".*[.!?](?!\w)", re.DOTALL)


class MedAgents(Framework):
    """The framework MedAgents: experts of several fields analyse a question, vote on a report, and decide."""

    async def act(self, state: State, forced: bool, seed: int) -> Turn:
        """Hold the discussion of the module's docstring about a state; the turn is the option that the model chooses,
        or, without proposed options, its decision in our grammar."""
        question = self.record(state, forced)
        options = await self._propose(question, forced, seed)
        lines = "\n".join(f"{letter}. {_in_words(option)}" for letter, option in zip(_LETTERS, options, strict=False))
        experts, analyses = await self._analyse(question, lines, seed)
        report = await self._agree(question, lines, experts, analyses, seed)
        if not options:
            prompt = _PROMPT("decide_openly", question=question, report=report, task=self.task(forced))
            return decision(await self._ask("", prompt, DECISION, seed, "decision"), forced)
        prompt = _PROMPT("decide", question=question, options=lines, report=report)
        reply = await self._ask("", prompt, DECISION, seed, "decision")
        choice = _choice(reply, options) or (options[0] if forced else None)
        return with_action(reply, choice) if choice else Turn(reply)

    async def _propose(self, question: str, forced: bool, seed: int) -> tuple[Action, ...]:
        """Let the model propose options, in a forced turn only diagnoses; returns at most :data:`CANDIDATES` different
        ones, none where the reply has no action."""
        prompt = _PROMPT("propose", question=question, task=self.task(forced), most=CANDIDATES)
        reply = await self._ask("", prompt, DECISION, seed, "options")
        actions: dict[tuple[type, str], Action] = {}
        for line in (*reply.splitlines(), reply):  # some models answer in the format of the task: one action
            action = parse_action(_LIST_MARK.sub("", line, count=1))
            if isinstance(action, FinalDiagnosis) or (isinstance(action, RequestTest) and not forced):
                name = action.text if isinstance(action, FinalDiagnosis) else action.name
                actions.setdefault((type(action), normalise(name)), action)
        return tuple(actions.values())[:CANDIDATES]

    async def _analyse(self, question: str, options: str, seed: int) -> tuple[list[str], list[str]]:
        """Let the experts of the case and of the options write analyses; returns the roles of all experts, and their
        analyses in the same order."""
        fields, option_fields = await gather(
            self._fields("question_fields", QUESTION_EXPERTS, seed, question=question),
            self._fields("option_fields", OPTION_EXPERTS, seed, question=question, options=options),
        )
        prompt = _PROMPT("analyse_question", question=question)
        readers, analyses = await self._panel("question", fields, prompt, seed)
        texts = "\n\n".join(analyses)
        prompt = _PROMPT("analyse_options", question=question, options=options, analyses=texts)
        judges, judgements = await self._panel("option", option_fields, prompt, seed)
        return readers + judges, analyses + judgements

    async def _panel(self, kind: str, fields: list[str], prompt: str, seed: int) -> tuple[list[str], list[str]]:
        """Let one expert for each of ``fields`` write an analysis; returns the roles of the experts, and their signed
        analyses. An unfinished last sentence is left out. ``kind`` is ``question`` or ``option``."""
        experts = [_PROMPT(f"{kind}_expert", field=field) for field in fields]
        replies = await gather(*(self._ask(e, prompt, ANALYSIS, seed, kind, n) for n, e in enumerate(experts)))
        texts = (match.group() if (match := _SENTENCES.match(text)) else text for text in replies)
        return experts, [signed_texts([f"Expert in {name}"], [text]) for name, text in zip(fields, texts, strict=True)]

    async def _fields(self, prompt: str, most: int, seed: int, **parts: str) -> list[str]:
        """Let the model name fields of medicine in answer to ``prompt``; returns at most ``most`` of them, none where
        there are no options to judge."""
        if not parts.get("options", "any"):
            return []
        reply = await self._ask("", _PROMPT(prompt, most=most, **parts), FIELDS, seed, prompt)
        names = re.split(r"[|,;\n]", reply.rpartition(":")[2])
        fields = [field for text in names if (field := re.sub(r"^[\W\d]+|[\W]+$", "", text))]
        return list(dict.fromkeys(fields))[:most] or [_GENERAL]

    async def _agree(self, question: str, options: str, experts: list[str], analyses: list[str], seed: int) -> str:
        """Write a report and revise it until all experts agree, at most :data:`VOTES` times; returns it. A vote is an
        objection only if its first "yes" or "no" is "no"."""
        ask = self._ask
        prompt = _PROMPT("report", question=question, options=options, analyses="\n\n".join(analyses))
        report = await ask("", prompt, REPORT, seed, "report")
        for r in range(VOTES):
            prompt = _PROMPT("vote", question=question, options=options, report=report)
            votes = await gather(*(ask(e, prompt, VOTE, seed, "vote", r, n) for n, e in enumerate(experts)))
            against = [n for n, vote in enumerate(votes) if yes_or_no(vote) is False]
            if not against:
                break
            prompt = _PROMPT("advise", question=question, options=options, report=report)
            advice = await gather(*(ask(experts[n], prompt, ADVICE, seed, "advice", r, n) for n in against))
            prompt = _PROMPT("revise", question=question, options=options, report=report, advice="\n\n".join(advice))
            report = await ask("", prompt, REPORT, seed, "revision", r)
        return report

    async def _ask(self, expert: str, prompt: str, max_tokens: int, seed: int, *call: object) -> str:
        """Send ``prompt`` to an expert with the role ``expert`` (empty: the assistant who leads the discussion);
        returns the answer. Experts do not remember earlier calls. The seed is derived from ``seed`` and ``call``."""
        messages = [{"role": "system", "content": expert or _PROMPT("assistant")}, {"role": "user", "content": prompt}]
        return await self.ask(messages, max_tokens, derive_seed(seed, *call))


def _choice(reply: str, options: Sequence[Action]) -> Action | None:
    """Read the chosen option in a reply, whose letter comes last in it; None without a letter, or for a letter without
    an option."""
    letters = _OPTION.findall(reply) or _LINE.findall(reply)
    number = _LETTERS.index(letters[-1]) if letters else len(options)
    return options[number] if number < len(options) else None


def _in_words(option: Action) -> str:
    """Write an option as a sentence for the experts."""
    if isinstance(option, RequestTest):
        return f"Request the examination: {option.name}"
    assert isinstance(option, FinalDiagnosis)
    return f"Give the final diagnosis: {option.text}"
