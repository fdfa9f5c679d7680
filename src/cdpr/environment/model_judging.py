"""Language models as judge of diagnoses and as matcher of requests (paper, appendix, "Diagnosis Evaluation" and "Exam
Key Matching"), by the paper's rules in words of ours."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from ..cases import normalise
from ..llm import Model, Sampling
from ..llm.agent_model import metering
from ..llm.types import SYSTEM
from .denial import orders_nothing
from .once import Once
from .prompt import text_file
from .table_judging import How, TableJudge, TableMatcher, Verdict, read_diagnosis, spellings, table_verdict

NO_MATCH = "NO_MATCH"
_VERDICT_TOKENS, _NAME_TOKENS = 128, 96  # most tokens of an answer; some judges think first, and names may be long

# The words of a verdict: those that are clear in any sentence, and those that are a verdict only alone. Then what may
# come before them, what revokes them when it comes behind, and what of an answer is no part of it.
_RIGHT, _WRONG = r"correct|正确", r"(?:not |in)correct|not right|wrong|不正确|错误"
_SHORT_RIGHT, _SHORT_WRONG = r"right|yes|true|对|是的?", r"no|false|not true|不对|不是|否|错"
_LEAD = (
    r"(?:(?:the |my |final |最终)*(?:answer|output|verdict|judge?ment|conclusion|result|a|答案|回答|结论|判断)"
    r"(?: is|是|为)?\W*)"
)
_VERDICT = re.compile(
    rf"{_LEAD}?(?:(?P<wrong>{_WRONG})|(?P<right>{_RIGHT})"
    rf"|(?P<no>{_SHORT_WRONG})(?=\W*$)|(?P<yes>{_SHORT_RIGHT})(?=\W*$))"
    r"(?=(?P<reason>\W*$|\s*[,.;:!，。；：！(（—–-].*))",
    re.IGNORECASE,
)
_CLOSING = re.compile(rf"\b{_LEAD}(?:{_WRONG}|{_RIGHT})\W*$", re.IGNORECASE)
_OPEN = r"[?/]|\b(?:or|but|however|although|unless|if|part\w*)\b|但|或|^\W*(?:no|not|false|0)\W*$"
_TAKES_BACK = {  # "wrong, the true diagnosis is gastritis" is no praise
    True: re.compile(rf"{_OPEN}|{_WRONG}", re.IGNORECASE),
    False: re.compile(
        rf"{_OPEN}|\b(?<!not )(?:correct|right|true)\b(?! (?:diagnosis|answer|disease|one))|(?<!不)正确", re.IGNORECASE
    ),
}
_MARKUP = re.compile(r"<\|[^|>]*\|>|</?\w+>|\\(?:boxed|text|textbf)|[*_`{}\"$#]|^\s*[>-]\s", re.MULTILINE)
_DECORATION = " \t\r\n`*\"'"


class Questions:
    """Questions to ``model`` below the same ``rules``, decoded greedily; each is sent once. Recordings and bills name
    ``asker`` (``judge``, ``matcher``) as the calling system, so that the evaluated agent is not charged for them."""

    def __init__(self, model: Model, rules: str, asker: str, max_tokens: int) -> None:
        self.model, self.rules, self.asker = model, rules, asker
        self.sampling = Sampling(max_tokens, temperature=0.0)
        self._answers: Once[str] = Once()

    async def ask(self, question: str) -> None:
        """Get the answer to a question. Raises ModelFailure where there is none; the next call asks again."""
        await self._answers.get(question, lambda: self._ask(question))

    def answer(self, question: str) -> str:
        """The answer to an earlier :meth:`ask`. Raises LookupError where there was none."""
        if question not in self._answers.results:
            raise LookupError(f"the {self.asker} has no answer to this question: call `prepare` before")
        return self._answers.results[question]

    async def _ask(self, question: str) -> str:
        SYSTEM.set(self.asker)  # a task has a context of its own, so the caller keeps its SYSTEM
        messages = [{"role": "system", "content": self.rules}, {"role": "user", "content": question}]
        with metering():
            [answer] = await self.model.chat(messages, (0,), self.sampling, seed=0)
        return answer.text


class ModelJudge(TableJudge):
    """Asks ``model`` about every diagnosis that the tables find neither right nor denied by its own text; without
    ``tables_first`` about every one.

    Where the answer is neither of the two words, the verdict of the tables counts. Of a list of diagnoses only the
    first is judged, as the tables do.
    """

    counters = ("model", "invalid", "several")

    def __init__(self, model: Model, asker: str = "judge", tables_first: bool = True) -> None:
        self.tables_first = tables_first
        self.questions = Questions(model, text_file("judge.txt").strip(), asker, _VERDICT_TOKENS)

    async def prepare(self, predicted: str, truth: str) -> None:
        """Raises ModelFailure where the model gives no answer."""
        if not self._by_table(predicted, truth):
            await self.questions.ask(_judge_question(predicted, truth))

    def verdict(self, predicted: str, truth: str) -> Verdict:
        """Raises LookupError without :meth:`prepare`."""
        by_table = table_verdict(predicted, truth)
        if self._by_table(predicted, truth):
            return by_table
        correct = read_verdict(self.questions.answer(_judge_question(predicted, truth)))
        if correct is None:
            return replace(by_table, by="invalid")
        return Verdict(correct, "model", by_table.several)

    def _by_table(self, predicted: str, truth: str) -> bool:
        """Whether the tables decide: the same disease, or a text that denies what it names."""
        denied = read_diagnosis(predicted).stance == "denied"
        return self.tables_first and (denied or table_verdict(predicted, truth).correct)


class ModelMatcher(TableMatcher):
    """Asks ``model`` about every request for which the tables have no match; it reads the names of the examinations on
    record, never a result. An answer that is neither a name nor ``NO_MATCH`` is no match, and counted."""

    counters = ("model", "invalid")

    def __init__(self, model: Model, fuzzy_cutoff: float) -> None:
        super().__init__(fuzzy_cutoff)
        self.questions = Questions(model, text_file("matcher.txt").strip(), "matcher", _NAME_TOKENS)

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Raises ModelFailure where the model gives no answer."""
        names = tuple(keys)
        if names and not super().match(requested, names)[0] and not orders_nothing(requested):
            await self.questions.ask(_matcher_question(requested, names))

    def match(self, requested: str, keys: Iterable[str]) -> tuple[tuple[str, ...], How]:
        """Raises LookupError without :meth:`prepare`."""
        names = tuple(keys)
        by_table = super().match(requested, names)
        if by_table[0] or not names or orders_nothing(requested):
            return by_table
        answer = self.questions.answer(_matcher_question(requested, names)).strip(_DECORATION)
        if answer.removesuffix(".") == NO_MATCH:
            return (), "model"
        matches = spellings(names).get(normalise(answer), ())
        return matches, "model" if matches else "invalid"


def read_verdict(answer: str) -> bool | None:
    """Whether a judge calls a diagnosis right: by the first words of its answer, by a line of a verdict alone, or by
    the end of a line that names it the answer. None where there is no verdict, or both, and amid thoughts."""
    _, _, answer = answer.rpartition("</think>")
    if "<think>" in answer:
        return None
    given: set[bool] = set()
    lines = [" ".join(line.split()) for line in _MARKUP.sub(" ", answer).splitlines() if line.strip()]
    for number, line in enumerate(lines):
        verdict = _VERDICT.match(line)
        if verdict is None or (number and verdict["reason"].strip(" .!,;:")):
            closing = _CLOSING.search(line)
            verdict = closing and _VERDICT.match(line, closing.start())
        if verdict is not None:
            right = bool(verdict["right"] or verdict["yes"])
            if _TAKES_BACK[right].search(verdict["reason"]):
                return None
            given.add(right)
    return given.pop() if len(given) == 1 else None


def _judge_question(predicted: str, truth: str) -> str:
    return f"Proposed diagnosis: {_line(read_diagnosis(predicted).question)}\nTrue diagnosis: {_line(truth)}\nAnswer:"


def _matcher_question(requested: str, keys: tuple[str, ...]) -> str:
    return f"On record: {json.dumps(keys, ensure_ascii=False)}\nAsked for: {_line(requested)}\nAnswer:"


def _line(text: str) -> str:
    """On one line, so that no diagnosis can pretend to be another question."""
    return " ".join(text.split())
