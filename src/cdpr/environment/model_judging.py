"""Language models as judge of diagnoses and as matcher of requests (paper, appendix, "Diagnosis Evaluation" and "Exam
Key Matching"), by the paper's rules in words of ours."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable

from ..cases import normalise
from ..llm import Model, Sampling
from ..llm.types import SYSTEM
from ..llm.wrappers import metering
from .judge import Judge, TableJudge, Verdict, named_first
from .matcher import How, Matcher, spellings


class Questions:
    """Questions to ``model`` below the same ``rules``, decoded greedily. ``asker`` (``judge``, ``matcher``) is who
    recordings and bills name in the place of the agent that is being worked with, whom its calls are not charged to."""

    def __init__(self, model: Model, rules: str, asker: str, max_tokens: int) -> None:
        self.model, self.rules, self.asker = model, rules, asker
        self.sampling = Sampling(max_tokens, temperature=0.0)
        self._answers: dict[str, str] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}

    async def ask(self, question: str) -> None:
        """Have the answer to a question. Raises ModelFailure where there is none; the next time it is asked again."""
        if question in self._answers:
            return
        if question not in self._under_way:
            self._under_way[question] = asyncio.ensure_future(self._ask(question))
        await asyncio.shield(self._under_way[question])

    def answer(self, question: str) -> str:
        """The answer to a question that was asked. Raises LookupError for one that was not."""
        if question not in self._answers:
            raise LookupError(f"the {self.asker} was not asked this yet: `prepare` comes before the verdict")
        return self._answers[question]

    async def _ask(self, question: str) -> None:
        """In a task, so in a context, of its own: what is set here nobody else sees."""
        SYSTEM.set(self.asker)
        messages = [{"role": "system", "content": self.rules}, {"role": "user", "content": question}]
        try:
            with metering():
                [answer] = await self.model.chat(messages, (0,), self.sampling, seed=0)
            self._answers[question] = answer.text
        finally:
            del self._under_way[question]


JUDGE_RULES = """\
You decide whether a diagnosis that somebody proposed for a patient is right. You are shown the proposed diagnosis and \
the true one, and nothing else of the patient.

It is right when both are the same disease:
- Synonyms, lay names and abbreviations of one disease are the same ("stroke", "CVA", "cerebrovascular accident").
- It stays right when it names the true disease and adds complications, causes, a stage or other details.

It is wrong when:
- it is a category that the true disease is only one of many members of ("liver disease" for "hepatitis B"), since a \
proposed diagnosis must be as specific as the true one;
- it is another disease, even one with similar symptoms or the same treatment;
- the true disease is only one of several alternatives that are proposed and is not the one named first.

Judge the diagnosis alone, not how it was reached, nor what is said of treatment and symptoms.

Answer with one word, Correct or Wrong, and nothing else.

Proposed diagnosis: Heart attack with cardiogenic shock
True diagnosis: Acute myocardial infarction
Answer: Correct

Proposed diagnosis: Infection of the lung
True diagnosis: Pulmonary tuberculosis
Answer: Wrong

Proposed diagnosis: Ureteral stone
True diagnosis: Pyelonephritis
Answer: Wrong"""
_VERDICT_TOKENS = 16  # tokens of an answer
_VERDICT = re.compile(r"\W*(?:(?:answer|output|verdict)\W+)?(correct|wrong|incorrect)\W*", re.IGNORECASE)


class ModelJudge(Judge):
    """Asks ``model`` about every diagnosis that ``tables`` do not find right; without ``tables`` about every one.

    An answer other than the two words is no verdict: the tables' counts, and the answer is counted. ``calls`` counts
    verdicts by how they came about, as ``<asker>_<how>``. Diagnoses that :func:`named_first` cuts are judged by what
    is left, as the tables do, which know the disease named first alone.
    """

    def __init__(
        self, model: Model, asker: str = "judge", tables_first: bool = True, calls: Counter[str] | None = None
    ) -> None:
        self.tables, self.tables_first = TableJudge(), tables_first
        self.questions = Questions(model, JUDGE_RULES, asker, _VERDICT_TOKENS)
        self.calls = Counter() if calls is None else calls
        self.calls.update({f"{asker}_{how}": 0 for how in ("model", "invalid", "several")})

    async def prepare(self, predicted: str, truth: str) -> None:
        """Raises ModelFailure where the model gives no answer."""
        if not self._found(predicted, truth):
            await self.questions.ask(_judge_question(predicted, truth))

    def judge(self, predicted: str, truth: str) -> bool:
        """Counted; raises LookupError where it was not prepared."""
        verdict, asker = self.verdict(predicted, truth), self.questions.asker
        self.calls[f"{asker}_{verdict.by}"] += verdict.by != "table"
        self.calls[f"{asker}_several"] += verdict.several
        return verdict.correct

    def verdict(self, predicted: str, truth: str) -> Verdict:
        """The verdict and how it came about, not counted. Raises LookupError where it was not prepared."""
        several = named_first(predicted)[1]
        if self._found(predicted, truth):
            return Verdict(True, "table", several)
        said = _VERDICT.fullmatch(self.questions.answer(_judge_question(predicted, truth)))
        if said is None:
            return Verdict(self.tables.judge(predicted, truth), "invalid", several)
        return Verdict(said[1].casefold() == "correct", "model", several)

    def _found(self, predicted: str, truth: str) -> bool:
        return self.tables_first and self.tables.judge(predicted, truth)


def _judge_question(predicted: str, truth: str) -> str:
    return f"Proposed diagnosis: {_line(named_first(predicted)[0])}\nTrue diagnosis: {_line(truth)}\nAnswer:"


def _line(text: str) -> str:
    """On one line, so that no diagnosis can pretend to be another question."""
    return " ".join(text.split())


NO_MATCH = "NO_MATCH"
MATCHER_RULES = f"""\
You find the examination that a clinician asks for in the list of those that are on record.

- An abbreviation, a synonym or another name of an examination means that examination ("LFTs" is "Liver Function \
Tests", "MRCP" is "Magnetic Resonance Cholangiopancreatography").
- Another examination of the same organ or the same kind is no match: neither another imaging method, nor another body \
region, nor another specimen, nor another analyte.
- Copy the name from the list exactly as it stands there.
- If the list holds none that is meant, answer {NO_MATCH}.

Answer with the name or {NO_MATCH}, and nothing else.

On record: ["Liver Function Tests", "Ultrasound of the Abdomen"]
Asked for: LFTs
Answer: Liver Function Tests

On record: ["Liver Function Tests", "Ultrasound of the Abdomen"]
Asked for: CT of the abdomen
Answer: {NO_MATCH}"""
_NAME_TOKENS = 96  # tokens of an answer: of the longest names of examinations
_DECORATION = " \t\r\n`*\"'"


class ModelMatcher(Matcher):
    """Asks ``model`` about every request for which ``tables`` find no examination of the record; it is shown their
    names, never a result. An answer that is neither one of them nor ``NO_MATCH`` is none, and counted: ``calls`` counts
    requests by how they were answered."""

    def __init__(self, model: Model, tables: Matcher, calls: Counter[str] | None = None) -> None:
        self.tables = tables
        self.questions = Questions(model, MATCHER_RULES, "matcher", _NAME_TOKENS)
        self.calls = Counter() if calls is None else calls
        self.calls.update({"matcher_model": 0, "matcher_invalid": 0})

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Raises ModelFailure where the model gives no answer."""
        names = tuple(keys)
        if names and not self.tables.match(requested, names):
            await self.questions.ask(_matcher_question(requested, names))

    def match(self, requested: str, keys: Iterable[str]) -> tuple[str, ...]:
        """Counted; raises LookupError where it was not prepared."""
        found, how = self.found(requested, keys)
        if how != "table":
            self.calls[f"matcher_{how}"] += 1
        return found

    def found(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], How]:
        """The same and who says so, not counted. Raises LookupError where it was not prepared."""
        names = tuple(keys)
        if not names or (known := self.tables.match(requested, names)):
            return known if names else (), "table"
        said = self.questions.answer(_matcher_question(requested, names)).strip(_DECORATION)
        if said.removesuffix(".") == NO_MATCH:
            return (), "model"
        same = spellings(names).get(normalise(said), ())
        return same, "model" if same else "invalid"


def _matcher_question(requested: str, keys: tuple[str, ...]) -> str:
    listed = json.dumps(keys, ensure_ascii=False)
    return f"On record: {listed}\nAsked for: {' '.join(requested.split())}\nAnswer:"
