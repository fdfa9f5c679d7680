"""A language model as judge of diagnoses, by the paper's rules (appendix, "Diagnosis Evaluation") in words of ours."""

from __future__ import annotations

import re
from collections import Counter

from ..llm import Model
from .judge import Judge, TableJudge, Verdict, named_first
from .questions import Questions

RULES = """\
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
_LONGEST = 16  # tokens of an answer
_ANSWER = re.compile(r"\W*(?:(?:answer|output|verdict)\W+)?(correct|wrong|incorrect)\W*", re.IGNORECASE)


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
        self.questions = Questions(model, RULES, asker, _LONGEST)
        self.calls = Counter() if calls is None else calls
        self.calls.update({f"{asker}_{how}": 0 for how in ("model", "invalid", "several")})

    async def prepare(self, predicted: str, truth: str) -> None:
        """Raises ModelFailure where the model gives no answer."""
        if not self._found(predicted, truth):
            await self.questions.ask(_question(predicted, truth))

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
        said = _ANSWER.fullmatch(self.questions.answer(_question(predicted, truth)))
        if said is None:
            return Verdict(self.tables.judge(predicted, truth), "invalid", several)
        return Verdict(said[1].casefold() == "correct", "model", several)

    def _found(self, predicted: str, truth: str) -> bool:
        return self.tables_first and self.tables.judge(predicted, truth)


def _question(predicted: str, truth: str) -> str:
    return f"Proposed diagnosis: {_line(named_first(predicted)[0])}\nTrue diagnosis: {_line(truth)}\nAnswer:"


def _line(text: str) -> str:
    """On one line, so that no diagnosis can pretend to be another question."""
    return " ".join(text.split())
