"""An export in FHIR R4 (bundles, or NDJSON files of a bulk export) -> case records.

An encounter with a primary diagnosis is a case; where a patient has no encounter, the whole record is one.
Observations, reports and procedures become examinations (:mod:`.fhir_results`); complaint, history and physical
examination come from the notes of the encounter, with the same headings as MIMIC-IV's, so that hospital course and
assessment are not read.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ..cases import CaseRecord, is_physical
from ..settings.datasets import FhirSource
from .attrition import Attrition
from .draft import CUT, Draft, Import
from .fhir_resources import FhirElement, Resource, Scope, concept_text, of_type, read_resources
from .fhir_results import FINAL, Person, find_results, time_of, value_of
from .notes import parse_discharge_note
from .summary import patient_information
from .texts import one_line, patterns, phrases, says_something, unmarked

_WORDS = phrases("fhir")
_ROLES, _SECTIONS = _WORDS["roles"], _WORDS["sections"]
_NEVER, _REFUTED, _NOTES, _KINDS = (frozenset(_WORDS[name]) for name in ("never", "refuted", "notes", "kinds"))
_KINDS_OF_CONDITION, _PATTERN = _WORDS["kinds_of_condition"], patterns("fhir")
_WITHDRAWN = {"superseded", "entered-in-error"}
_COMPLAINT = "CC"
_RESULTS = ("Observation", "DiagnosticReport", "Procedure")
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass
class _Case:
    """A patient's encounter, or the patient where there is none, and what belongs to it and to its ``parts``."""

    patient: Resource | None
    encounter: Resource | None
    resources: list[Resource] = field(default_factory=list)
    parts: list[Resource] = field(default_factory=list)

    @property
    def start(self) -> datetime | None:
        """When the encounter began, or the first of its parts; else the time of the first result."""
        if self.encounter is not None:
            return min(filter(None, (one.one("period").moment("start") for one in self.encounters)), default=None)
        return min(filter(None, map(time_of, of_type(self.resources, *_RESULTS))), default=None)

    @property
    def encounters(self) -> list[Resource]:
        """The encounter, then its parts."""
        return [self.encounter, *self.parts] if self.encounter else []

    def holds(self, first: datetime | None, last: datetime | None) -> bool:
        """Whether a time, which may be known by its day alone, falls into the encounter."""
        if first is None or last is None or self.start is None or self.encounter is None:
            return False
        end = max(one.one("period").moment("end", last=True) or _LAST for one in self.encounters)
        return self.start <= last and first <= end


def read_fhir(source: FhirSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable encounters. Raises IngestError."""
    scopes = read_resources(work.path, _KINDS, work.attrition)
    hours = None if source.hours_after_start is None else timedelta(hours=source.hours_after_start)
    cases = _cases(scopes, work.attrition)
    yield from work.records(_draft(case, hours, source.diagnosis_by_onset, work.attrition) for case in cases)


def _cases(scopes: Sequence[Scope], attrition: Attrition) -> list[_Case]:
    """Cases in the order of the export; every other resource is with the one that it belongs to."""
    everything = [resource for scope in scopes for resource in scope.resources]
    cases: list[_Case] = []
    for encounter in of_type(everything, "Encounter"):
        if encounter.text("status") in _NEVER:
            attrition.count("encounters that did not take place")
        else:
            cases.append(_Case(_patient(encounter), encounter))
    by_encounter = {case.encounter: case for case in cases if case.encounter}
    for encounter, whole in [(one, _whole(one, by_encounter)) for one in by_encounter]:
        if whole is not encounter:
            attrition.count("encounters that are part of another")
            cases.remove(by_encounter[encounter])
            by_encounter[encounter] = by_encounter[whole]
            by_encounter[whole].parts.append(encounter)
    treated = {case.patient for case in cases} - {None}
    cases += [_Case(patient, None) for patient in of_type(everything, "Patient") if patient not in treated]
    diagnoses = {_condition(one, entry) for one in by_encounter for entry in one.many("diagnosis")}
    by_patient: dict[Resource | None, list[_Case]] = defaultdict(list)
    for case in cases:
        by_patient[case.patient].append(case)
    for resource in everything:
        if resource.kind in ("Patient", "Encounter", "Specimen", "Binary"):
            continue
        if owner := _owner(resource, by_encounter, by_patient):
            owner.resources.append(resource)
        elif _is_lasting(resource) and (patient := _patient(resource)) in treated:
            for case in by_patient[patient]:
                case.resources.append(resource)
        elif resource not in diagnoses:
            attrition.count("results and notes of no encounter")
    return cases


def _whole(encounter: Resource, known: Collection[Resource]) -> Resource:
    """The encounter that one is part of, directly or by others; itself where none is known, or in a ring."""
    chain = [encounter]
    while (above := chain[-1].find(chain[-1].one("partOf").text("reference"))) and above in known:
        if above in chain:
            return encounter
        chain.append(above)
    return chain[-1]


def _is_lasting(resource: Resource) -> bool:
    """Whether it tells of the patient, not of one encounter: of an allergy, a relative, a problem."""
    lasting = resource.kind in ("AllergyIntolerance", "FamilyMemberHistory")
    return lasting or (resource.kind == "Condition" and "problem-list-item" in resource.codes("category"))


def _patient(resource: Resource) -> Resource | None:
    """The patient that a resource is about; None where it names none that is known."""
    return resource.find((resource.one("subject") or resource.one("patient")).text("reference"))


def _owner(
    resource: Resource, by_encounter: Mapping[Resource, _Case], by_patient: Mapping[Resource | None, list[_Case]]
) -> _Case | None:
    """The case that a resource names; naming none, the patient's only one, or the one in whose time it falls."""
    for reference in (resource.one("encounter"), *resource.one("context").many("encounter")):
        if reference:
            encounter = resource.find(reference.text("reference"))
            return by_encounter.get(encounter) if encounter else None
    patient = _patient(resource)
    cases = by_patient[patient] if patient else []
    if len(cases) == 1:
        return cases[0]
    names = ("date", "authored", "onsetDateTime", "recordedDate")
    first, last = (time_of(resource, end) or next(filter(None, (resource.moment(name, end) for name in names)), None)
                   for end in (False, True))  # fmt: skip
    return next((case for case in cases if case.holds(first, last)), None)


def _draft(case: _Case, hours: timedelta | None, by_onset: bool, attrition: Attrition) -> Draft:
    """The draft of one case: history from notes, then from codes; results; the primary diagnosis."""
    person = _person(case)
    results, social = find_results(_workup(case, hours, attrition), person, attrition)
    primary, complaints = _diagnosis(case, by_onset, attrition)
    history, physical = _notes(case, attrition)
    diagnosis = primary.concept("code") if primary else ""
    if by_onset:
        plain = _PATTERN.kind.sub("", diagnosis)
        named = [one for one in complaints if _PATTERN.kind.sub("", one) == plain]
        attrition.count("reasons of an encounter that are its diagnosis, left out", len(named))
        complaints = [one for one in complaints if one not in named]
        complaints = complaints or [text for one in case.encounters for text in map(concept_text, one.many("type"))]
    allergies = of_type(case.resources, "AllergyIntolerance")
    coded = {
        "Patient Information": patient_information(person.years, person.sex),
        "Chief Complaint": _listed(complaints),
        "Past Medical History": _listed(_earlier(case, primary)),
        "Personal History": "; ".join(social),
        "Family History": _listed(_of_relatives(case)),
        "Allergy History": _listed(one.concept("code") for one in allergies),
    }
    # A note tells more than what is coded; what is coded fills its gaps.
    history |= {name: text for name, text in coded.items() if says_something(text) and name not in history}
    return Draft(
        note_id=next(one.identity for one in (case.encounter, case.patient) if one),
        subject_key=case.patient.identity if case.patient else "",
        history=history,
        results={key: text for key, text in results.items() if not is_physical(key)},
        physical=physical | {key: text for key, text in results.items() if is_physical(key)},
        diagnosis=diagnosis or (next(iter(primary.codes("code")), "") if primary else ""),
        where=_about(case),
    )


def _about(case: _Case) -> str:
    """What an encounter holds, for the examples of a rule that drops many."""
    kinds = Counter(resource.kind for resource in case.resources)
    classes = {one.one("class").text("code") for one in case.encounters}
    return f"encounter of class {'/'.join(sorted(classes)) or 'none'} with {', '.join(sorted(kinds)) or 'nothing'}"


def _listed(texts: Iterable[str]) -> str:
    """The texts that say something, each once."""
    return "; ".join(filter(says_something, dict.fromkeys(texts)))


def _workup(case: _Case, hours: timedelta | None, attrition: Attrition) -> list[Resource]:
    """Results of the case in the order of their times, with what its reports contain."""
    resources = [one for one in of_type(case.resources, *_RESULTS) if not _is_note(one)]
    reports = of_type(resources, "DiagnosticReport", "Observation")
    references = ((one, part) for one in reports for part in (*one.many("result"), *one.many("hasMember")))
    members = filter(None, (one.find(part.text("reference")) for one, part in references))
    resources = list({id(one.value): one for one in (*resources, *of_type(members, "Observation"))}.values())
    if hours is not None and case.start is not None:
        early = [one for one in resources if (time_of(one) or case.start) <= case.start + hours]
        attrition.count("results after the initial workup", len(resources) - len(early))
        resources = early
    return sorted(resources, key=lambda one: time_of(one) or _LAST)


def _condition(encounter: Resource, entry: FhirElement) -> Resource | None:
    """The condition that an entry of ``Encounter.diagnosis`` names; None for anything else."""
    condition = encounter.find(entry.one("condition").text("reference"))
    return condition if condition and condition.kind == "Condition" else None


def _diagnosis(case: _Case, by_onset: bool, attrition: Attrition) -> tuple[Resource | None, list[str]]:
    """The primary diagnosis of a case, and what it came with: reasons of the encounter and complaints."""
    complaints: list[str] = []
    candidates: list[tuple[float, float, Resource]] = []
    others: list[Resource] = []
    for encounter in case.encounters:
        complaints += map(concept_text, encounter.many("reasonCode"))
        for entry in encounter.many("diagnosis"):
            if (condition := _condition(encounter, entry)) is None:
                attrition.count("references that lead nowhere")
                continue
            roles = entry.codes("use") | entry.codes("role") or {""}
            if _COMPLAINT in roles:
                complaints.append(condition.concept("code"))
            if known := roles & _ROLES.keys():
                rank = entry.number("rank")
                place = (min(map(_ROLES.__getitem__, known)), float(rank) if rank else math.inf)
                candidates += [(*place, condition)] if _stands(condition, attrition) else []
            else:
                others.append(condition)
    if not candidates:
        coded = [one for one in of_type(case.resources, "Condition") if one not in others and _stands(one, attrition)]
        candidates = [(0, 0, one) for one in coded if "encounter-diagnosis" in one.codes("category")]
        # What names its encounter was diagnosed there, where it says nothing else of itself.
        candidates += [(1, 0, one) for one in coded if one.one("encounter") and not one.codes("category")]
        if by_onset:
            began = {one: [one.moment("onsetDateTime", last) for last in (False, True)] for one in coded}
            candidates += [(2, 0, one) for one, span in began.items() if case.holds(*span)]
    first = min((candidate[:2] for candidate in candidates), default=None)
    primary = sorted((one for *place, one in candidates if tuple(place) == first), key=lambda one: _finding(one) or 0)
    several = sum(_finding(one) == _finding(primary[0]) for one in primary) > 1
    attrition.count("encounters with several diagnoses of the same rank, of which the first was taken", several)
    return (primary[0] if primary else None), [one_line(text) for text in complaints]


def _stands(condition: Resource, attrition: Attrition) -> bool:
    """Whether a condition is an illness, and confirmed, as far as it says so."""
    refuted = bool(condition.codes("verificationStatus") & _REFUTED)
    no_illness = not refuted and _finding(condition) is None
    attrition.count("conditions that are not confirmed", refuted)
    attrition.count("conditions that are no illness: social findings, reasons for contact", no_illness)
    return not (refuted or no_illness)


def _finding(condition: Resource) -> int | None:
    """0 for a disorder, or a condition that does not say what it is, 1 for a finding; None for what is no illness."""
    text, codes = condition.concept("code"), condition.codes("code")
    kind = _PATTERN.kind.search(text)
    unfit = _PATTERN.never_diagnosed.search(text) or any(map(_PATTERN.no_illness.fullmatch, codes))
    return None if unfit else _KINDS_OF_CONDITION.get(kind[1] if kind else "")


def _earlier(case: _Case, primary: Resource | None) -> Iterator[str]:
    """Conditions of the problem list that were known before the encounter."""
    for condition in of_type(case.resources, "Condition"):
        moment = condition.moment("onsetDateTime") or condition.moment("recordedDate")
        before = moment is None or case.start is None or moment < case.start
        if condition is not primary and "problem-list-item" in condition.codes("category") and before:
            yield condition.concept("code")


def _person(case: _Case) -> Person:
    """Sex and age when the case began: whole years, and the part of the first."""
    patient, start = case.patient, case.start
    born = patient.moment("birthDate") if patient else None
    days = (start.date() - born.date()).days if born and start else -1
    if patient is None or born is None or start is None or days < 0:
        return Person(patient.text("gender") if patient else "", None)
    whole = start.year - born.year - ((start.month, start.day) < (born.month, born.day))
    return Person(patient.text("gender"), whole or min(days / 365.25, 0.999))


def _of_relatives(case: _Case) -> Iterator[str]:
    """What relatives of the patient have, each with the relative."""
    for relative in of_type(case.resources, "FamilyMemberHistory"):
        who = relative.concept("relationship") or "Relative"
        diseases = filter(None, (one.concept("code") for one in relative.many("condition")))
        yield from (f"{who}: {disease}" for disease in diseases)


def _notes(case: _Case, attrition: Attrition) -> tuple[dict[str, str], dict[str, str]]:
    """History and physical examination by the notes of the case; of two that tell the same section the first counts."""
    history: dict[str, str] = {}
    physical: dict[str, str] = {}
    for text, whole in _texts(case, attrition):
        note = parse_discharge_note(text)
        history, physical = note.history | history, note.physical | physical
        attrition.count(CUT, note.cut)
        attrition.count("notes without a known heading", whole and not (note.history or note.physical))
    return history, physical


def _texts(case: _Case, attrition: Attrition) -> Iterator[tuple[str, bool]]:
    """Texts with headings, structured ones first, and whether each is a whole note."""
    for resource in of_type(case.resources, "Composition"):
        if resource.text("status") in FINAL:
            yield from ((section, False) for section in _sections(resource))
    for resource in of_type(case.resources, "QuestionnaireResponse"):
        yield from ((item, False) for item in _items(resource))
    for resource in of_type(case.resources, "ClinicalImpression"):
        yield f"History of Present Illness:\n{resource.text('description')}", False
    for resource in of_type(case.resources, "DocumentReference", "DiagnosticReport"):
        if {resource.text("status"), resource.text("docStatus")} & _WITHDRAWN:
            attrition.count("notes that are superseded or withdrawn")
            continue
        yield from ((text, True) for text in resource.attached(_documents(resource), attrition))


def _sections(content: FhirElement) -> Iterator[str]:
    """Sections of a composition and those within them, each below a heading."""
    for section in content.many("section"):
        code = next((name for code, name in _SECTIONS.items() if code in section.codes("code")), "")
        title, body = code or one_line(section.text("title")), unmarked(section.one("text").text("div"))
        if title and says_something(body):
            for lead in (section.text("title"), title):  # some narratives begin with their own title
                body = body.removeprefix(lead).lstrip(": \n")
            yield f"{title}:\n{body}"
        yield from _sections(section)


def _items(content: FhirElement) -> Iterator[str]:
    """Questions and answers, each question as a heading."""
    for item in content.many("item"):
        values = filter(None, map(value_of, item.many("answer")))
        if text := "; ".join(" ".join(filter(None, value)) for value in values):
            yield f"{one_line(item.text('text')).rstrip(':?')}:\n{text}"
        yield from _items(item)


def _is_note(resource: Resource) -> bool:
    """Whether a report is a clinical note, as US Core exchanges them, and no examination."""
    return resource.kind == "DiagnosticReport" and bool((resource.codes("code") | resource.codes("category")) & _NOTES)


def _documents(resource: Resource) -> list[FhirElement]:
    """Attachments of a note."""
    if resource.kind == "DiagnosticReport":
        return resource.many("presentedForm") if _is_note(resource) else []
    return [one.one("attachment") for one in resource.many("content")]
