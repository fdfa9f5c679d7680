"""A language model that finds the examination a request names (paper, appendix, "Exam Key Matching"), in words of
ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from ..cases import normalise
from ..llm import Model
from .matcher import How, Matcher, spellings
from .questions import Questions

NO_MATCH = "NO_MATCH"
RULES = f"""\
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
_LONGEST = 96  # tokens of an answer: of the longest names of examinations
_DECORATION = " \t\r\n`*\"'"


class ModelMatcher(Matcher):
    """Asks ``model`` about every request for which ``tables`` find no examination of the record; it is shown their
    names, never a result. An answer that is neither one of them nor ``NO_MATCH`` is none, and counted: ``calls`` counts
    requests by how they were answered."""

    def __init__(self, model: Model, tables: Matcher, calls: Counter[str] | None = None) -> None:
        self.tables = tables
        self.questions = Questions(model, RULES, "matcher", _LONGEST)
        self.calls = Counter() if calls is None else calls
        self.calls.update({"matcher_model": 0, "matcher_invalid": 0})

    async def prepare(self, requested: str, keys: Iterable[str]) -> None:
        """Raises ModelFailure where the model gives no answer."""
        names = tuple(keys)
        if names and not self.tables.match(requested, names):
            await self.questions.ask(_question(requested, names))

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
        said = self.questions.answer(_question(requested, names)).strip(_DECORATION)
        if said.removesuffix(".") == NO_MATCH:
            return (), "model"
        same = spellings(names).get(normalise(said), ())
        return same, "model" if same else "invalid"


def _question(requested: str, keys: tuple[str, ...]) -> str:
    listed = json.dumps(keys, ensure_ascii=False)
    return f"On record: {listed}\nAsked for: {' '.join(requested.split())}\nAnswer:"
