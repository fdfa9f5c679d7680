"""Computes the exact posterior over diseases: from texts of a record to findings, and from findings to
probabilities."""

import functools
import re
from collections.abc import Iterable, Mapping

import numpy as np

from ..cases import PHYSICAL_SUFFIX, examinations, parse_analytes
from ..settings import IN_DOMAIN
from .model import Examination, Finding, Hospital, Site, load_hospital
from .sample import AGES, age_table

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_AGE = re.compile(r"(\d{1,3})[ -]*(?:years?|yr|y/?o)\b|\bage\D{0,3}(\d{1,3})", re.IGNORECASE)
_FEMALE = re.compile(r"\b(?:female|woman|lady|girl|f)\b", re.IGNORECASE)
_MALE = re.compile(r"\b(?:male|man|gentleman|boy|m)\b", re.IGNORECASE)
_SUMMARY_LINE = re.compile(r"^\s*-?\s*([A-Z][A-Za-z ]+):[ \t]*(.*)$", re.MULTILINE)


class Interpreter:
    """Reads the states of findings from the texts of one site. A text that it cannot read (blanks, lost values, words
    of other hospitals) gives no state."""

    def __init__(self, hospital: Hospital, site: Site):
        """Group the findings of the presentation by the heading of their line, and note which state of a finding a
        history leaves out (the absence of a symptom, say). Patterns of phrases are compiled later, at first use."""
        self.site = site
        # By the source of a text, a heading or an examination: a pattern of the phrases that it may have, and for each
        # phrase the name of the finding and the state that it means.
        self._vocabularies: dict[str, tuple[re.Pattern[str], dict[str, tuple[str, int]]]] = {}
        self._findings_by_line: dict[str, list[Finding]] = {}
        # A history lists only what is present, so a condition that it leaves out has the state without words.
        self._unmentioned: dict[str, int] = {}
        for finding in hospital.presentation:
            self._findings_by_line.setdefault(finding.line, []).append(finding)
            for state in range(len(finding.states)):
                if not any(site.every_phrase(finding, state)):
                    self._unmentioned.setdefault(finding.name, state)

    def presentation(self, summary: str) -> tuple[int | None, bool | None, dict[str, int]]:
        """Read a case summary, which has one line ``- Heading: text`` for each section. Returns the age in years,
        whether the patient is female, and the states of findings (an index by the name of the finding). Age and sex are
        None where the text does not say them."""
        # Where a heading comes twice, its first line counts.
        lines = {heading.strip(): text.strip() for heading, text in reversed(_SUMMARY_LINE.findall(summary))}
        states: dict[str, int] = {}
        for heading, findings in self._findings_by_line.items():
            text = lines.get(heading, "")
            if text.strip("_ ."):  # a line that is blank or lost tells nothing
                names = (finding.name for finding in findings)
                states |= {name: self._unmentioned[name] for name in names if name in self._unmentioned}
                states |= self._read_phrases(heading, findings, text)
        person = lines.get("Patient Information", summary)
        age = _AGE.search(person)  # its first group is the age in "54 years", its second that in "age 54"
        is_female = bool(_FEMALE.search(person))
        female = is_female if is_female or _MALE.search(person) else None  # None: the text names no sex
        return int(age[1] or age[2]) if age else None, female, states

    def examination(self, exam: Examination, text: str) -> dict[str, int]:
        """Read the result of an examination. Returns the states (indices) of its findings by their names. Findings that
        the text does not show are left out."""
        # Findings in words.
        worded = [finding for finding in exam.findings if finding.measure is None]
        states = self._read_phrases(exam.name, worded, text) if worded else {}
        # Laboratory quantities; ``values`` has what is printed for each, by the label in small letters.
        measured = [finding for finding in exam.findings if finding.measure is not None]
        values = {a.label.casefold(): a.value or a.comments for a in parse_analytes(text)} if measured else {}
        by_name = {finding.name: self._read_quantity(finding, values, text) for finding in measured}
        return states | {name: state for name, state in by_name.items() if state is not None}

    def _read_phrases(self, source: str, findings: list[Finding], text: str) -> dict[str, int]:
        """Read the states of ``findings``, by name, from the phrases in a text; the name of an organism is a phrase
        too. Of several phrases for one finding the first counts. Words that matched a long phrase are not matched again
        by a shorter one.

        ``source`` is the heading or the examination to which the text belongs. It determines the findings, so the
        pattern of their phrases is compiled once for each source.
        """
        if source not in self._vocabularies:
            meaning = {
                _normalise_phrase(phrase): (finding.name, state)
                for finding in findings
                for state in range(len(finding.states))
                for phrase in filter(None, self.site.every_phrase(finding, state))
            }
            for finding in findings:
                for state, organism in finding.organisms.items():
                    meaning[_normalise_phrase(organism["org_name"])] = finding.name, state
            longest_first = sorted(meaning, key=lambda phrase: (-len(phrase), phrase))
            alternatives = "|".join(rf"(?<!\w){re.escape(phrase)}(?!\w)" for phrase in longest_first)
            self._vocabularies[source] = re.compile(alternatives), meaning
        pattern, meaning = self._vocabularies[source]
        # In reverse, because the last entry of a finding stays in the dictionary: that of its first phrase.
        return dict(meaning[phrase] for phrase in reversed(pattern.findall(_normalise_phrase(text))))

    def _read_quantity(self, finding: Finding, values: Mapping[str, str | None], text: str) -> int | None:
        """Read the state (an index) of a laboratory finding from its printed value (:meth:`_read_value`): the state
        whose interval is nearest to the number, or whose phrase is the word. Returns None where there is no value, or
        one that cannot be read."""
        value = self._read_value(finding, values, text)
        if not value or value.strip() == "___":  # ___ replaces a value that was lost
            return None
        if finding.intervals is None:  # a value in words
            word, states = value.strip(" .;,").casefold(), range(len(finding.states))
            return next((s for s in states if word in map(str.casefold, self.site.every_phrase(finding, s))), None)
        number = _NUMBER.search(value)
        factor = finding.quantity.si[1] if self.site.si else 1.0  # from the model's unit to that of the site
        return nearest_interval(finding.intervals, float(number.group()) / factor) if number else None

    def _read_value(self, finding: Finding, values: Mapping[str, str | None], text: str) -> str | None:
        """Find the printed value of a laboratory finding, under any of its labels at the site. It is taken from
        ``values``, the parsed result by lower-case label, or else from the text. None where there is none."""
        labels = {style.label(finding.quantity) for style in self.site.styles or (self.site,)}
        longest_first = sorted(labels, key=len, reverse=True)  # because one label may begin another
        parsed = next((values[label.casefold()] for label in longest_first if label.casefold() in values), None)
        matches = (_value_pattern(label).search(text) for label in longest_first)
        return parsed if parsed is not None else next((match[1] for match in matches if match), None)


def _normalise_phrase(text: str) -> str:
    """Return the text in lower case, with single spaces, without full stops and spaces at its end."""
    return " ".join(text.casefold().split()).rstrip(". ")


@functools.cache
def _value_pattern(label: str) -> re.Pattern[str]:
    """Compile a pattern that matches the label of a quantity and the number or word after it, such as "Sodium: 128".
    Its first group is the number or word."""
    return re.compile(rf"(?<![\w-]){re.escape(label)}\s*[:=]?\s*([<>]?\s*-?\d+(?:\.\d+)?|[A-Za-z]+)", re.IGNORECASE)


def nearest_interval(intervals: tuple[tuple[float, float], ...], value: float) -> int:
    """The index of the first interval (low, high) that contains ``value``, its ends included, or else of the nearest
    one."""
    distances = [max(low - value, value - high, 0.0) for low, high in intervals]
    return distances.index(min(distances))


class Diagnostician:
    """Computes exact posteriors over diseases by Bayes' rule. It knows the synthetic hospital of one data set: how
    frequent its diseases are, how often a record has an examination, and how its texts are worded.

    ``diseases`` are the canonical names of the D diseases, ``exams`` the names of the E examinations. A distribution is
    an array over diseases, shape [D].
    """

    def __init__(self, hospital: Hospital | None = None, dataset: str = IN_DOMAIN):
        """Take the model ``hospital`` (None: the shipped one) with the site of the data set ``dataset``."""
        self.hospital = hospital or load_hospital()
        self.site = self.hospital.site(dataset)
        self.diseases = [d.name for d in self.hospital.diseases]
        self.exams = list(self.hospital.examinations)
        self.interpreter = Interpreter(self.hospital, self.site)
        self._ages = age_table(self.hospital)
        self._women = np.array([d.female for d in self.hospital.diseases])

    def prior(self, case_summary: str) -> np.ndarray:
        """P(disease | case summary), before any examination, shape [D]."""
        return self.posterior(*self.interpreter.presentation(case_summary))

    def posterior(self, age: int | None, female: bool | None, symptoms: dict[str, int]) -> np.ndarray:
        """P(disease | age in years, sex, symptoms), shape [D]. ``symptoms`` has the state (an index) of findings in the
        case summary, by name. What is None or missing is not conditioned on. It is the distribution over all patients
        where the model rules out every disease."""
        joint = self.site.weights  # P(disease, age, sex, symptoms), one factor after another
        if age is not None:  # an age outside the table counts as the nearest in it
            joint = joint * self._ages[:, min(max(age, AGES[0]), AGES[-1]) - AGES[0]]
        if female is not None:
            joint = joint * (self._women if female else 1 - self._women)
        return self.condition(joint, self.hospital.presentation, symptoms, self.site.weights)

    def update(self, before: np.ndarray, exam_key: str, result_text: str) -> np.ndarray:
        """P(disease) after the result ``result_text`` of the examination ``exam_key``, from the distribution
        ``before``; both have shape [D]. It is ``before`` itself where the examination is unknown or the text cannot be
        read."""
        exam = self.examination(exam_key)
        states = self.interpreter.examination(exam, result_text) if exam else {}
        return self.condition(before, exam.findings, states, before) if exam and states else before

    def condition(
        self, joint: np.ndarray, findings: Iterable[Finding], states: dict[str, int], otherwise: np.ndarray
    ) -> np.ndarray:
        """P(disease) given the states of findings, from the distribution ``joint``, which needs no sum of 1; both have
        shape [D]. ``states`` are indices by the name of the finding. It is ``otherwise`` where no disease allows these
        states."""
        for finding in findings:
            if finding.name in states:
                joint = joint * finding.table[:, states[finding.name]]
        total = joint.sum()
        return joint / total if total > 0 else otherwise

    def examination(self, exam_key: str) -> Examination | None:
        """Find the model's examination by its key in a record, which may be any name of it in the vocabulary. None
        where it is unknown."""
        name = canonical_name(exam_key)
        return self.hospital.examinations.get(name) if name else None

    def key(self, exam: str) -> str:
        """The key by which an agent requests the examination ``exam``: its name, with a suffix for an item of the
        physical examination."""
        return exam + PHYSICAL_SUFFIX if self.hospital.examinations[exam].kind == "physical" else exam

    @functools.cached_property
    def outcomes(self) -> list[np.ndarray]:
        """P(outcome | disease) for each examination, a list of arrays [outcomes, D]. An outcome is one combination of
        the states of all its findings that depend on the disease. Two findings with 2 and 3 states give 6 outcomes."""
        tables = []
        for exam in self.hospital.examinations.values():
            table = np.ones((1, len(self.diseases)))  # one outcome, until findings are added
            for finding in exam.findings:
                if finding.informative:
                    combined = table[:, None, :] * finding.table.T[None, :, :]  # [outcomes so far, states, D]
                    table = combined.reshape(-1, table.shape[1])
            tables.append(table)
        return tables

    @functools.cached_property
    def _stacked_outcomes(self) -> tuple[np.ndarray, np.ndarray]:
        """The :attr:`outcomes` of all examinations in one array, shape [all outcomes, D], and the first row of each
        examination in it, shape [E]."""
        starts = np.cumsum([0, *[len(table) for table in self.outcomes[:-1]]])
        return np.concatenate(self.outcomes), starts

    def expected_best(self, posterior: np.ndarray) -> np.ndarray:
        """Compute the expected probability of the likeliest disease after each examination, if it gives a result: E[max
        posterior], shape [..., E] for E examinations. ``posterior`` [..., D] is the distribution over the D diseases
        before the examination."""
        tables, starts = self._stacked_outcomes
        joint = tables * posterior[..., None, :]  # P(outcome, disease), [..., all outcomes, D]
        # P(outcome) max P(disease | outcome) is the largest P(outcome, disease); summed over an examination's outcomes.
        return np.add.reduceat(joint.max(axis=-1), starts, axis=-1)

    def net_gain(self, posterior: np.ndarray, charge: np.ndarray, miss: float) -> np.ndarray:
        """Compute the expected gain in utility of requesting one examination and then diagnosing, over diagnosing at
        once. Shape [..., E] for E examinations.

        ``posterior`` [..., D] is the distribution over the D diseases now. ``charge`` [E] is the utility lost to an
        examination with a result, ``miss`` the utility lost to a request whose result is unavailable.
        """
        available = self.site.availability
        gain = self.expected_best(posterior) - posterior.max(axis=-1, keepdims=True)
        return available * (gain - charge) - (1 - available) * miss

    def two_step_gain(
        self, posterior: np.ndarray, charge: np.ndarray, miss: float, requested: np.ndarray, also: Iterable[int] = ()
    ) -> np.ndarray:
        """Compute the expected gain in utility of requesting one examination, perhaps a second one, and then
        diagnosing, over diagnosing at once. Shape [E] for E examinations. The second is requested only where that gains
        utility.

        ``posterior`` [D] is the distribution over the D diseases now. ``charge`` [E] is the utility lost to an
        examination with a result, ``miss`` the utility lost to a request whose result is unavailable. ``requested`` [E]
        is True for the examinations that were requested before; their gain is -inf. To save time the gain is computed
        only for the eight examinations with the highest :meth:`net_gain` and for the indices in ``also``; it is -inf
        for all others.
        """
        barred = np.where(requested, -np.inf, 0.0)  # added to gains, so that nothing is requested twice
        one_step = self.net_gain(posterior, charge, miss) + barred
        two_step = np.full(len(self.exams), -np.inf)
        for exam in dict.fromkeys([*np.argsort(-one_step, kind="stable")[:8].tolist(), *also]):  # each once
            if requested[exam]:
                continue
            barred_next = barred.copy()
            barred_next[exam] = -np.inf
            # P(outcome, disease); then for each outcome the posterior, and what a second request gains after it.
            joint = self.outcomes[exam] * posterior
            p_outcome = joint.sum(axis=1)
            posteriors = joint / p_outcome[:, None]
            next_gain = (self.net_gain(posteriors, charge, miss) + barred_next).max(axis=1)
            # The expected utility if the examination gives a result, and if it gives none.
            with_result = p_outcome @ (posteriors.max(axis=1) + np.maximum(next_gain, 0.0)) - charge[exam]
            without_result = posterior.max() + max((one_step + barred_next).max(), 0.0) - miss
            available = self.site.availability[exam]
            two_step[exam] = available * with_result + (1 - available) * without_result - posterior.max()
        return two_step


@functools.cache
def canonical_name(exam_key: str) -> str | None:
    """The vocabulary's name of an examination, found by any of its names; ``exam_key`` may have the suffix of a
    physical item. None for an unknown examination."""
    term = examinations().find(exam_key) or examinations().find(exam_key.removesuffix(PHYSICAL_SUFFIX))
    return term.name if term else None
