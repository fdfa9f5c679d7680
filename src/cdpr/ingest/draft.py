"""Turns the draft of a case, which an importer makes, into its record. The checks and the leak control are the same for
all data sets.

The case summary (paper, appendix "Unified data format") is one text of several sections, which this module writes and
reads.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..cases import SECTIONS, CaseRecord, RecordError, is_physical, iterate_records, no_examination, write_records
from ..job import Job
from ..settings import Settings
from ..settings.datasets import Leaks
from .attrition import UNREADABLE, Attrition
from .flat_files import Element, IngestError
from .leaks import STRICT, control_leaks
from .texts import is_absent, is_code, language_of, one_line, plain_text, says_something, visible

# Events that are counted: entries among the results that examine nothing (remarks, treatments, histories, reference
# ranges), and physical examinations that end where another heading begins.
NO_EXAMINATION = "entries that are no examination"
CUT = "physical examinations that end at a heading of something else"
_BULLET = re.compile(rf"- ({'|'.join(SECTIONS)}): (.*)")  # a line of a case summary: "- Family History: ..."


@dataclass
class Draft:
    """A case as its source has it, before checks and leak control.

    ``history`` has texts by section of the case summary; ``results`` and ``physical`` have texts by examination key.
    ``diagnosis`` is the primary one, ``final_diagnosis`` the source's whole text of it, if that has more.
    ``subject_key`` is the patient's identifier; if empty, ``note_id`` is used. ``language`` is the one that the source
    states; None: it is found from complaint and present illness.

    ``rejected`` is the rule by which the importer already found the case unusable, None if it did not. ``where``
    describes the case without a word of it; a warning about a rule that drops many cases quotes it as an example.
    ``needs_physical``: a case without physical examination is dropped, as the pipeline of the paper's MIMIC-IV cases
    does.
    """

    note_id: str
    history: dict[str, str]
    results: dict[str, str]
    diagnosis: str
    subject_key: str = ""
    final_diagnosis: str = ""
    language: Literal["en", "zh"] | None = None
    rejected: str | None = None
    needs_physical: bool = False
    physical: dict[str, str] = field(default_factory=dict)
    where: str = ""


@dataclass
class Import:
    """What an importer gets beside the settings of its data set.

    ``credentialed`` marks cases whose text must not leave the machine. ``leaks`` are the settings of leak control.
    ``attrition`` collects counts. ``path`` is the file or folder with the raw data, ``state`` a folder for unfinished
    work, which survives a kill.
    """

    credentialed: bool
    leaks: Leaks
    attrition: Attrition
    path: Path = Path()
    state: Path = Path()
    _identifiers: set[str] = field(default_factory=set)  # of the cases so far

    def is_repeated(self, note_id: str) -> bool:
        """Whether a case with this ``note_id`` was asked about before. Remembers the identifier."""
        is_known = note_id in self._identifiers
        self._identifiers.add(note_id)
        return is_known

    def records(self, drafts: Iterable[Draft]) -> Iterator[CaseRecord]:
        """Yield the records of the usable drafts. Of several drafts with one ``note_id`` only the first is usable."""
        for draft in drafts:
            if self.is_repeated(draft.note_id) and not draft.rejected:
                draft.rejected = "same case twice"
            if record := self.record(draft):
                yield record

    def record(self, draft: Draft) -> CaseRecord | None:
        """Check a draft, remove its leaks as the settings say, and return its record. Its split is ``test`` until the
        data set is split. Returns None, counted in ``attrition``, where a rule drops the case."""
        attrition = self.attrition
        attrition.read += 1
        history = _clean_history(draft)
        if rule := draft.rejected or _failed_rule(draft, history):
            attrition.drop(rule, draft.note_id, draft.where)
            return None
        results = self._clean_results(draft)
        controlled = control_leaks(draft.note_id, draft.diagnosis, history, results, self.leaks, attrition)
        if controlled is None:
            return None
        history, results = controlled
        # A case must have an examination; where it needs a physical one anyway, that does not count.
        examinations = set(results).difference(draft.physical if draft.needs_physical else ())
        if rule := missing_content(history, examinations):
            attrition.drop(rule, draft.note_id, draft.where)
            return None
        return CaseRecord(
            note_id=draft.note_id,
            case_summary=build_summary(history),
            key_pertinent_results_dict=results,
            final_diagnosis=draft.final_diagnosis or draft.diagnosis,
            diagnosis_results=draft.diagnosis,
            dataset=attrition.dataset,
            split="test",
            language=draft.language or language_of(illness_text(draft.history)),
            subject_key=draft.subject_key or draft.note_id,
            credentialed=self.credentialed,
        )

    def _clean_results(self, draft: Draft) -> dict[str, str]:
        """Return the physical findings and the other results of a draft as plain text, by examination key. Of the
        others, results without content and entries whose name is no examination are left out and counted."""
        texts = {key: visible(plain_text(text)) for key, text in (draft.physical | draft.results).items()}
        absent = {key for key in draft.results if is_absent(texts[key])}
        self.attrition.count("results that say that there is none", len(absent))
        # Entries whose names say that nothing is examined ("Assessment").
        remarks = {key for key in draft.results if not is_physical(key) and no_examination(key)}
        self.attrition.count(NO_EXAMINATION, len(remarks))
        return {visible(key): text for key, text in texts.items() if key not in remarks | absent}


def make_drafts(cases: Iterable[Callable[[], Element]], make: Callable[[Element], Draft | None]) -> Iterator[Draft]:
    """Make the draft of each case, which a function of ``cases`` reads. A case that cannot be read gets a draft that is
    dropped, one for which ``make`` returns None gets none. Raises the first IngestError where most cannot be read: then
    the file is of another kind."""
    errors: list[IngestError] = []
    number = 0
    for number, read_case in enumerate(cases, 1):
        try:
            draft = make(read_case())
        except IngestError as error:
            errors.append(error)
            where = str(error.without_text()).removeprefix(f"{error.path.parent}/")
            draft = Draft(f"{error.path.name}, case {number}", {}, {}, "", rejected=UNREADABLE, where=where)
        if draft:
            yield draft
    if 2 * len(errors) > number:
        raise errors[0]


# Takes the settings of the data set (a `Source`) and the import; yields the records in any order. Raises IngestError.
Importer = Callable[[Any, Import], Iterator[CaseRecord]]


def _clean_history(draft: Draft) -> dict[str, str]:
    """Return the sections of a draft's history that say something, as plain text. Line ends are kept, because they may
    end a sentence; empty lines are removed."""
    texts = {name: plain_text(visible(text)) for name, text in draft.history.items()}
    lines = {name: text.splitlines() for name, text in texts.items() if not is_absent(text)}
    return {name: "\n".join(filter(None, map(one_line, section))) for name, section in lines.items()}


def _failed_rule(draft: Draft, history: Mapping[str, str]) -> str | None:
    """Return the rule that drops a draft with this clean ``history``: it has no diagnosis in words, no physical
    examination although one is needed, or neither complaint nor present illness. None for a usable draft."""
    rules = {
        "no diagnosis": is_absent(draft.diagnosis) or draft.diagnosis.casefold() == "none",
        "diagnosis given as a code": is_code(draft.diagnosis),
        "no physical examination": draft.needs_physical and not draft.physical,
        "no complaint and no present illness": not says_something(illness_text(history)),
    }
    return next((rule for rule, applies in rules.items() if applies), None)


def missing_content(history: Mapping[str, str], results: Collection[str]) -> str | None:
    """Return the rule that drops a case with this history (texts by section) and these examinations: it has neither
    complaint nor present illness, or no examination. None where nothing is missing."""
    if not says_something(illness_text(history)):
        return "no complaint and no present illness"
    return None if results else "no examination"


# The case summary.


def build_summary(sections: Mapping[str, str]) -> str:
    """Write a case summary from the texts of its ``sections``: lines ``- Section: text`` in the order of
    :data:`SECTIONS`. Sections that say nothing are left out."""
    texts = {name: one_line(sections.get(name, "")) for name in SECTIONS}
    return "\n".join(f"- {name}: {text}" for name, text in texts.items() if says_something(text))


def parse_summary(summary: str) -> dict[str, str]:
    """Read a case summary; returns the text of each section by name. It is the inverse of :func:`build_summary`.

    Raises RecordError for a line that is not ``- Section: text``, and for a section that occurs twice. The message does
    not quote the line, which may be confidential.
    """
    sections: dict[str, str] = {}
    for number, line in enumerate(summary.split("\n"), 1):
        match = _BULLET.fullmatch(line)
        if match is None or match[1] in sections:
            raise RecordError(f"field 'case_summary': line {number} is not '- Section: text', each section once; "
                              "ingest the data set again")  # fmt: skip
        sections[match[1]] = match[2]
    return sections


def patient_information(years: float | None, sex: str) -> str:
    """Write age and sex: ``58 year old male``, ``5 month old female``, ``12 day old``. An unknown age (None) or sex is
    left out. ``years`` may be a fraction in the first year of life; ``sex`` is M, F, male or female in upper or lower
    case."""
    word = {"M": "male", "F": "female", "MALE": "male", "FEMALE": "female"}.get(sex.strip().upper(), "")
    if years is None:
        return word
    age = f"{int(years)} year"
    if 0 < years < 1:  # in months, but in days before the third month
        age = f"{int(years * 12)} month" if years * 12 >= 2 else f"{round(years * 365.25)} day"
    return f"{age} old {word}".rstrip()


def illness_text(history: Mapping[str, str]) -> str:
    """Return the chief complaint and the present illness of a history (texts by section) as one text."""
    return history.get("Chief Complaint", "") + " " + history.get("History of Present Illness", "")


# The leak-controlled variant of a benchmark: the same cases without whatever gives the diagnosis away.


def remove_leaks(settings: Settings, job: Job) -> None:
    """Stage ``remove_leaks``: write the test cases of a benchmark without texts that give the diagnosis away, and the
    numbers of what was removed. Raises RecordError for a broken file of cases, and as :func:`controlled`."""
    attrition = Attrition(job.options["dataset"])
    attrition.splits = {"test": write_records(job.out["controlled"], _control_cases(job.inputs["cases"], attrition))}
    attrition.conclude(job)


def _control_cases(path: Path, attrition: Attrition) -> Iterator[CaseRecord]:
    """Yield the records of the test split in the file ``path`` after leak control. Raises RecordError with file and
    line."""
    for line, record in enumerate(iterate_records(path), 1):
        try:
            case = controlled(record, attrition) if record.split == "test" else None
        except RecordError as error:
            raise RecordError(f"{path}:{line}: {error}") from None
        if case is not None:
            yield case


def controlled(record: CaseRecord, attrition: Attrition) -> CaseRecord | None:
    """Return a record after the strictest leak control, :data:`STRICT`: every name of the diagnosis is masked, results
    in the history and impressions are removed. None, counted in ``attrition``, where no examination is left, or neither
    complaint nor present illness.

    The remaining examinations keep their prices and billing groups, so that a benchmark and its variant differ in
    texts, not in costs. Raises RecordError for a summary that is not in the unified format.
    """
    attrition.read += 1
    results = record.key_pertinent_results_dict
    history = parse_summary(record.case_summary)
    cleared = control_leaks(record.note_id, record.diagnosis_results, history, results, STRICT, attrition)
    history, results = cleared or ({}, {})
    if rule := missing_content(history, results):
        attrition.drop(rule, record.note_id)
        return None
    attrition.kept += 1
    costs = {exam: usd for exam, usd in record.exam_cost_map.items() if exam in results}
    groups = {exam: group for exam, group in record.exam_billing_group.items() if exam in results}
    texts = {"case_summary": build_summary(history), "key_pertinent_results_dict": results}
    return record.model_copy(update=texts | {"exam_cost_map": costs, "exam_billing_group": groups})
