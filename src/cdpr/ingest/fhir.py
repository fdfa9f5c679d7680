"""Imports an export in FHIR R4: bundles, or the NDJSON files of a bulk export.

An encounter with a primary diagnosis is a case; of a patient without encounters, the whole record is one. Observations,
reports and procedures become examinations (:mod:`.fhir_results`). Complaint, history and physical examination are read
from the notes of the encounter, by the same headings as in MIMIC-IV, so that hospital course and assessment are not
read.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ..cases import CaseRecord, is_physical
from ..settings.datasets import FhirSource
from .attrition import Attrition
from .draft import CUT, Draft, Import, patient_information
from .fhir_resources import FhirElement, Resource, attached_texts, concept_display, not_after, of_kind, read_resources
from .fhir_results import FINAL, Person, collect_results, read_value, time_of
from .notes import parse_discharge_note
from .texts import html_text, one_line, patterns, phrases, says_something

_WORDS, _PATTERN = phrases("fhir"), patterns("fhir")
_ROLES = _WORDS["roles"]  # roles of a diagnosis in an encounter: the smallest number is tried first, infinity is none
_RESULT_KINDS = ("Observation", "DiagnosticReport", "Procedure")
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)  # the end of an encounter that has not ended; after all known times


@dataclass
class _Case:
    """An encounter of a patient, or a patient without encounters.

    ``encounters`` has the encounter and then those that are part of it; it is empty for a patient without encounters.
    ``resources`` are all other resources that belong to these.
    """

    patient: Resource | None
    encounters: list[Resource]
    resources: list[Resource] = field(default_factory=list)

    @property
    def start(self) -> datetime | None:
        """The time when the encounter, or the first of its parts, began; without an encounter, the time of the first
        result. None where it is unknown."""
        timed = self.encounters or of_kind(self.resources, *_RESULT_KINDS)
        return min(filter(None, map(time_of, timed)), default=None)

    def overlaps(self, first: datetime | None, last: datetime | None) -> bool:
        """Whether the time from ``first`` to ``last`` (both included) overlaps the encounter; one without an end has
        not ended. False for a case without an encounter, and where ``first``, ``last`` or the start of the encounter
        is unknown."""
        if first is None or last is None or self.start is None or not self.encounters:
            return False
        ends = (encounter.child("period").moment("end", end=True) for encounter in self.encounters)
        return not_after(self.start, last) and not_after(first, max(end or _END_OF_TIME for end in ends))


_CasesByPatient = dict[Resource | None, list[_Case]]


def read_fhir(source: FhirSource, work: Import) -> Iterator[CaseRecord]:
    """Read an export in FHIR R4. Yields the records of all usable cases. Raises IngestError for an export that cannot
    be read."""
    cases = _make_cases(read_resources(work.path, _WORDS["kinds"], work.attrition), work.attrition)
    yield from work.records(_make_draft(case, source, work.attrition) for case in cases)


def _make_cases(everything: Sequence[Resource], attrition: Attrition) -> list[_Case]:
    """Make the cases of an export of which ``everything`` is given, in its order, and add every other resource to the
    case to which it belongs. Encounters that did not take place, and resources of no case, are counted and left out."""
    by_encounter = _cases_by_encounter(list(of_kind(everything, "Encounter")), attrition)
    # Each case once, although all parts of an encounter have it: at the outermost encounter, which is its first.
    cases = [case for encounter, case in by_encounter.items() if case.encounters[0] is encounter]
    # A patient without encounters is one case.
    treated = {case.patient for case in cases if case.patient}
    cases += [_Case(patient, []) for patient in of_kind(everything, "Patient") if patient not in treated]
    by_patient: _CasesByPatient = defaultdict(list)
    for case in cases:
        by_patient[case.patient].append(case)
    named_diagnoses = {_find_condition(entry) for one in by_encounter for entry in one.children("diagnosis")}
    # Notes that a later one, unless it is a mistake, says to replace, whatever their own state is.
    valid = [one for one in everything if one.text("status") != "entered-in-error"]
    relations = [entry for one in valid for entry in one.children("relatesTo")]
    later = [entry for entry in relations if "replaces" in entry.codes("code")]
    replaced = {entry.child(name).resolve() for entry in later for name in ("target", "targetReference")}
    for resource in everything:
        if resource.kind in ("Patient", "Encounter", "Specimen", "Binary"):
            continue
        withdrawn = _is_withdrawn(resource) or resource in replaced
        owners = [] if withdrawn else _find_owners(resource, by_encounter, by_patient)
        for case in owners:
            case.resources.append(resource)
        attrition.count("notes that are superseded or withdrawn", withdrawn)
        # Diagnoses are found through the encounters that name them.
        attrition.count("results and notes of no encounter", not (owners or withdrawn or resource in named_diagnoses))
    return cases


def _cases_by_encounter(encounters: Sequence[Resource], attrition: Attrition) -> dict[Resource, _Case]:
    """Make a case for each of ``encounters`` that took place and is not part of another one. Returns the case of each
    encounter; one that is part of another has the case of the whole. Those left out, and parts, are counted."""
    happened = dict.fromkeys(one for one in encounters if one.text("status") not in _WORDS["never"])
    around = {one: outer for one in happened if (outer := one.child("partOf").resolve()) in happened}
    wholes = {encounter: encounter.last_of(around) or encounter for encounter in happened}
    cases = {whole: _Case(_patient_of(whole), [whole]) for encounter, whole in wholes.items() if encounter is whole}
    for encounter, whole in wholes.items():
        if encounter is not whole:
            cases[whole].encounters.append(encounter)
    attrition.count("encounters that did not take place", len(encounters) - len(happened))
    attrition.count("encounters that are part of another", len(wholes) - len(cases))
    return {encounter: cases[whole] for encounter, whole in wholes.items()}


def _is_lasting(resource: Resource) -> bool:
    """Whether a resource is about the patient, not about one encounter: an allergy, the disease of a relative, an entry
    of the problem list that is not also the diagnosis of an encounter."""
    if resource.kind == "Condition":
        return resource.codes("category") & {"problem-list-item", "encounter-diagnosis"} == {"problem-list-item"}
    return resource.kind in ("AllergyIntolerance", "FamilyMemberHistory")


def _is_withdrawn(resource: Resource) -> bool:
    """Whether a note or an entry of the history is superseded, refuted or was entered in error. Results are judged
    where they are collected."""
    states = {resource.text("status"), resource.text("docStatus"), *resource.codes("verificationStatus")}
    is_result = resource.kind in _RESULT_KINDS and not _is_note(resource)
    return not is_result and not states.isdisjoint(_WORDS["withdrawn"])


def _patient_of(resource: Resource) -> Resource | None:
    """Return the patient of a resource; None where the resource names no patient of the export."""
    return (resource.child("subject") or resource.child("patient")).resolve()


def _find_owners(resource: Resource, by_encounter: dict[Resource, _Case], by_patient: _CasesByPatient) -> list[_Case]:
    """Return the cases to which a resource belongs: that of the encounter that it names. If it names none, it belongs
    to the only case of its patient, or to the case in whose time it falls. A lasting resource that names no known one
    belongs to all encounters of its patient; any other one to no case (an empty list)."""
    patient = _patient_of(resource)
    cases = by_patient[patient] if patient else []
    references = (resource.child("encounter"), *resource.child("context").children("encounter"))
    if (encounter := next((one.resolve() for one in references if one), None)) in by_encounter:
        return [by_encounter[encounter]]
    if _is_lasting(resource) or (len(cases) == 1 and not any(references)):
        return cases
    first, last = time_of(resource), time_of(resource, end=True)
    fitting = [one for one in cases if not any(references) and one.overlaps(first, last)]
    # Of several the last that began: an encounter without an end goes on only until the next one.
    return sorted(fitting, key=lambda one: one.start or _END_OF_TIME)[-1:]


def _make_draft(case: _Case, source: FhirSource, attrition: Attrition) -> Draft:
    """Make the draft of a case: history and physical examination from its notes and coded resources, results, and the
    primary diagnosis.

    Results later than ``source.hours_after_start`` are left out (None: none). ``source.diagnosis_by_onset`` is for
    exports without notes. With it, an encounter that names no diagnosis gets a condition that began in it; one without
    a complaint gets its own type as complaint; and complaints that are the diagnosis are left out."""
    person = _read_person(case)
    results, social = collect_results(_result_resources(case, source, attrition), person, attrition)
    primary, complaints = _diagnosis_and_complaints(case, source.diagnosis_by_onset, attrition)
    history, physical = _read_notes(case, attrition)
    # A diagnosis without words is dropped by its code.
    diagnosis = (primary.display("code") or min(primary.codes("code"), default="")) if primary else ""
    if source.diagnosis_by_onset:
        # Both without the kind that SNOMED CT adds: "Asthma (disorder)".
        others = [one for one in complaints if _PATTERN.kind.sub("", one) != _PATTERN.kind.sub("", diagnosis)]
        attrition.count("reasons of an encounter that are its diagnosis, left out", len(complaints) - len(others))
        types = (kind for encounter in case.encounters for kind in encounter.children("type"))
        complaints = others or list(map(concept_display, types))  # such as "Encounter for symptom"
    # The sections of the summary, from coded resources.
    coded = {
        "Patient Information": patient_information(person.years, person.sex),
        "Chief Complaint": _join_distinct(complaints),
        "Past Medical History": _join_distinct(_earlier_problems(case, primary)),
        "Personal History": "; ".join(social),
        "Family History": _join_distinct(_family_history(case)),
        "Allergy History": _join_distinct(one.display("code") for one in of_kind(case.resources, "AllergyIntolerance")),
    }
    # In the history a note tells more than what is coded, which fills its gaps. In the physical examination (below) a
    # coded result replaces the note's text of the same item.
    history |= {name: text for name, text in coded.items() if says_something(text) and name not in history}
    return Draft(
        # A case without an encounter has the identifier of its patient.
        note_id=next(one.identity for one in (*case.encounters, case.patient) if one),
        subject_key=case.patient.identity if case.patient else "",
        history=history,
        results={key: text for key, text in results.items() if not is_physical(key)},
        physical=physical | {key: text for key, text in results.items() if is_physical(key)},
        diagnosis=diagnosis,
        where=_describe(case),
    )


def _describe(case: _Case) -> str:
    """Describe a case without a word of the patient: the class of its encounter, and the kinds of its resources. A
    warning about a rule that drops many cases quotes it as an example."""
    kinds = Counter(resource.kind for resource in case.resources)
    classes = {one.child("class").text("code") for one in case.encounters}
    return f"encounter of class {'/'.join(sorted(classes)) or 'none'} with {', '.join(sorted(kinds)) or 'nothing'}"


def _join_distinct(texts: Iterable[str]) -> str:
    """Join the texts that say something by semicolons, each once."""
    return "; ".join(filter(says_something, dict.fromkeys(texts)))


def _result_resources(case: _Case, source: FhirSource, attrition: Attrition) -> list[Resource]:
    """Return the observations, reports and procedures of a case, and the observations that its reports and panels list,
    sorted by time; of one time, corrections come first and preliminary results last. Those later than
    ``source.hours_after_start`` are left out and counted; None leaves out none."""
    own = [resource for resource in of_kind(case.resources, *_RESULT_KINDS) if not _is_note(resource)]
    listed = []
    for report in of_kind(own, "DiagnosticReport", "Observation"):
        listed += [one.resolve() for one in (*report.children("result"), *report.children("hasMember"))]
    observations = of_kind(filter(None, listed), "Observation")
    # Each once, by its value: a resource within another one is a new object for each reference to it.
    resources = list({id(resource.value): resource for resource in (*own, *observations)}.values())
    hours = source.hours_after_start
    last = _END_OF_TIME if hours is None or case.start is None else case.start + timedelta(hours=hours)
    early = [resource for resource in resources if not_after(time_of(resource) or last, last)]
    attrition.count("results after the initial workup", len(resources) - len(early))
    # Of two versions of a result the first is used.
    return sorted(early, key=lambda one: (time_of(one) or _END_OF_TIME, FINAL.get(one.text("status"), 1)))


def _find_condition(entry: FhirElement) -> Resource | None:
    """Return the condition to which an ``entry`` of ``Encounter.diagnosis`` refers; None where it refers to anything
    else."""
    condition = entry.child("condition").resolve()
    return condition if condition and condition.kind == "Condition" else None


def _diagnosis_and_complaints(case: _Case, by_onset: bool, attrition: Attrition) -> tuple[Resource | None, list[str]]:
    """Return the condition that is the primary diagnosis of a case (None without one), and its complaints in words:
    reasons of its encounters, and conditions with the role "chief complaint".

    Diagnoses that an encounter names are ordered by role and rank. Where there are none, other conditions are tried
    (:func:`_unnamed_diagnoses`). Of several with the same role and rank, a disorder comes before a finding.
    """
    complaints: list[str] = []
    reasons: list[Resource] = []
    candidates: dict[tuple[float, float], list[Resource]] = defaultdict(list)  # by (order of the role, rank)
    others: list[Resource] = []  # conditions with a role that is no diagnosis, such as a comorbidity
    for encounter in case.encounters:
        complaints += map(concept_display, encounter.children("reasonCode"))
        referred = filter(None, map(FhirElement.resolve, encounter.children("reasonReference")))
        reasons += of_kind(referred, "Condition", "Observation")
        for entry in encounter.children("diagnosis"):
            condition = _find_condition(entry)
            if condition is None:
                attrition.count("references that lead nowhere")
                continue
            roles = entry.codes("use") | entry.codes("role") or {""}  # empty: a diagnosis without a role
            # The smallest order is tried first: discharge diagnoses before those for billing, ...
            order = min(_ROLES[role] for role in roles & _ROLES.keys() or {"other"})
            if "CC" in roles and _WORDS["german"] in str(condition.value.get("code")):  # there CC is the main diagnosis
                order = min(order, _ROLES["other"])
            elif "CC" in roles:  # chief complaint
                complaints.append(condition.display("code"))
            attrition.count("diagnoses of encounters in an unknown role", roles.isdisjoint(_ROLES))
            if order == float("inf"):
                others.append(condition)
            elif _is_confirmed_illness(condition, attrition):
                candidates[order, float(entry.number("rank") or "inf")].append(condition)
    # Of the conditions with the first role and rank, the one that fits best as an illness.
    equals = candidates[min(candidates)] if candidates else _unnamed_diagnoses(case, others, by_onset, attrition)
    primary = min(equals, key=lambda condition: _illness_rank(condition) or 0, default=None)
    is_doubtful = sum(_illness_rank(one) == _illness_rank(primary) for one in equals if primary) > 1
    attrition.count("encounters with several diagnoses of the same rank, of which the first was taken", is_doubtful)
    complaints += [reason.display("code") for reason in reasons if reason is not primary]
    return primary, [one_line(text) for text in complaints]


def _unnamed_diagnoses(case: _Case, named: list[Resource], by_onset: bool, attrition: Attrition) -> list[Resource]:
    """Return the conditions of a case that may be its diagnosis although no encounter names them as one. ``named`` are
    those that an encounter names in another role; they are left out. Returns the first of these lists that is not
    empty:

    - those of the category ``encounter-diagnosis``;
    - those without a category that name their encounter;
    - with ``by_onset``, those that began within the encounter.
    """
    unnamed = (one for one in of_kind(case.resources, "Condition") if one not in named)
    illnesses = [one for one in unnamed if _is_confirmed_illness(one, attrition)]
    of_category = [condition for condition in illnesses if "encounter-diagnosis" in condition.codes("category")]
    of_encounter = [one for one in illnesses if one.child("encounter") and not one.codes("category")]
    onsets = {one: [one.moment("onsetDateTime", end) for end in (False, True)] for one in illnesses if by_onset}
    return of_category or of_encounter or [one for one, (first, last) in onsets.items() if case.overlaps(first, last)]


def _is_confirmed_illness(condition: Resource, attrition: Attrition) -> bool:
    """Whether a condition is an illness that is neither refuted nor provisional. Other conditions are counted."""
    refuted = not condition.codes("verificationStatus").isdisjoint(_WORDS["refuted"])
    no_illness = not refuted and _illness_rank(condition) is None
    attrition.count("conditions that are not confirmed", refuted)
    attrition.count("conditions that are no illness: social findings, reasons for contact", no_illness)
    return not (refuted or no_illness)


def _illness_rank(condition: Resource) -> int | None:
    """Return how well a condition fits as diagnosis: 0 for a disorder or a name without a kind, 1 for a finding, None
    for any other kind and for what is no illness. SNOMED CT writes the kind in brackets at the end of a name: "Asthma
    (disorder)"."""
    text, codes = condition.display("code"), condition.codes("code")
    kind = _PATTERN.kind.search(text)
    unfit = _PATTERN.never_diagnosed.search(text) or any(map(_PATTERN.no_illness.fullmatch, codes))
    return None if unfit else _WORDS["kinds_of_condition"].get(kind[1] if kind else "")


def _earlier_problems(case: _Case, primary: Resource | None) -> Iterator[str]:
    """Yield the names of the conditions on the problem list that were known before the encounter, or since an unknown
    time, without ``primary``."""
    for condition in of_kind(case.resources, "Condition"):
        moment = condition.moment("onsetDateTime") or condition.moment("recordedDate")
        before = moment is None or case.start is None or moment < case.start
        if condition is not primary and "problem-list-item" in condition.codes("category") and before:
            yield condition.display("code")


def _read_person(case: _Case) -> Person:
    """Return sex and age of the patient when the case began. The age is in whole years, or a fraction in the first
    year; None where it is unknown."""
    patient, start = case.patient, case.start
    sex, born = (patient.text("gender"), patient.moment("birthDate")) if patient else ("", None)
    if born is None or start is None or start.date() < born.date():
        return Person(sex, None)
    # One less (True counts as 1) where the birthday of this year is still to come.
    whole_years = start.year - born.year - ((start.month, start.day) < (born.month, born.day))
    # Before the first birthday the fraction stays below one, also in a leap year.
    return Person(sex, whole_years or min((start.date() - born.date()).days / 365.25, 0.999))


def _family_history(case: _Case) -> Iterator[str]:
    """Yield the conditions of relatives, each as ``Mother: asthma``."""
    for relative in of_kind(case.resources, "FamilyMemberHistory"):
        who = relative.display("relationship") or "Relative"
        diseases = (condition.display("code") for condition in relative.children("condition"))
        yield from (f"{who}: {disease}" for disease in diseases if disease)


def _read_notes(case: _Case, attrition: Attrition) -> tuple[dict[str, str], dict[str, str]]:
    """Read the history (texts by section) and the physical examination (texts by key) from the notes of a case. Where
    several notes have the same section, the first is used."""
    history: dict[str, str] = {}
    physical: dict[str, str] = {}
    for text, is_whole_note in _note_texts(case, attrition):
        note = parse_discharge_note(text)
        # What earlier notes say comes before what this one says.
        history, physical = note.history | history, note.physical | physical
        attrition.count(CUT, note.cut)
        attrition.count("notes without a known heading", is_whole_note and not (note.history or note.physical))
    return history, physical


def _note_texts(case: _Case, attrition: Attrition) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is a whole note) of each text of a case that may contain history and physical
    examination, those from structured resources first."""
    for kind, read in (("Composition", _composition_sections), ("QuestionnaireResponse", _list_answers)):
        yield from ((text, False) for resource in of_kind(case.resources, kind) for text in read(resource))
    for resource in of_kind(case.resources, "ClinicalImpression"):
        yield f"History of Present Illness:\n{resource.text('description')}", False
    for resource in of_kind(case.resources, "DocumentReference", "DiagnosticReport"):
        # The attachments of other reports are results.
        attachments = resource.children("presentedForm") if _is_note(resource) else []
        attachments += [one.child("attachment") for one in resource.children("content")]
        yield from ((text, True) for text in attached_texts(attachments, attrition))


def _composition_sections(content: FhirElement) -> Iterator[str]:
    """Yield each section of a FHIR composition, and each section within it, as its title, a colon and its text."""
    for section in content.children("section"):
        own_title, body = section.text("title"), html_text(section.child("text").text("div"))
        known, codes = _WORDS["sections"], section.codes("code")
        title = next((known[code] for code in known if code in codes), one_line(own_title))
        if title and says_something(body):
            # Some texts begin with their own title.
            body = body.removeprefix(own_title).lstrip(": \n").removeprefix(title).lstrip(": \n")
            yield f"{title}:\n{body}"
        yield from _composition_sections(section)


def _list_answers(content: FhirElement) -> Iterator[str]:
    """Yield the answers of a questionnaire, each as the question, a colon and the answer."""
    for item in content.children("item"):
        if answers := [" ".join(one).strip() for one in map(read_value, item.children("answer")) if one]:
            yield f"{one_line(item.text('text')).rstrip(':?')}:\n{'; '.join(answers)}"
        yield from _list_answers(item)


def _is_note(resource: Resource) -> bool:
    """Whether a resource is a clinical note in the form of a report, as the US Core profile of FHIR allows, and not the
    report of an examination."""
    codes = resource.codes("code") | resource.codes("category")
    return resource.kind == "DiagnosticReport" and not codes.isdisjoint(_WORDS["notes"])
