"""Help from a language model for discharge notes whose sections regular expressions cannot split.

The model may only copy. It sees nothing but the sections in question, and of its answer counts what stands in them
word for word; findings are widened to whole clauses, so that no "no" is cut off. All else is rejected and counted.
"""

import asyncio
import bisect
import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ..cases import examinations
from ..llm import Model, ModelFailure, ModelSpec, ModelUnavailable, Sampling, open_model
from ..llm.guard import disclosed
from ..settings.datasets import Structurer
from ..settings.models import Calls
from .draft import Import
from .names import add_text, physical_key
from .notes import DischargeNote, examination_part, note_sections, primary_diagnosis
from .texts import one_line, patterns, phrases, says_something

ASKED = "structurer asked"
USED = "structurer answers used"
ABSENT = "structurer answers rejected: not in the note"
AMBIGUOUS = "structurer answers rejected: in several places of the note, or claimed twice"
NEGATED = "structurer answers rejected: the note negates it"
MALFORMED = "structurer answers rejected: not in the form asked for"
SILENT = "structurer gave no answer"

_WORDS = phrases("structurer")

_MAX_TOKENS = 512  # of an answer, which copies at most one section
_LONGEST_CLEAR = 12  # words of a diagnosis; what is longer tells a story
_PATTERN, _NOTE, _EXAM = map(patterns, ("structurer", "notes", "physical"))


class NoteStructurer:
    """Asks the model of ``settings`` about notes that need it; answers are recorded below the import's ``state``,
    readable by the owner alone, so that a killed run does not ask twice.

    ``counters``, the events of the import, tell what became of the answers. Raises SettingsError for an unusable
    setting and GovernanceError where credentialed text would leave the machine, both before any note is read.
    """

    def __init__(self, settings: Structurer, work: Import) -> None:
        spec = ModelSpec.of_structurer(settings, work.governance, credentialed=work.credentialed)
        self._disclosure = spec.check(work.attrition.dataset)
        self.spec = dataclasses.replace(spec, calls=Calls(), state=str(work.state))
        self.counters = work.attrition.events
        self._sampling = Sampling(_MAX_TOKENS, temperature=0.0)

    @cached_property
    def model(self) -> Model:
        """Opened when it is first asked."""
        return open_model(self.spec)

    def improve_all(self, notes: Sequence[tuple[DischargeNote, str]]) -> list[DischargeNote]:
        """Each note with the systems of its physical examination and its primary diagnosis, where its text has them and
        the parser did not find them; otherwise as it is. A server is asked about several notes at once. Raises
        ModelUnavailable when the model answers nobody."""

        async def improve_all() -> list[DischargeNote]:
            gate = asyncio.Semaphore(1 if self.spec.address is None else self.spec.at_once)
            return list(await asyncio.gather(*(self._improve(note, text, gate) for note, text in notes)))

        return asyncio.run(improve_all())

    async def _improve(self, note: DischargeNote, text: str, gate: asyncio.Semaphore) -> DischargeNote:
        lump, story = _unsplit(note, text), _unclear(note, text)
        async with gate:
            if lump and (findings := self.physical(lump, await self._ask("physical", lump))):
                note = dataclasses.replace(note, physical=findings)
            if story and (diagnosis := self.diagnosis(story, await self._ask("primary_diagnosis", story))):
                note = dataclasses.replace(note, primary_diagnosis=diagnosis)
        return note

    def tags(self) -> dict[str, str]:
        """For ``run.json``: the host and the agreement, if credentialed text went to another machine, now or in an
        earlier attempt whose answers were recorded."""
        return disclosed([self._disclosure]) if self.counters[ASKED] else {}

    async def _ask(self, kind: str, section: str) -> Any:
        """What the model's answer holds under ``kind``; None when there is no answer."""
        self.counters[ASKED] += 1
        try:
            [completion] = await self.model.chat(_messages(kind, section), (0,), self._sampling, seed=0)
        except ModelUnavailable:
            raise
        except ModelFailure:
            return self._rejected(SILENT)
        if completion.finish_reason in ("too_long", "refusal", "failed"):
            return self._rejected(SILENT)
        answer = _json_object(completion.text)
        return self._rejected(MALFORMED) if answer is None else answer.get(kind)

    def _rejected(self, why: str) -> None:
        self.counters[why] += 1

    # The check

    def physical(self, section: str, answer: Any) -> dict[str, str]:
        """Clauses of the section by system; each goes to one system, what none claims is vital signs or the general
        appearance."""
        if not isinstance(answer or {}, dict):
            self._rejected(MALFORMED)
            answer = None
        free = dict(enumerate(clauses := _clauses(section)))
        results: dict[str, str] = {}
        for system, words in (answer or {}).items():
            where = None if words in ("", None) else self._locate(system, words, clauses)
            if where is None:
                continue
            if free.keys() >= set(where):
                add_text(results, physical_key(system), " ".join(free.pop(i) for i in where))
                self.counters[USED] += 1
            else:
                self._rejected(AMBIGUOUS)
        for clause in free.values() if results else ():
            left = "Vital Signs" if _EXAM.vital_numbers.search(clause) else "General Appearance"
            add_text(results, physical_key(left), clause)
        return {key: text.rstrip(" ,;") for key, text in results.items()}

    def _locate(self, system: str, words: Any, clauses: list[str]) -> range | None:
        """The clauses in which the words stand; None, and counted, unless that is one place and the system is one of
        the vocabulary or of the section's own words."""
        if not isinstance(words, str):
            return self._rejected(MALFORMED)
        text, term = " ".join(clauses), examinations().find(system)
        known = term is not None and term.kind == "physical"
        places = _places(words, text) if known or _places(system, text) else []
        if len(places) != 1:
            return self._rejected(AMBIGUOUS if places else ABSENT)
        [(start, stop)] = places
        ends = list(itertools.accumulate(len(clause) + 1 for clause in clauses))
        return range(bisect.bisect_right(ends, start), bisect.bisect_right(ends, stop - 1) + 1)

    def diagnosis(self, section: str, answer: Any) -> str:
        """The diagnosis of the answer, where it is a few words of the section that this does not negate."""
        text, is_text = one_line(section), isinstance(answer, str)
        places = _places(answer, text) if is_text else []
        before = [re.split(r"[.;]\s", text[:start])[-1] for start, _ in places]
        if not answer:
            return ""
        if is_text and not places:
            self._rejected(ABSENT)
        elif not is_text or len(answer.split()) > _LONGEST_CLEAR:
            self._rejected(MALFORMED)
        elif any(_PATTERN.negation.search(clause) or _PATTERN.alternative.search(clause) for clause in before):
            self._rejected(NEGATED)
        else:
            self.counters[USED] += 1
            return primary_diagnosis(text[slice(*places[0])])
        return ""


def _messages(kind: str, section: str) -> list[dict[str, str]]:
    """The task, an example, and the section."""
    systems = ", ".join(term.name for term in examinations().terms.values() if term.kind == "physical")
    example, reply = _WORDS["examples"][kind]
    title = _WORDS["titles"][kind]
    return [
        {"role": "system", "content": _WORDS["task"].format(systems=systems)},
        {"role": "user", "content": f"{title}:\n{example}"},
        {"role": "assistant", "content": json.dumps({kind: reply})},
        {"role": "user", "content": f"{title}:\n{section}"},
    ]


def _unsplit(note: DischargeNote, text: str) -> str:
    """The physical examination at admission, if the parser left it in one lump; else nothing."""
    section = examination_part(note_sections(text).get("physical", ""))[0].strip()
    systems = set(note.physical) - {physical_key("Vital Signs")}
    return section if len(systems) <= 1 and says_something(section) else ""


def _unclear(note: DischargeNote, text: str) -> str:
    """The primary part of the discharge diagnosis, if the parser found none or a story; else nothing."""
    lines = note_sections(text).get("diagnosis", "").splitlines()
    section = "\n".join(itertools.takewhile(lambda line: not _NOTE.secondary.match(one_line(line)), lines)).strip()
    clear = 0 < len(note.primary_diagnosis.split()) <= _LONGEST_CLEAR
    return section if not clear and says_something(section) else ""


def _clauses(section: str) -> list[str]:
    """The section in pieces that can stand alone: sentences, and their parts between commas as far as nothing is
    negated, because a "no" reaches over the commas that follow it."""
    clauses: list[str] = []
    for sentence in _PATTERN.sentence_end.split(section):
        parts = one_line(sentence).split(", ")
        end = next((i for i, part in enumerate(parts) if _PATTERN.negation.search(part)), len(parts))
        clauses += [part + "," for part in parts[:end]] + ([", ".join(parts[end:])] if parts[end:] else [])
        clauses[-1] = clauses[-1].removesuffix(",")
    return [clause for clause in clauses if says_something(clause)]


def _places(words: str, text: str) -> list[tuple[int, int]]:
    """Start and end of every occurrence of the words in a one-line text, as whole words. Punctuation around the words
    belongs to the model's answer and is left out."""
    words = one_line(words).strip(" .,;:")
    if not says_something(words):
        return []
    return [match.span() for match in re.finditer(rf"(?<!\w){re.escape(words)}(?!\w)", text)]


def _json_object(answer: str) -> dict[str, Any] | None:
    """The first JSON object in an answer, whatever stands around it."""
    start = answer.find("{")
    try:
        value, _ = json.JSONDecoder().raw_decode(answer, start) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
