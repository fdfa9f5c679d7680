"""Language models as judge of diagnoses and as matcher of requests (paper, appendix, "Diagnosis Evaluation" and "Exam
Key Matching"). Their prompts state the paper's rules in our own words."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from ..cases import normalise
from ..llm import Model, Sampling
from ..llm.agent_model import metering
from ..llm.types import SYSTEM
from .denial import declines_examination
from .once import Once
from .prompt import text_file
from .table_judging import Source, TableJudge, TableMatcher, Verdict, group_by_spelling, read_diagnosis, table_verdict

NO_MATCH = "NO_MATCH"
_VERDICT_TOKENS, _NAME_TOKENS = 128, 96  # most tokens of an answer; some judges think first, and names may be long

# The words of a verdict. Behind a word of _RIGHT or _WRONG there can be a reason, behind a _SHORT one only punctuation.
# Before a word there can be a _LEAD ("the answer is"). A reason that matches _REVOKED ("correct or not") undoes the
# verdict. _MARKUP is removed before a verdict is looked for.
_RIGHT, _WRONG = r"correct|正确", r"(?:not |in)correct|not right|wrong|不正确|错误"
_SHORT_RIGHT, _SHORT_WRONG = r"right|yes|true|对|是的?", r"no|false|not true|不对|不是|否|错"
_LEAD = (
    r"(?:(?:the |my |final |最终)*(?:answer|output|verdict|judge?ment|conclusion|result|a|答案|回答|结论|判断)"
    r"(?: is|是|为)?\W*)"
)
_VERDICT_WORD = re.compile(
    rf"{_LEAD}?(?:(?P<wrong>{_WRONG})|(?P<right>{_RIGHT})"
    rf"|(?P<no>{_SHORT_WRONG})(?=\W*$)|(?P<yes>{_SHORT_RIGHT})(?=\W*$))"
    r"(?=(?P<reason>\W*$|\s*[,.;:!，。；：！(（—–-].*))",
    re.IGNORECASE,
)
# A verdict at the end of a line; and words of a reason that leave the verdict open.
_CLOSING = re.compile(rf"\b{_LEAD}(?:{_WRONG}|{_RIGHT})\W*$", re.IGNORECASE)
_OPEN = r"[?/]|\b(?:or|but|however|although|unless|if|part\w*)\b|但|或|^\W*(?:no|not|false|0)\W*$"
# What undoes a verdict of right (True) or wrong (False): an open word, or a word of the opposite verdict. "Wrong, the
# true diagnosis is X" stays a verdict.
_REVOKED = {
    True: re.compile(rf"{_OPEN}|{_WRONG}", re.IGNORECASE),
    False: re.compile(
        rf"{_OPEN}|\b(?<!not )(?:correct|right|true)\b(?! (?:diagnosis|answer|disease|one))|(?<!不)正确", re.IGNORECASE
    ),
}
_MARKUP = re.compile(r"<\|[^|>]*\|>|</?\w+>|\\(?:boxed|text|textbf)|[*_`{}\"$#]|^\s*[>-]\s", re.MULTILINE)
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

    counters = ("model", "invalid", "several")

    def __init__(self, model: Model, asker: str = "judge", tables_first: bool = True) -> None:
        """Read the rules of the judge from the file ``prompts/judge.txt``. ``asker`` names the judge in recordings and
        bills."""
        self.tables_first = tables_first
        self.questions = Questions(model, text_file("judge.txt").strip(), asker, _VERDICT_TOKENS)

    async def prepare(self, predicted: str, truth: str) -> None:
        """Get the model's answer and keep it for :meth:`verdict`, if the verdict needs one. Raises ModelFailure where
        the model gives none."""
        if not self._tables_decide(predicted, truth):
            await self.questions.ask(_judge_question(predicted, truth))

    def verdict(self, predicted: str, truth: str) -> Verdict:
        """Judge whether ``predicted`` names the disease ``truth``: returns the verdict of the tables where they settle
        it, else the model's. An unreadable answer of the model gives the verdict of the tables, marked ``invalid``.
        Raises LookupError where :meth:`prepare` was not awaited before."""
        by_table = table_verdict(predicted, truth)
        if self._tables_decide(predicted, truth):
            return by_table
        correct = read_verdict(self.questions.answer(_judge_question(predicted, truth)))
        if correct is None:
            return replace(by_table, by="invalid")
        return Verdict(correct, "model", by_table.several)

    def _tables_decide(self, predicted: str, truth: str) -> bool:
        """Whether the tables of names settle the verdict, so that no model is asked: they find the same disease in both
        texts, or the predicted text denies its diagnosis. Always False without ``tables_first``."""
        denied = read_diagnosis(predicted).stance == "denied"
        return self.tables_first and (denied or table_verdict(predicted, truth).correct)


class ModelMatcher(TableMatcher):
    """A matcher that asks ``model`` where tables of names find no match. The model gets the names of the examinations
    on record, never a result. An answer that is neither such a name nor ``NO_MATCH`` counts as ``invalid`` and matches
    nothing."""

    counters = ("model", "invalid")

    def __init__(self, model: Model, fuzzy_cutoff: float) -> None:
        """Read the rules of the matcher from the file ``prompts/matcher.txt``. ``fuzzy_cutoff`` (0 to 100) is the least
        similarity of a misspelled name."""
        super().__init__(fuzzy_cutoff)
        self.questions = Questions(model, text_file("matcher.txt").strip(), "matcher", _NAME_TOKENS)

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Get the model's answer and keep it for :meth:`match`, if the match needs one: there are ``keys`` on record,
        the tables find none of them, and the request does not decline the examination. Raises ModelFailure where the
        model gives none."""
        names = tuple(keys)
        by_table, _ = super().match(requested, names)
        if names and not by_table and not declines_examination(requested):
            await self.questions.ask(_matcher_question(requested, names))

    def match(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], Source]:
        """Match a request with the ``keys`` of a record: returns the keys that it names (empty: none), and the source
        of the match. The source is ``table``; ``model`` where the model answered; ``invalid`` where its answer was
        unreadable. Raises LookupError where :meth:`prepare` was not awaited before."""
        names = tuple(keys)
        by_table, _ = super().match(requested, names)
        if by_table or not names or declines_examination(requested):  # the conditions of :meth:`prepare`
            return by_table, "table"
        answer = self.questions.answer(_matcher_question(requested, names)).strip(_DECORATION)
        if answer.removesuffix(".") == NO_MATCH:
            return (), "model"
        matches = group_by_spelling(names).get(normalise(answer), ())
        return matches, "model" if matches else "invalid"


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
    lines = [_one_line(line) for line in _MARKUP.sub(" ", answer).splitlines() if line.strip()]
    for number, line in enumerate(lines):
        verdict = _match_verdict(line, is_first=number == 0)
        if verdict is not None:
            right = bool(verdict["right"] or verdict["yes"])
            if _REVOKED[right].search(verdict["reason"]):  # "correct, but ..."
                return None
            verdicts.add(right)
    return verdicts.pop() if len(verdicts) == 1 else None


def _match_verdict(line: str, is_first: bool) -> re.Match[str] | None:
    """Find a verdict in one line of an answer: returns a match of :data:`_VERDICT_WORD`, or None. A verdict counts
    where it is the whole line, or ends the line after a lead ("the answer is: correct"). In the first line of the
    answer (``is_first``) it also counts at the beginning, before a reason ("correct: both name the same disease")."""
    verdict = _VERDICT_WORD.match(line)
    if verdict is not None and (is_first or not verdict["reason"].strip(" .!,;:")):
        return verdict
    closing = _CLOSING.search(line)
    return _VERDICT_WORD.match(line, closing.start()) if closing else None


def _judge_question(predicted: str, truth: str) -> str:
    """Write the user message that asks a judge about a predicted and a true diagnosis. Each is written on one line, so
    that a diagnosis cannot add lines to the message."""
    proposed = _one_line(read_diagnosis(predicted).question)
    return f"Proposed diagnosis: {proposed}\nTrue diagnosis: {_one_line(truth)}\nAnswer:"


def _matcher_question(requested: str, keys: tuple[str, ...]) -> str:
    """Write the user message that asks a matcher which of the examinations on record, ``keys``, a request names."""
    return f"On record: {json.dumps(keys, ensure_ascii=False)}\nAsked for: {_one_line(requested)}\nAnswer:"


def _one_line(text: str) -> str:
    """Return the text on one line, with single spaces."""
    return " ".join(text.split())
