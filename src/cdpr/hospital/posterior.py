"""From the text of a record to findings, and from findings to the exact posterior over diseases."""

import functools
import re
from collections.abc import Iterable, Mapping

import numpy as np

from ..cases import PHYSICAL_SUFFIX, examinations, parse_analytes
from ..settings.datasets import IN_DOMAIN
from .model import Examination, Finding, Hospital, Site, load_hospital
from .sample import AGES, age_table

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AGE = re.compile(r"(\d{1,3})[ -]*(?:years?|yr|y/?o)\b|\bage\D{0,3}(\d{1,3})", re.IGNORECASE)
_FEMALE = re.compile(r"\b(?:female|woman|lady|girl|f)\b", re.IGNORECASE)
_MALE = re.compile(r"\b(?:male|man|gentleman|boy|m)\b", re.IGNORECASE)
_SUMMARY_LINE = re.compile(r"^\s*-?\s*([A-Z][A-Za-z ]+):[ \t]*(.*)$", re.MULTILINE)


class Interpreter:
    """Reads the texts of one site. Unreadable text (blanks, lost values, foreign words) yields no state."""

    def __init__(self, hospital: Hospital, site: Site):
        self.site = site
        self._phrases: dict[str, tuple[re.Pattern[str], dict[str, tuple[str, int]]]] = {}
        self._lines: dict[str, list[Finding]] = {}
        # A history lists only what is present, so a condition that it leaves out has the state without words.
        self._absent: dict[str, int] = {}
        for finding in hospital.presentation:
            self._lines.setdefault(finding.line, []).append(finding)
            for state in range(len(finding.states)):
                if not any(site.every_phrase(finding, state)):
                    self._absent.setdefault(finding.name, state)

    def presentation(self, summary: str) -> tuple[int | None, bool | None, dict[str, int]]:
        """Age in years, whether female, and the states of the presentation findings."""
        # Of a heading that comes again the first counts.
        lines = {heading.strip(): text.strip() for heading, text in reversed(_SUMMARY_LINE.findall(summary))}
        person = lines.get("Patient Information", summary)
        states: dict[str, int] = {}
        for line, findings in self._lines.items():
            text = lines.get(line, "")
            if text.strip("_ ."):
                absent = {f.name: self._absent[f.name] for f in findings if f.name in self._absent}
                states |= absent | self._read(line, findings, text)
        age, male = _AGE.search(person), _MALE.search(person)
        female = True if _FEMALE.search(person) else False if male else None
        return int(age[1] or age[2]) if age else None, female, states

    def examination(self, exam: Examination, text: str) -> dict[str, int]:
        """States of an examination's findings, as far as its result text can be read."""
        worded = [finding for finding in exam.findings if finding.measure is None]
        states = self._read(exam.name, worded, text) | _organisms(worded, text) if worded else {}
        measured = [finding for finding in exam.findings if finding.measure is not None]
        values = {a.label.casefold(): a.value or a.comments for a in parse_analytes(text)} if measured else {}
        by_name = {finding.name: self._measured(finding, values, text) for finding in measured}
        return states | {name: state for name, state in by_name.items() if state is not None}

    def _read(self, place: str, findings: list[Finding], text: str) -> dict[str, int]:
        """States by finding from the phrases of the text; of several phrases of a finding the first counts. Text that
        matched one phrase is not matched again by a shorter one."""
        if place not in self._phrases:
            meaning = {
                _plain(phrase): (finding.name, state)
                for finding in findings
                for state in range(len(finding.states))
                for phrase in filter(None, self.site.every_phrase(finding, state))
            }
            longest_first = sorted(meaning, key=lambda phrase: (-len(phrase), phrase))
            alternatives = "|".join(rf"(?<!\w){re.escape(phrase)}(?!\w)" for phrase in longest_first)
            self._phrases[place] = re.compile(alternatives), meaning
        pattern, meaning = self._phrases[place]
        return dict(meaning[phrase] for phrase in reversed(pattern.findall(_plain(text))))

    def _measured(self, finding: Finding, values: Mapping[str, str | None], text: str) -> int | None:
        """The state of a laboratory finding, from the ``values`` of a parsed result or from its text; None where there
        is none."""
        # Longest first, because one name may begin another.
        names = {style.label(finding.quantity) for style in self.site.styles or (self.site,)}
        labels = sorted(names, key=len, reverse=True)
        value = next((values[label.casefold()] for label in labels if label.casefold() in values), None)
        if value is None:
            value = next((match[1] for label in labels if (match := _labelled(label).search(text))), None)
        if not value or value.strip() == "___":
            return None
        if finding.intervals is None:
            word, states = value.strip(" .;,").casefold(), range(len(finding.states))
            return next((s for s in states if word in map(str.casefold, self.site.every_phrase(finding, s))), None)
        number = _NUMBER.search(value)
        factor = finding.quantity.si[1] if self.site.si else 1.0
        return nearest_interval(finding.intervals, float(number.group()) / factor) if number else None


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(". ")


def _organisms(findings: list[Finding], text: str) -> dict[str, int]:
    """The states of cultures whose organism the text names."""
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
    """Index of the interval that holds the value, else of the nearest one."""
    gaps = [max(low - value, value - high, 0.0) for low, high in intervals]
    return gaps.index(min(gaps))


class Diagnostician:
    """Bayes' rule under the hospital's model of one data set (disease mix and availability included).

    All distributions are arrays over ``diseases`` (canonical names), shape [D].
    """

    def __init__(self, hospital: Hospital | None = None, dataset: str = IN_DOMAIN):
        self.hospital = hospital or load_hospital()
        self.site = self.hospital.site(dataset)
        self.diseases = [d.name for d in self.hospital.diseases]
        self.exams = list(self.hospital.examinations)
        self.interpreter = Interpreter(self.hospital, self.site)
        self._ages = age_table(self.hospital)
        self._women = np.array([d.female for d in self.hospital.diseases])

    def prior(self, case_summary: str) -> np.ndarray:
        """P(disease | presentation)."""
        return self.posterior(*self.interpreter.presentation(case_summary))

    def posterior(self, age: int | None, female: bool | None, symptoms: dict[str, int]) -> np.ndarray:
        """P(disease | age, sex, states of the presentation findings)."""
        p = self.site.weights.copy()
        if age is not None:
            p = p * self._ages[:, min(max(age, AGES[0]), AGES[-1]) - AGES[0]]
        if female is not None:
            p = p * (self._women if female else 1 - self._women)
        for finding in self.hospital.presentation:
            if finding.name in symptoms:
                p = p * finding.table[:, symptoms[finding.name]]
        return p / p.sum()

    def update(self, p: np.ndarray, exam_key: str, result_text: str) -> np.ndarray:
        """The posterior after one result; ``p`` itself where nothing could be read."""
        exam = self.examination(exam_key)
        states = self.interpreter.examination(exam, result_text) if exam else {}
        return self.condition(p, exam, states) if exam and states else p

    def condition(self, p: np.ndarray, exam: Examination, states: dict[str, int]) -> np.ndarray:
        """The posterior after these states of an examination's findings; ``p`` itself if they are impossible."""
        q = p
        for finding in exam.findings:
            if finding.name in states:
                q = q * finding.table[:, states[finding.name]]
        total = q.sum()
        return q / total if total > 0 else p

    def examination(self, exam_key: str) -> Examination | None:
        """The model's examination behind a record's key, by any of its names."""
        name = canonical_name(exam_key)
        return self.hospital.examinations.get(name) if name else None

    def key(self, exam: str) -> str:
        """The name by which to request an examination."""
        return exam + PHYSICAL_SUFFIX if self.hospital.examinations[exam].kind == "physical" else exam

    @functools.cached_property
    def outcomes(self) -> list[np.ndarray]:
        """P(joint outcome | disease) of each examination's informative findings, shape [outcomes, D] each."""
        tables = []
        for exam in self.hospital.examinations.values():
            table = np.ones((1, len(self.diseases)))
            for finding in exam.findings:
                if finding.informative:
                    table = (table[:, None, :] * finding.table.T[None, :, :]).reshape(-1, table.shape[1])
            tables.append(table)
        return tables

    @functools.cached_property
    def _stacked(self) -> tuple[np.ndarray, np.ndarray]:
        starts = np.cumsum([0, *[len(table) for table in self.outcomes[:-1]]])
        return np.concatenate(self.outcomes), starts

    def expected_best(self, p: np.ndarray) -> np.ndarray:
        """E[max posterior] after each examination if it gives a result, shape [examinations].

        ``p`` may have leading axes, which are kept.
        """
        tables, starts = self._stacked
        joint = tables * p[..., None, :]
        return np.add.reduceat(joint.max(axis=-1), starts, axis=-1)

    def net_gain(self, p: np.ndarray, charge: np.ndarray, miss: float) -> np.ndarray:
        """Expected gain in utility of one request of each examination and a diagnosis after it, over a diagnosis
        at once; ``charge`` [examinations] is the price of a result and ``miss`` that of an unavailable request."""
        on = self.site.availability
        return on * (self.expected_best(p) - p.max(axis=-1, keepdims=True) - charge) - (1 - on) * miss

    def two_step_gain(
        self, p: np.ndarray, charge: np.ndarray, miss: float, requested: np.ndarray, also: Iterable[int] = ()
    ) -> np.ndarray:
        """As :meth:`net_gain`, but the first answer may be followed by one more request where that gains.

        Only the eight examinations with the highest one-step gain and the indices ``also`` are planned; all others, and
        those already ``requested`` [examinations of bool], are -inf.
        """
        barred = np.where(requested, -np.inf, 0.0)
        one = self.net_gain(p, charge, miss) + barred
        two = np.full(len(self.exams), -np.inf)
        for exam in dict.fromkeys([*np.argsort(-one, kind="stable")[:8].tolist(), *also]):
            if requested[exam]:
                continue
            then = barred.copy()
            then[exam] = -np.inf
            joint = self.outcomes[exam] * p
            chance = joint.sum(axis=1)
            after = joint / chance[:, None]
            worth = after.max(axis=1) + np.maximum((self.net_gain(after, charge, miss) + then).max(axis=1), 0.0)
            with_result = chance @ worth - charge[exam]
            without_result = p.max() + max((one + then).max(), 0.0) - miss
            on = self.site.availability[exam]
            two[exam] = on * with_result + (1 - on) * without_result - p.max()
        return two


@functools.cache
def canonical_name(exam_key: str) -> str | None:
    """The vocabulary's name of an examination, by any name in a record or a request."""
    term = examinations().find(exam_key) or examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
    return term.name if term else None
