"""Language models as judge of diagnoses and as matcher of requests (paper, appendix, "Diagnosis Evaluation" and "Exam
Key Matching"). Their prompts state the paper's rules in our own words."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from ..cases import Patterns, fill, normalise
from ..files import parse_yaml, shipped_text
from ..llm import SYSTEM, Model, Once, Sampling
from ..llm.agent_model import metering
from .denial import declines_examination
from .prompt import text_file
from .table_judging import Source, TableJudge, TableMatcher, Verdict, group_by_spelling, read_diagnosis, table_verdict

NO_MATCH = "NO_MATCH"
_VERDICT_TOKENS, _NAME_TOKENS = 128, 96  # most tokens of an answer; some judges think first, and names may be long

_PATTERNS = Patterns(fill(parse_yaml(shipped_text(__package__, "verdicts.yaml"))))
_DECORATION = " \t\r\n`*\"'"  # characters around the name in a matcher's answer that are no part of it


class Questions:
    """Sends questions to ``model`` and keeps the answers, so that each question is sent once. ``rules`` is the system
    message; decoding is greedy; an answer has at most ``max_tokens`` tokens.

    ``asker`` (``judge``, ``matcher``) names the calling system in recordings and bills, so that these calls are not
    charged to the evaluated agent.
    """

    def __init__(self, model: Model, rules: str, asker: str, max_tokens: int) -> None:
        """Start without answers. Each question is sent once, also where several coroutines ask it at the same time."""
        self.model, self.rules, self.asker = model, rules, asker
        self.sampling = Sampling(max_tokens, temperature=0.0)
        self._answers: Once[str] = Once()

    async def ask(self, question: str) -> None:
        """Get the model's answer to a question and keep it for :meth:`answer`. Raises ModelFailure where the model
        gives none; the next call then sends the question again."""
        await self._answers.get(question, lambda: self._send(question))

    def answer(self, question: str) -> str:
        """The answer that :meth:`ask` has kept for a question. Raises LookupError where the question was not asked."""
        if question not in self._answers.results:
            raise LookupError(f"the {self.asker} has no answer to this question: call `prepare` before")
        return self._answers.results[question]

    async def _send(self, question: str) -> str:
        """Send the question to the model, as the system ``asker``; returns the text of the answer."""
        SYSTEM.set(self.asker)  # a task has a context of its own, so the caller keeps its SYSTEM
        messages = [{"role": "system", "content": self.rules}, {"role": "user", "content": question}]
        with metering():
            [answer] = await self.model.chat(messages, (0,), self.sampling, seed=0)
        return answer.text


class ModelJudge(TableJudge):
    """A judge that asks ``model`` where tables of names do not settle the verdict. The tables settle it where they find
    the diagnosis right, and where the text denies the disease that it names ("not pneumonia"). Without ``tables_first``
    the model is always asked.

    Where the model's answer has no verdict, that of the tables counts, and is marked ``invalid``. Of several listed
    diagnoses the first is judged.
    """

    counters = ("judge_model", "judge_invalid", "judge_several")

    def __init__(self, model: Model, asker: str = "judge", tables_first: bool = True) -> None:
        """Read the rules of the judge from the file ``prompts/judge.txt``. ``asker`` names the judge in recordings and
        bills."""
        self.tables_first = tables_first
        self.questions = Questions(model, text_file("judge.txt").strip(), asker, _VERDICT_TOKENS)

    async def prepare(self, predicted: str, truth: str) -> None:
        """Get the model's answer and keep it for :meth:`verdict`, if the verdict needs one. Raises ModelFailure where
        the model gives none."""
        if question := self._question(predicted, truth):
            await self.questions.ask(question)

    def verdict(self, predicted: str, truth: str) -> Verdict:
        """Judge whether ``predicted`` names the disease ``truth``: returns the verdict of the tables where they settle
        it, else the model's. An unreadable answer of the model gives the verdict of the tables, marked ``invalid``.
        Raises LookupError where :meth:`prepare` was not awaited before."""
        by_table, question = table_verdict(predicted, truth), self._question(predicted, truth)
        if question is None:
            return by_table
        correct = read_verdict(self.questions.answer(question))
        if correct is None:
            return replace(by_table, by="invalid")
        return Verdict(correct, "model", by_table.several)

    def _question(self, predicted: str, truth: str) -> str | None:
        """Write the user message that asks the model about a predicted and a true diagnosis. None where the tables of
        names settle the verdict: they find the same disease in both texts, or the predicted text denies its diagnosis.
        Each diagnosis is written on one line, so that it cannot add lines to the message."""
        diagnosis = read_diagnosis(predicted)
        if self.tables_first and (diagnosis.stance == "denied" or table_verdict(predicted, truth).correct):
            return None
        return f"Proposed diagnosis: {_one_line(diagnosis.question)}\nTrue diagnosis: {_one_line(truth)}\nAnswer:"


class ModelMatcher(TableMatcher):
    """A matcher that asks ``model`` where tables of names find no match. The model gets the names of the examinations
    on record, never a result. An answer that is neither such a name nor ``NO_MATCH`` counts as ``invalid`` and matches
    nothing."""

    counters = ("matcher_model", "matcher_invalid")

    def __init__(self, model: Model, fuzzy_cutoff: float) -> None:
        """Read the rules of the matcher from the file ``prompts/matcher.txt``. ``fuzzy_cutoff`` (0 to 100) is the least
        similarity of a misspelled name."""
        super().__init__(fuzzy_cutoff)
        self.questions = Questions(model, text_file("matcher.txt").strip(), "matcher", _NAME_TOKENS)

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Get the model's answer and keep it for :meth:`match`, if the match needs one. Raises ModelFailure where the
        model gives none."""
        if question := self._question(requested, tuple(keys)):
            await self.questions.ask(question)

    def match(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], Source]:
        """Match a request with the ``keys`` of a record: returns the keys that it names (empty: none), and the source
        of the match. The source is ``table``; ``model`` where the model answered; ``invalid`` where its answer was
        unreadable. Raises LookupError where :meth:`prepare` was not awaited before."""
        names = tuple(keys)
        question = self._question(requested, names)
        if question is None:
            return super().match(requested, names)
        answer = self.questions.answer(question).strip(_DECORATION)
        if answer.removesuffix(".") == NO_MATCH:
            return (), "model"
        matches = group_by_spelling(names).get(normalise(answer), ())
        return matches, "model" if matches else "invalid"

    def _question(self, requested: str, keys: tuple[str, ...]) -> str | None:
        """Write the user message that asks the model which of the examinations on record, ``keys``, a request names.
        None where no model is asked: the tables find a key, the record has none, or the request declines the
        examination."""
        by_table, _ = super().match(requested, keys)
        if by_table or not keys or declines_examination(requested):
            return None
        return f"On record: {json.dumps(keys, ensure_ascii=False)}\nAsked for: {_one_line(requested)}\nAnswer:"


def read_verdict(answer: str) -> bool | None:
    """Read the verdict in a judge's answer: True where it calls the diagnosis right, False where it calls it wrong.
    None where it has no verdict, two different ones, one that its reason takes back ("correct, but not complete"), or
    only unfinished thoughts.

    A verdict is at the beginning of the answer, alone on a line, or at the end of a line ("the answer is: correct").
    """
    _, _, answer = answer.rpartition("</think>")  # without the thoughts of the model
    if "<think>" in answer:  # thoughts that were cut off
        return None
    verdicts: set[bool] = set()
    lines = [_one_line(line) for line in _PATTERNS.markup.sub(" ", answer).splitlines() if line.strip()]
    for number, line in enumerate(lines):
        verdict = _match_verdict(line, is_first=number == 0)
        if verdict is not None:
            right = bool(verdict["right"] or verdict["yes"])
            revoked = _PATTERNS.revoked_right if right else _PATTERNS.revoked_wrong
            if revoked.search(verdict["reason"]):  # "correct, but ..."
                return None
            verdicts.add(right)
    return verdicts.pop() if len(verdicts) == 1 else None


def _match_verdict(line: str, is_first: bool) -> re.Match[str] | None:
    """Find a verdict in one line of an answer: returns a match of the expression ``verdict``, or None. A verdict counts
    where it is the whole line, or ends the line after a lead ("the answer is: correct"). In the first line of the
    answer (``is_first``) it also counts at the beginning, before a reason ("correct: both name the same disease")."""
    verdict = _PATTERNS.verdict.match(line)
    if verdict is not None and (is_first or not verdict["reason"].strip(" .!,;:")):
        return verdict
    closing = _PATTERNS.closing.search(line)
    return _PATTERNS.verdict.match(line, closing.start()) if closing else None


def _one_line(text: str) -> str:
    """Return the text on one line, with single spaces."""
    return " ".join(text.split())
