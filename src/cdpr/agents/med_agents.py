"""MedAgents (Tang et al. 2024): experts of several fields analyse a question, agree on a report by vote, and decide.

Per state: fields of experts for the case and for its options, an analysis by each of them, one report; up to three
times all vote on it, those against advise and the report is revised; a decision. 18 calls when all agree at once, 56 at
most, and one more that proposes the options.
"""

from __future__ import annotations

import re
from asyncio import gather
from collections.abc import Sequence

from ..cases import normalise
from ..environment import Action, FinalDiagnosis, RequestTest, State, Turn, parse_action
from ..llm import Model
from ..seeding import derive_seed
from ..settings import Settings
from .framework import Breakdown, Calls, Framework, decision, spelled, titled, yes_or_no
from .prompts import Prompts

_SAY = Prompts("med_agents")
_ANALYSIS = "Total Analysis:"
_GENERAL = "General Medicine"
_LETTERS = "ABCDE"
_OPTION = re.compile(r"\b(?:[Oo]ption|OPTION)\W{0,4}([A-E])\b")
_LINE = re.compile(r"^\W*([A-E])(?:[.):]|\W*$)", re.MULTILINE)
_LISTED = re.compile(r"^\W*(?:\d+\s*[.):]|[A-E]\s*[.):])?\s*")
_SENTENCES = re.compile(r".*[.!?](?!\w)", re.DOTALL)


class MedAgents(Framework):
    """Experts who agree on a report by vote. Its public quirks: the report's "Key Knowledge" is dropped, and one
    without "Total Analysis:" ends the turn; a vote is the first "yes" or "no" even inside a word; the answer is the
    first A-E behind the last colon; fields that bars do not set apart are one expert's; options are repeated once per
    field; without options their experts are asked all the same.
    """

    reads = ("frameworks.med_agents",)

    def __init__(self, model: Model, settings: Settings, temperature: float):
        super().__init__(model, settings, temperature)
        self.settings = settings.frameworks.med_agents
        self.public = self.settings.quirks == "public"

    @classmethod
    def calls(cls, settings: Settings) -> Calls:
        """Expected is one vote against the first report, and none against the second."""
        own = settings.frameworks.med_agents
        open_question = own.options == "none" and own.quirks == "repaired"
        experts = own.question_experts + (0 if open_question else own.option_experts)
        fields, proposal, report, last = (1 if open_question else 2), own.options == "proposer", 1, 1
        fixed = proposal + fields + experts + report + last
        second = (experts if own.rounds > 1 else 0) + 2  # the advice and the revision before it
        agreed, debated = fixed + experts, fixed + own.rounds * (2 * experts + 1)
        return Calls((agreed, agreed + second, debated), max(own.tokens.model_dump().values()))

    async def decide(self, state: State, forced: bool, seed: int) -> Turn:
        question = self.record(state, forced)
        options = await self._proposed(question, forced, seed)
        listed = "\n".join(f"{letter}. {_told(option)}" for letter, option in zip(_LETTERS, options, strict=False))
        experts, analyses = await self._analyses(question, listed, seed)
        report = await self._agreed(question, listed, experts, analyses, seed)
        if not options:
            asked = _SAY("decide_openly", question=question, report=report, task=self.task(forced))
            return decision(await self._ask("", asked, self.settings.tokens.decision, seed, "decision"), forced)
        asked = _SAY("decide", question=question, options=listed, report=report)
        reply = await self._ask("", asked, self.settings.tokens.decision, seed, "decision")
        chosen = self._chosen(reply, options)
        if chosen is None:
            return spelled(reply, options[0]) if forced else Turn(reply)
        return spelled(reply, chosen)

    async def _proposed(self, question: str, forced: bool, seed: int) -> tuple[Action, ...]:
        """The options, at most `candidates`, diagnoses only where one has to be given; none where none can be read."""
        settings = self.settings
        if settings.options == "none":
            return ()
        asked = _SAY("propose", question=question, task=self.task(forced), most=settings.candidates)
        reply = await self._ask("", asked, settings.tokens.decision, seed, "options")
        found: dict[tuple[type, str], Action] = {}
        for line in (*reply.splitlines(), reply):  # some models answer in the format of the task: one action
            action = parse_action(_LISTED.sub("", line, count=1))
            if isinstance(action, FinalDiagnosis) or (isinstance(action, RequestTest) and not forced):
                name = action.text if isinstance(action, FinalDiagnosis) else action.name
                found.setdefault((type(action), normalise(name)), action)
        return tuple(found.values())[: settings.candidates]

    async def _analyses(self, question: str, listed: str, seed: int) -> tuple[list[str], list[str]]:
        """The experts, as they are told who they are, and what each of them finds."""
        settings, limit = self.settings, self.settings.tokens.analysis
        fields, others = await gather(
            self._fields("question_fields", settings.question_experts, seed, question=question),
            self._option_fields(question, listed, seed),
        )
        readers = [_SAY("question_expert", field=field) for field in fields]
        asked = _SAY("analyse_question", question=question)
        read = await gather(*(self._ask(e, asked, limit, seed, "question", n) for n, e in enumerate(readers)))
        found = [_finished(text) for text in read]
        judges = [_SAY("option_expert", field=field) for field in others]
        shown = "\n\n".join([listed] * len(fields)) if self.public else listed
        asked = _SAY("analyse_options", question=question, options=shown, analyses=_signed(fields, found))
        judged = await gather(*(self._ask(e, asked, limit, seed, "option", n) for n, e in enumerate(judges)))
        found += map(_finished, judged)
        return readers + judges, [_signed([f], [text]) for f, text in zip([*fields, *others], found, strict=True)]

    async def _option_fields(self, question: str, listed: str, seed: int) -> list[str]:
        if not listed and not self.public:
            return []
        return await self._fields(
            "option_fields", self.settings.option_experts, seed, question=question, options=listed
        )

    async def _fields(self, prompt: str, most: int, seed: int, **parts: str) -> list[str]:
        """Fields of medicine for ``most`` experts."""
        reply = await self._ask("", _SAY(prompt, most=most, **parts), self.settings.tokens.fields, seed, prompt)
        named = reply.rpartition(":")[2]
        found = named.split(" | ") if self.public else re.split(r"[|,;\n]", named)
        fields = [field for text in found if (field := re.sub(r"^[\W\d]+|[\W]+$", "", text))]
        return list(dict.fromkeys(fields))[:most] or [_GENERAL]

    async def _agreed(
        self, question: str, listed: str, experts: Sequence[str], analyses: Sequence[str], seed: int
    ) -> str:
        """The report when nobody is against it any more, or after the last round. What is neither yes nor no is no
        objection."""
        tokens, ask = self.settings.tokens, self._ask
        asked = _SAY("report", question=question, options=listed, analyses="\n\n".join(analyses))
        report = self._read(await ask("", asked, tokens.report, seed, "report"))
        for r in range(self.settings.rounds):
            asked = _SAY("vote", question=question, options=listed, report=report)
            said = await gather(*(ask(e, asked, tokens.vote, seed, "vote", r, n) for n, e in enumerate(experts)))
            against = [n for n, vote in enumerate(said) if yes_or_no(vote, self.public) is False]
            if not against:
                break
            asked = _SAY("advise", question=question, options=listed, report=report)
            advice = await gather(*(ask(experts[n], asked, tokens.advice, seed, "advice", r, n) for n in against))
            asked = _SAY("revise", question=question, options=listed, report=report, advice="\n\n".join(advice))
            report = self._read(await ask("", asked, tokens.report, seed, "revision", r))
        return report

    def _read(self, report: str) -> str:
        _, found, analysis = report.partition(_ANALYSIS)
        if not self.public:
            return report
        if not found:
            raise Breakdown
        return analysis.strip()

    def _chosen(self, reply: str, options: Sequence[Action]) -> Action | None:
        """The option that a reply names by its letter."""
        if self.public:
            letter = re.search(r"[A-E]", reply.rpartition(":")[2])
            found = letter and letter.group()
        else:
            named = _OPTION.findall(reply) or _LINE.findall(reply)
            found = named[-1] if named else None
        number = _LETTERS.index(found) if found else len(options)
        return options[number] if number < len(options) else None

    async def _ask(self, expert: str, prompt: str, max_tokens: int, seed: int, *call: object) -> str:
        """One answer of an expert who remembers nothing; without a name, of the assistant who runs the discussion."""
        said = [{"role": "system", "content": expert or _SAY("assistant")}, {"role": "user", "content": prompt}]
        return await self.ask(said, max_tokens, derive_seed(seed, *call))


def _told(option: Action) -> str:
    match option:
        case RequestTest(name):
            return f"Request the examination: {name}"
        case FinalDiagnosis(text):
            return f"Give the final diagnosis: {text}"
    raise TypeError(f"{option!r} is no option")


def _finished(text: str) -> str:
    """The text without its unfinished last sentence."""
    whole = _SENTENCES.match(text)
    return whole.group() if whole else text


def _signed(fields: Sequence[str], texts: Sequence[str]) -> str:
    return titled(zip((f"Expert in {field}" for field in fields), texts, strict=True))
