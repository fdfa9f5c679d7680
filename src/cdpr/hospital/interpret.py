"""From the text of a record back to the states of the model's findings.

What cannot be read (blanks, lost values, foreign words) yields nothing, and so no update.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from ..cases import parse_analytes
from .model import Examination, Finding, Hospital, Site

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AGE = re.compile(r"(\d{1,3})[ -]*(?:years?|yr|y/?o)\b|\bage\D{0,3}(\d{1,3})", re.IGNORECASE)
_FEMALE = re.compile(r"\b(?:female|woman|lady|girl|f)\b", re.IGNORECASE)
_MALE = re.compile(r"\b(?:male|man|gentleman|boy|m)\b", re.IGNORECASE)
_SUMMARY_LINE = re.compile(r"^\s*-?\s*([A-Z][A-Za-z ]+):[ \t]*(.*)$", re.MULTILINE)


class Interpreter:
    """Reads the texts of one site."""

    def __init__(self, hospital: Hospital, site: Site):
        self.site = site
        self._phrases: dict[str, _Phrases] = {}
        self._lines: dict[str, list[Finding]] = {}
        # A condition that would be listed and is not, is absent: the state that the site has no words for.
        self._unsaid: dict[str, int] = {}
        for finding in hospital.presentation:
            self._lines.setdefault(finding.line, []).append(finding)
            for state in range(len(finding.states)):
                if not any(site.every_phrase(finding, state)):
                    self._unsaid.setdefault(finding.name, state)

    def examination(self, exam: Examination, text: str) -> dict[str, int]:
        """States of an examination's findings, as far as its result text tells them."""
        found: dict[str, int] = {}
        sentences = [f for f in exam.findings if f.measure is None]
        if sentences:
            found |= self._read(exam.name, sentences, text) | _organisms(sentences, text)
        measured = [f for f in exam.findings if f.measure is not None]
        if measured:
            values = {analyte.label.casefold(): analyte.value or analyte.comments for analyte in parse_analytes(text)}
            for finding in measured:
                state = self._measured(finding, values, text)
                if state is not None:
                    found[finding.name] = state
        return found

    def _read(self, place: str, findings: list[Finding], text: str) -> dict[str, int]:
        if place not in self._phrases:
            self._phrases[place] = _Phrases(findings, self.site)
        return self._phrases[place].read(text)

    def _measured(self, finding: Finding, values: Mapping[str, str | None], text: str) -> int | None:
        labels = self.site.every_label(finding.measure)
        value = next((values[label.casefold()] for label in labels if label.casefold() in values), None)
        if value is None:
            value = next((match[1] for label in labels if (match := _labelled(label).search(text))), None)
        if not value or value.strip() == "___":
            return None
        if finding.intervals is None:
            return self._word(finding, value)
        number = _NUMBER.search(value)
        if number is None:
            return None
        factor = finding.measure.si[1] if self.site.si else 1.0
        return nearest_interval(finding.intervals, float(number.group()) / factor)

    def _word(self, finding: Finding, value: str) -> int | None:
        said = value.strip(" .;,").casefold()
        for state in range(len(finding.states)):
            if said in (phrase.casefold() for phrase in self.site.every_phrase(finding, state)):
                return state
        return None

    def presentation(self, summary: str) -> tuple[int | None, bool | None, dict[str, int]]:
        """Age in years, whether female, and the states of the presentation findings."""
        lines: dict[str, str] = {}
        for heading, text in _SUMMARY_LINE.findall(summary):
            lines.setdefault(heading.strip(), text.strip())
        person = lines.get("Patient Information", summary)
        age, female = _age(person), _female(person)
        found: dict[str, int] = {}
        for line, findings in self._lines.items():
            text = lines.get(line, "")
            if not text or text.strip("_ .") == "":
                continue
            found |= self._read(line, findings, text)
            for finding in findings:
                if finding.name in self._unsaid:
                    found.setdefault(finding.name, self._unsaid[finding.name])
        return age, female, found


class _Phrases:
    """Phrases and their states, tried longest first; text that one phrase has matched is not matched again."""

    def __init__(self, findings: list[Finding], site: Site):
        self.meaning: dict[str, tuple[str, int]] = {}
        for finding in findings:
            for state in range(len(finding.states)):
                for phrase in site.every_phrase(finding, state):
                    if phrase:
                        self.meaning[_plain(phrase)] = finding.name, state
        longest_first = sorted(self.meaning, key=lambda p: (-len(p), p))
        self.pattern = re.compile("|".join(rf"(?<!\w){re.escape(p)}(?!\w)" for p in longest_first))

    def read(self, text: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for phrase in self.pattern.findall(_plain(text)):
            name, state = self.meaning[phrase]
            found.setdefault(name, state)
        return found


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(". ")


def _organisms(findings: list[Finding], text: str) -> dict[str, int]:
    folded = text.casefold()
    return {
        finding.name: state
        for finding in findings
        for state, (_, organism) in (finding.organisms or {}).items()
        if organism.casefold() in folded
    }


@functools.cache
def _labelled(label: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(label)}\s*[:=]?\s*([<>]?\s*-?\d+(?:\.\d+)?|[A-Za-z]+)", re.IGNORECASE)


def nearest_interval(intervals: tuple[tuple[float, float], ...], value: float) -> int:
    """Index of the interval that holds the value, or else lies nearest to it."""
    gaps = [max(low - value, value - high, 0.0) for low, high in intervals]
    return gaps.index(min(gaps))


def _age(text: str) -> int | None:
    match = _AGE.search(text)
    return int(match[1] or match[2]) if match else None


def _female(text: str) -> bool | None:
    if _FEMALE.search(text):
        return True
    return False if _MALE.search(text) else None
