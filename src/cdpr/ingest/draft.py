"""From what an importer found to a case record: the checks and the leak control that all data sets share."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..cases import CaseRecord, is_physical, no_examination
from ..settings.datasets import Leaks
from .attrition import Attrition
from .leaks import control, lacking
from .summary import build_summary, illness, tells_something
from .texts import is_absent, is_code, language_of, one_line, plain_text, visible

# What is counted of headings under which nothing is examined: remarks, treatments, histories, reference ranges.
NO_EXAMINATION = "entries that are no examination"
CUT = "physical examinations that end at a heading of something else"


@dataclass
class Draft:
    """A case as its source tells it: ``history`` by section of the summary, ``results`` by examination key,
    ``diagnosis`` the primary one, ``final_diagnosis`` the source's whole text where it says more.

    ``rejected`` is the importer's own rule, where it found the case unusable. ``language`` is what the source says,
    else what complaint and present illness are written in; ``subject_key`` the patient's number, else the case's.
    ``where`` says, without a word of the case, what a rule that drops it has looked at.
    ``needs_physical`` asks for a physical examination, as the pipeline behind the paper's MIMIC-IV cases does.
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
    """One import: what an importer is handed beside the settings of its data set, and which of its drafts become case
    records.

    ``credentialed`` marks the cases; ``leaks`` says what is taken out of them; ``attrition`` counts. ``path`` is the
    file or folder with the raw data, ``state`` a folder for work that survives a kill.
    """

    credentialed: bool
    leaks: Leaks
    attrition: Attrition
    path: Path = Path()
    state: Path = Path()

    def records(self, drafts: Iterable[Draft]) -> Iterator[CaseRecord]:
        """The drafts that become records; of those with one number only the first does."""
        numbers: set[str] = set()
        for draft in drafts:
            if draft.note_id in numbers:
                draft.rejected = "same case twice"
            numbers.add(draft.note_id)
            if record := self.record(draft):
                yield record

    def record(self, draft: Draft) -> CaseRecord | None:
        """The record of a usable case, in split ``test`` until it is split; None when a rule drops it."""
        attrition = self.attrition
        attrition.read += 1
        if rule := draft.rejected or _missing(draft):
            attrition.drop(rule, draft.note_id, draft.where)
            return None
        wanting = {key for key, text in draft.results.items() if is_absent(text)}
        attrition.count("results that say that there is none", len(wanting))
        remarks = {key for key in draft.results if not is_physical(key) and no_examination(key)}
        attrition.count(NO_EXAMINATION, len(remarks))
        results = draft.physical | {key: text for key, text in draft.results.items() if key not in remarks | wanting}
        results = {visible(key): visible(plain_text(text)) for key, text in results.items()}
        history = _history(draft)
        cleared = control(draft.note_id, draft.diagnosis, history, results, self.leaks, attrition)
        if cleared is None:
            return None
        history, results = cleared
        if rule := lacking(history, set(results).difference(draft.physical if draft.needs_physical else ())):
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
            language=draft.language or language_of(illness(draft.history)),
            subject_key=draft.subject_key or draft.note_id,
            credentialed=self.credentialed,
        )


# The settings of the data set (a `Source`), the import -> its records in any order. Raises IngestError.
Importer = Callable[[Any, Import], Iterator[CaseRecord]]


def _history(draft: Draft) -> dict[str, str]:
    """Sections that tell something. The ends of lines stay, because they may end a sentence."""
    texts = {name: plain_text(visible(text)) for name, text in draft.history.items()}
    lines = {name: map(one_line, text.splitlines()) for name, text in texts.items() if not is_absent(text)}
    return {name: "\n".join(filter(None, texts)) for name, texts in lines.items()}


def _missing(draft: Draft) -> str | None:
    """The first rule by which a case lacks something."""
    if is_absent(draft.diagnosis) or draft.diagnosis.casefold() == "none":
        return "no diagnosis"
    if is_code(draft.diagnosis):
        return "diagnosis given as a code"
    if draft.needs_physical and not draft.physical:
        return "no physical examination"
    return None if tells_something(_history(draft)) else "no complaint and no present illness"
