"""An export in FHIR R4 (bundles, or NDJSON files of a bulk export) -> case records.

An encounter with a primary diagnosis is a case; where a patient has no encounter, the whole record is one.
Observations, reports and procedures become examinations (:mod:`.fhir_results`); complaint, history and physical
examination come from the notes of the encounter, with the same headings as MIMIC-IV's, so that hospital course and
assessment are not read.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ..cases import CaseRecord
from ..settings.datasets import FhirSource
from .attrition import Attrition
from .draft import Draft, Import
from .fhir_resources import Element, Resource, Scope, of_kind, read_resources, unmarked
from .fhir_results import FINAL, find_results, time_of
from .notes import parse_discharge_note
from .summary import CHINESE, one_line, patient_information, says_something

_NEVER = {"planned", "cancelled", "entered-in-error"}
_REFUTED = {"refuted", "entered-in-error", "provisional", "differential", "unconfirmed"}
# Roles of a diagnosis in the order in which they are primary; comorbidities and those around an operation are not.
_ROLES = {"DD": 0, "": 1, "billing": 2, "AD": 3}
_COMPLAINT = "CC"
# Sections and notes by their LOINC codes, under headings that the reader of notes knows.
_SECTIONS = {
    "10154-3": "Chief Complaint", "10164-2": "History of Present Illness", "11348-0": "Past Medical History",
    "29762-2": "Social History", "10157-6": "Family History", "48765-2": "Allergies", "29545-1": "Physical Exam",
}  # fmt: skip
_NOTES = {"34117-2", "11488-4", "18842-5", "11506-3", "34111-5", "28570-0", "51847-2", "34133-9", "11504-8"}
_KINDS = frozenset({
    "Patient", "Encounter", "Condition", "Observation", "DiagnosticReport", "Procedure", "Specimen", "Composition",
    "DocumentReference", "Binary", "ClinicalImpression", "QuestionnaireResponse", "AllergyIntolerance",
    "FamilyMemberHistory",
})  # fmt: skip
_RESULTS = ("Observation", "DiagnosticReport", "Procedure")
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass
class _Case:
    """A patient's encounter, or the patient where there is none, and what belongs to it."""

    patient: Resource | None
    encounter: Resource | None
    resources: list[Resource] = field(default_factory=list)

    @property
    def start(self) -> datetime | None:
        """When the encounter began; else the time of the first result."""
        if self.encounter is not None:
            return self.encounter.content.one("period").moment("start")
        return min(filter(None, map(time_of, of_kind(self.resources, *_RESULTS))), default=None)

    def holds(self, moment: datetime | None) -> bool:
        """Whether a time falls into the encounter."""
        if moment is None or self.start is None or self.encounter is None:
            return False
        return self.start <= moment <= (self.encounter.content.one("period").moment("end") or _LAST)


def read_fhir(source: FhirSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable encounters. Raises IngestError."""
    scopes = read_resources(work.path, _KINDS, work.attrition)
    hours = None if source.hours_after_start is None else timedelta(hours=source.hours_after_start)
    cases = _cases(scopes, work.attrition)
    yield from work.records(_draft(case, hours, work.attrition) for case in cases)


def _cases(scopes: Sequence[Scope], attrition: Attrition) -> list[_Case]:
    """Cases in the order of the export; every other resource is with the one that it belongs to."""
    everything = [resource for scope in scopes for resource in scope.resources]
    encounters = {}
    for resource in of_kind(everything, "Encounter"):
        if resource.content.text("status") in _NEVER:
            attrition.count("encounters that did not take place")
        else:
            encounters[resource] = _Case(_patient(resource), resource)
    of_patient: dict[Resource, list[_Case]] = {}
    for patient in of_kind(everything, "Patient"):
        own = [case for case in encounters.values() if case.patient is patient]
        of_patient[patient] = own or [_Case(patient, None)]
    for resource in everything:
        if resource.kind in ("Patient", "Encounter", "Specimen", "Binary"):
            continue
        case = _owner(resource, encounters, of_patient)
        if case is not None:
            case.resources.append(resource)
        elif resource.kind not in ("Condition", "AllergyIntolerance", "FamilyMemberHistory"):
            attrition.count("results and notes of no encounter")
    alone = [case for cases in of_patient.values() for case in cases if case.encounter is None]
    return [*encounters.values(), *alone]


def _patient(resource: Resource) -> Resource | None:
    reference = resource.content.one("subject") or resource.content.one("patient")
    return resource.find(reference) if reference else None


def _owner(
    resource: Resource, encounters: dict[Resource, _Case], of_patient: dict[Resource, list[_Case]]
) -> _Case | None:
    """The case that a resource names; naming none, the patient's only one, or the one in whose time it falls."""
    content = resource.content
    references = [content.one("encounter"), *content.one("context").many("encounter")]
    if any(references):
        owner = next((resource.find(reference) for reference in references if reference), None)
        return encounters.get(owner) if owner is not None else None
    patient = _patient(resource)
    cases = of_patient.get(patient, []) if patient is not None else []
    if len(cases) == 1:
        return cases[0]
    moment = time_of(resource) or content.moment("date") or content.moment("authored")
    return next((case for case in cases if case.holds(moment)), None)


def _draft(case: _Case, hours: timedelta | None, attrition: Attrition) -> Draft:
    workup = find_results(_workup(case, hours, attrition), attrition)
    primary, complaints = _diagnosis(case, attrition)
    notes = _notes(case, attrition)
    history = dict(notes.history)
    history_fields = {
        "Patient Information": _patient_information(case),
        "Chief Complaint": "; ".join(filter(says_something, complaints)),
        "Past Medical History": _earlier(case, primary),
        "Personal History": "; ".join(workup.social),
        "Family History": _of_relatives(case),
        "Allergy History": _allergies(case),
    }
    # A note tells more than what is coded; what is coded fills its gaps.
    history |= {name: text for name, text in history_fields.items() if says_something(text) and name not in history}
    identity = case.encounter or case.patient
    text = history.get("Chief Complaint", "") + history.get("History of Present Illness", "")
    return Draft(
        note_id=identity.number,
        subject_key=case.patient.number if case.patient else identity.number,
        history=history,
        results=workup.results,
        physical=notes.physical | workup.physical,
        diagnosis=primary.content.concept("code") if primary else "",
        language="zh" if CHINESE.search(text) else "en",
    )


def _workup(case: _Case, hours: timedelta | None, attrition: Attrition) -> list[Resource]:
    """Results of the case in the order of their times, with what its reports contain."""
    resources = [one for one in of_kind(case.resources, *_RESULTS) if not _is_note(one)]
    known = {id(resource.content.value) for resource in resources}
    for report in of_kind(list(resources), "DiagnosticReport", "Observation"):
        for reference in (*report.content.many("result"), *report.content.many("hasMember")):
            member = report.find(reference)
            if member is not None and member.kind == "Observation" and id(member.content.value) not in known:
                known.add(id(member.content.value))
                resources.append(member)
    if hours is not None and case.start is not None:
        early = [one for one in resources if (time_of(one) or case.start) <= case.start + hours]
        attrition.count("results after the initial workup", len(resources) - len(early))
        resources = early
    return sorted(resources, key=lambda one: time_of(one) or _LAST)


def _diagnosis(case: _Case, attrition: Attrition) -> tuple[Resource | None, list[str]]:
    """The primary diagnosis of a case, and what it came with: reasons of the encounter and complaints."""
    complaints: list[str] = []
    candidates: list[tuple[int, float, Resource]] = []
    others: list[Resource] = []
    if case.encounter is not None:
        content = case.encounter.content
        complaints += [reason.concept("reason") for reason in _wrapped(content.many("reasonCode"))]
        for entry in content.many("diagnosis"):
            condition = case.encounter.find(entry.one("condition"))
            if condition is None or condition.kind != "Condition":
                attrition.count("references that lead nowhere")
                continue
            roles = entry.codes("use") or {""}
            if _COMPLAINT in roles:
                complaints.append(condition.content.concept("code"))
            if known := roles & _ROLES.keys():
                rank = entry.number("rank")
                place = (min(map(_ROLES.__getitem__, known)), float(rank) if rank else math.inf)
                candidates += [(*place, condition)] if _stands(condition, attrition) else []
            else:
                others.append(condition)
    if not candidates:
        coded = [one for one in of_kind(case.resources, "Condition") if one not in others and _stands(one, attrition)]
        candidates = [(0, 0, one) for one in coded if "encounter-diagnosis" in one.content.codes("category")]
    first = min((candidate[:2] for candidate in candidates), default=None)
    primary = [one for *place, one in candidates if tuple(place) == first]
    if len(primary) > 1:
        attrition.count("encounters with several diagnoses of the same rank, of which the first was taken")
    return (primary[0] if primary else None), [one_line(text) for text in dict.fromkeys(complaints)]


def _wrapped(concepts: Sequence[Element]) -> list[Element]:
    """Concepts of a list, each as the element of an object, as :meth:`Element.concept` reads them."""
    return [Element({"reason": one.value}, one.path, one.line, one.place) for one in concepts]


def _stands(condition: Resource, attrition: Attrition) -> bool:
    """Whether a condition is confirmed, as far as it says so."""
    refuted = bool(condition.content.codes("verificationStatus") & _REFUTED)
    if refuted:
        attrition.count("conditions that are not confirmed")
    return not refuted


def _earlier(case: _Case, primary: Resource | None) -> str:
    """Conditions of the problem list that were known before the encounter."""
    known = []
    for condition in of_kind(case.resources, "Condition"):
        content = condition.content
        moment = content.moment("onsetDateTime") or content.moment("recordedDate")
        before = moment is None or case.start is None or moment < case.start
        if condition is not primary and "problem-list-item" in content.codes("category") and before:
            known.append(content.concept("code"))
    return "; ".join(filter(says_something, dict.fromkeys(known)))


def _patient_information(case: _Case) -> str:
    if case.patient is None:
        return ""
    born, start = case.patient.content.moment("birthDate"), case.start
    age = start.year - born.year - ((start.month, start.day) < (born.month, born.day)) if born and start else None
    return patient_information(age if age is not None and age >= 0 else None, case.patient.content.text("gender"))


def _allergies(case: _Case) -> str:
    concepts = [one.content.concept("code") for one in of_kind(case.resources, "AllergyIntolerance")]
    return "; ".join(filter(says_something, dict.fromkeys(concepts)))


def _of_relatives(case: _Case) -> str:
    lines = []
    for relative in of_kind(case.resources, "FamilyMemberHistory"):
        who = relative.content.concept("relationship") or "Relative"
        lines += [f"{who}: {one.concept('code')}" for one in relative.content.many("condition") if one.concept("code")]
    return "; ".join(dict.fromkeys(lines))


@dataclass
class _NoteParts:
    """What notes tell; of two that tell the same section the first counts."""

    history: dict[str, str] = field(default_factory=dict)
    physical: dict[str, str] = field(default_factory=dict)

    def add(self, text: str) -> bool:
        """Take up the sections of a text; whether it has any."""
        note = parse_discharge_note(text)
        self.history = note.history | self.history
        self.physical = note.physical | self.physical
        return bool(note.history or note.physical)


def _notes(case: _Case, attrition: Attrition) -> _NoteParts:
    """Sections of all notes of the case, structured ones first."""
    notes = _NoteParts()
    for resource in of_kind(case.resources, "Composition"):
        if resource.content.text("status") in FINAL:
            for section in _sections(resource.content):
                notes.add(section)
    for resource in of_kind(case.resources, "QuestionnaireResponse"):
        for item in _items(resource.content):
            notes.add(item)
    for resource in of_kind(case.resources, "ClinicalImpression"):
        notes.add(f"History of Present Illness:\n{resource.content.text('description')}")
    for resource in of_kind(case.resources, "DocumentReference", "DiagnosticReport"):
        for attachment in _documents(resource):
            text = resource.attached(attachment)
            if text is None:
                attrition.count("attachments that are no text or lie elsewhere")
            elif not notes.add(text):
                attrition.count("notes without a known heading")
    return notes


def _sections(content: Element) -> Iterator[str]:
    """Sections of a composition and those within them, each below a heading."""
    for section in content.many("section"):
        code = next((name for code, name in _SECTIONS.items() if code in section.codes("code")), "")
        title, body = code or one_line(section.text("title")), unmarked(section.one("text").text("div"))
        if title and says_something(body):
            for lead in (section.text("title"), title):  # some narratives begin with their own title
                body = body.removeprefix(lead).lstrip(": \n")
            yield f"{title}:\n{body}"
        yield from _sections(section)


def _items(content: Element) -> Iterator[str]:
    """Questions and answers, each question as a heading."""
    for item in content.many("item"):
        answers = []
        for answer in item.many("answer"):
            coded = answer.one("valueCoding").text("display")
            answers.append(answer.text("valueString") or coded or answer.number("valueInteger"))
        if text := "; ".join(filter(says_something, answers)):
            yield f"{one_line(item.text('text')).rstrip(':?')}:\n{text}"
        yield from _items(item)


def _is_note(resource: Resource) -> bool:
    """Whether a report is a clinical note, as US Core exchanges them, and no examination."""
    content = resource.content
    return resource.kind == "DiagnosticReport" and bool((content.codes("code") | content.codes("category")) & _NOTES)


def _documents(resource: Resource) -> list[Element]:
    """Attachments of a note."""
    if resource.kind == "DiagnosticReport":
        return resource.content.many("presentedForm") if _is_note(resource) else []
    if resource.content.text("status") in ("superseded", "entered-in-error"):
        return []
    return [one.one("attachment") for one in resource.content.many("content")]
