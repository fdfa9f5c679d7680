"""Turns the draft of a case, which an importer makes, into its record. The checks and the leak control are the same for
all data sets."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..cases import CaseRecord, is_physical, no_examination
from ..settings.datasets import Leaks
from .attrition import Attrition
from .leaks import control_leaks, missing_content
from .summary import build_summary, has_illness, illness_text
from .texts import is_absent, is_code, language_of, one_line, plain_text, visible

# Events that are counted: entries among the results that examine nothing (remarks, treatments, histories, reference
# ranges), and physical examinations that end where another heading begins.
NO_EXAMINATION = "entries that are no examination"
CUT = "physical examinations that end at a heading of something else"


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

    def records(self, drafts: Iterable[Draft]) -> Iterator[CaseRecord]:
        """Yield the records of the usable drafts. Of several drafts with one ``note_id`` only the first is usable."""
        identifiers: set[str] = set()
        for draft in drafts:
            if draft.note_id in identifiers:
                draft.rejected = "same case twice"
            identifiers.add(draft.note_id)
            if record := self.record(draft):
                yield record

    def record(self, draft: Draft) -> CaseRecord | None:
        """Check a draft, remove its leaks as the settings say, and return its record. Its split is ``test`` until the
        data set is split. Returns None, counted in ``attrition``, where a rule drops the case."""
        attrition = self.attrition
        attrition.read += 1
        if rule := draft.rejected or _failed_rule(draft):
            attrition.drop(rule, draft.note_id, draft.where)
            return None
        history, results = _clean_history(draft), self._clean_results(draft)
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
        absent = {key for key, text in draft.results.items() if is_absent(text)}
        self.attrition.count("results that say that there is none", len(absent))
        # Entries whose names say that nothing is examined ("Assessment").
        remarks = {key for key in draft.results if not is_physical(key) and no_examination(key)}
        self.attrition.count(NO_EXAMINATION, len(remarks))
        results = draft.physical | {key: text for key, text in draft.results.items() if key not in remarks | absent}
        return {visible(key): visible(plain_text(text)) for key, text in results.items()}


# Takes the settings of the data set (a `Source`) and the import; yields the records in any order. Raises IngestError.
Importer = Callable[[Any, Import], Iterator[CaseRecord]]


def _clean_history(draft: Draft) -> dict[str, str]:
    """Return the sections of a draft's history that say something, as plain text. Line ends are kept, because they may
    end a sentence; empty lines are removed."""
    texts = {name: plain_text(visible(text)) for name, text in draft.history.items()}
    lines = {name: text.splitlines() for name, text in texts.items() if not is_absent(text)}
    return {name: "\n".join(filter(None, map(one_line, section))) for name, section in lines.items()}


def _failed_rule(draft: Draft) -> str | None:
    """Return the rule that drops a draft: it has no diagnosis in words, no physical examination although one is needed,
    or neither complaint nor present illness. None for a usable draft."""
    if is_absent(draft.diagnosis) or draft.diagnosis.casefold() == "none":
        return "no diagnosis"
    if is_code(draft.diagnosis):
        return "diagnosis given as a code"
    if draft.needs_physical and not draft.physical:
        return "no physical examination"
    return None if has_illness(_clean_history(draft)) else "no complaint and no present illness"
