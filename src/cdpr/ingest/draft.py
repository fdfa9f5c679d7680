"""From what an importer found to a case record: the checks and the leak control that all data sets share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..cases import CaseRecord
from ..settings.data import Leaks
from .funnel import Funnel
from .leaks import control
from .summary import build_summary, one_line, says_something


@dataclass
class Draft:
    """A case as its source tells it: ``history`` by section of the summary, ``results`` by examination key,
    ``diagnosis`` the primary one, ``final_diagnosis`` the source's whole text where it says more.

    ``rejected`` is the importer's own rule, where it found the case unusable. ``needs_physical`` asks for a physical
    examination, as the data-construction pipeline behind the paper's MIMIC-IV cases does.
    """

    note_id: str
    subject_key: str
    history: dict[str, str]
    results: dict[str, str]
    diagnosis: str
    final_diagnosis: str = ""
    language: str = "en"
    rejected: str | None = None
    needs_physical: bool = False
    physical: dict[str, str] = field(default_factory=dict)


Finish = Callable[[Draft, Funnel], CaseRecord | None]


def finish(draft: Draft, funnel: Funnel, *, dataset: str, credentialed: bool, leaks: Leaks) -> CaseRecord | None:
    """The record of a usable case, in split ``test`` until it is split; None when a rule drops it (see ``funnel``)."""
    funnel.read += 1
    rule = draft.rejected or _missing(draft)
    if rule is not None:
        return funnel.drop(rule, draft.note_id)
    results = draft.physical | draft.results
    history = {name: _lines(text) for name, text in draft.history.items()}
    cleared = control(draft.note_id, draft.diagnosis, history, results, leaks, funnel)
    if cleared is None:
        return None
    history, results = cleared
    if not tells_something(history):
        return funnel.drop("no complaint and no present illness", draft.note_id)
    if not (results if not draft.needs_physical else set(results) - set(draft.physical)):
        return funnel.drop("no examination", draft.note_id)
    return CaseRecord(
        note_id=draft.note_id,
        case_summary=build_summary(history),
        key_pertinent_results_dict=results,
        final_diagnosis=draft.final_diagnosis or draft.diagnosis,
        diagnosis_results=draft.diagnosis,
        dataset=dataset,
        split="test",
        language=draft.language,
        subject_key=draft.subject_key,
        credentialed=credentialed,
    )


def _lines(text: str) -> str:
    """The text with its lines, whose ends may end a sentence, but without other superfluous white space."""
    return "\n".join(filter(None, map(one_line, text.splitlines())))


def _missing(draft: Draft) -> str | None:
    """The first rule by which a case lacks something."""
    if not says_something(draft.diagnosis):
        return "no diagnosis"
    if draft.needs_physical and not draft.physical:
        return "no physical examination"
    return None if tells_something(draft.history) else "no complaint and no present illness"


def tells_something(history: Mapping[str, str]) -> bool:
    """Whether there is a complaint or a present illness."""
    return any(says_something(history.get(name, "")) for name in ("Chief Complaint", "History of Present Illness"))
