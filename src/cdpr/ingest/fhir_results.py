"""Turns observations, reports and procedures of FHIR R4 into results by examination.

Observations that a laboratory report or a panel lists are one examination under its name. Any other observation is
added to the examination that reports its quantity, as in MIMIC-IV. Of a repeated quantity the first value is used.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from ..cases import Analyte, examinations
from .attrition import Attrition
from .fhir_resources import FhirElement, Resource, concept_display, of_kind
from .names import Workup, clean_name, covers, panel_of, physical_key, term_of, without_semicolons
from .notes import report_text
from .texts import is_absent, one_line, patterns, phrases, says_something

_WORDS, _PATTERN = phrases("fhir"), patterns("fhir")
FINAL, _NO_EXAMINATION, _ABNORMAL, _IMAGING = (
    frozenset(_WORDS[name]) for name in ("final", "no_examination", "abnormal", "imaging")
)
_SEXES, _HEALTHY = {sex: set(words) for sex, words in _WORDS["sexes"].items()}, frozenset(_WORDS["healthy"])
_VITAL, _BODY, _SOCIAL = "vital-signs", "exam", "social-history"
_LONG = 80  # a value with more characters and no unit is a report, not a quantity


def time_of(resource: Resource, last: bool = False) -> datetime | None:
    """Return the time for which a result holds, else the time when it was reported; None where it has neither. A date
    without a time is the first moment of its day, or with ``last`` the last one."""
    period = resource.child("effectivePeriod") or resource.child("performedPeriod")
    names = ("effectiveDateTime", "effectiveInstant", "start", "performedDateTime", "issued")
    moments = ((period if name == "start" else resource).moment(name, last) for name in names)
    return next(filter(None, moments), None)


class Person(NamedTuple):
    """Sex (FHIR's ``male``, ``female``, ...) and age in years, None where it is unknown: they choose a reference
    range."""

    sex: str
    years: float | None


def collect_results(
    resources: Sequence[Resource], person: Person, attrition: Attrition
) -> tuple[dict[str, str], list[str]]:
    """Collect the results of one case from its ``resources``, which are in the order of their times. Returns the
    results by examination, and the social history as a list of texts. Resources that cannot be used are counted."""
    workup = Workup()
    social: list[str] = []
    panel_names, panels = _name_panels(resources, attrition)
    cultures: dict[str, str] = {}  # names of the tests of a specimen, for its susceptibilities
    for one in of_kind(resources, "Observation"):
        if _specimen_reference(one) and not _PATTERN.susceptibility.search(one.display("code")):
            panel = panel_names.get(id(one.value), "")
            cultures[_specimen_reference(one)] = _examination_key(one, _read_analytes(one, person), panel) or ""
    # Add each resource in the order of their times.
    for resource in resources:
        if resource.kind == "Observation" and id(resource.value) not in panels:
            name = panel_names.get(id(resource.value), "")
            if not name and _PATTERN.susceptibility.search(resource.display("code")):  # part of what was cultured
                name = cultures.get(_specimen_reference(resource), "Antibiotic Susceptibility")
            _add_observation(resource, name, person, workup, social, attrition)
        elif resource.kind == "DiagnosticReport":
            _add_report(resource, workup, attrition)
        elif resource.kind == "Procedure":
            _add_procedure(resource, workup, attrition)
    return workup.results(), social


def _name_panels(resources: Iterable[Resource], attrition: Attrition) -> tuple[dict[int, str], set[int]]:
    """Find the report or panel that lists each observation. Returns the name of the report or panel by the identity
    (``id``) of the observation's value, and the identities of observations that only list others.

    For a panel within a report the report's name is used if it is a known examination, else the panel's."""
    listed: dict[int, str] = {}
    panels: set[int] = set()
    for resource in of_kind(resources, "Observation", "DiagnosticReport"):
        members = "hasMember" if resource.kind == "Observation" else "result"
        name = _concept_name(resource, "code")
        for reference in resource.children(members):
            member = resource.resolve(reference.text("reference"))
            if member is None:
                attrition.count("references that lead nowhere")
                continue
            known = listed.setdefault(id(member.value), name)
            if examinations().find(known) is None and examinations().find(name) is not None:
                listed[id(member.value)] = name
            if members == "hasMember" and not read_value(resource):
                panels.add(id(resource.value))
    return listed, panels


def _add_observation(
    resource: Resource, panel: str, person: Person, workup: Workup, social: list[str], attrition: Attrition
) -> None:
    """Add what an observation measured to the results in ``workup``, or to the social history; count what cannot be
    used. ``panel`` is the name of the report or panel that lists the observation, empty without one."""
    categories = resource.codes("category")
    if not _is_final(resource, attrition, "observations"):
        return
    if categories & _NO_EXAMINATION or _PATTERN.death.search(resource.display("code")):
        attrition.count("observations that are no examination")
        return
    analytes = list(_read_analytes(resource, person))
    if not analytes:
        if not resource.display("code") and read_value(resource):
            attrition.count("observations whose code has no name")
        else:
            attrition.count("observations without a result")
    if _SOCIAL in categories:
        social += [f"{one.label}: {one.value}" for one in analytes]
        return
    key = _examination_key(resource, analytes, panel)
    for analyte in analytes:
        if key is None:
            attrition.count("observations without a name")
        elif analyte.value and len(analyte.value) > _LONG and not analyte.units:
            workup.add(key, f"{analyte.label}: {analyte.value}")
        elif not workup.add(key, analyte):
            attrition.count("repeated items")


def _is_final(content: FhirElement, attrition: Attrition, what: str) -> bool:
    """Whether a resource is final; one without a status counts as final. All resources are counted as ``what``, and
    those that are not final once more."""
    attrition.count(what)
    final = content.text("status") in ("", *FINAL)
    attrition.count(f"{what} that are withdrawn or not there yet", not final)
    return final


def _concept_name(content: FhirElement, name: str) -> str:
    """Return the concept ``name`` of an element as the name of an examination, without LOINC's measure and method:
    "Sodium [Moles/volume] in Serum by Automated" becomes "Sodium in Serum"."""
    return clean_name(_PATTERN.method.sub("", _PATTERN.measure.sub("", content.display(name))))


def _specimen_reference(resource: Resource) -> str:
    """Return the reference of a resource to its specimen, such as ``Specimen/7``; empty without one."""
    return resource.child("specimen").text("reference")


def _fluid(resource: Resource) -> str:
    """Return the fluid that was examined, as ``panels.csv`` names it, by the specimen or the name of the observation.
    ``Blood`` where neither says anything, empty for an unknown fluid."""
    specimen = resource.resolve(_specimen_reference(resource))
    system = _PATTERN.system.search(resource.display("code"))
    parts = (specimen.display("type") if specimen else "", system[1] if system else "")
    description = " ".join(filter(None, parts)).casefold()
    if not description:
        return "Blood"
    return next((fluid for words, fluid in _WORDS["fluids"].items() if re.search(words, description)), "")


def _examination_key(resource: Resource, analytes: Iterable[Analyte], panel: str) -> str | None:
    """Return the key of the examination to which the quantities of an observation belong; None for an observation
    without a name. ``panel`` is the name of the report or panel that lists the observation, empty without one."""
    categories = resource.codes("category")
    if _VITAL in categories:
        return physical_key("Vital Signs")
    own = _PATTERN.system.sub("", _concept_name(resource, "code"))
    if _BODY in categories:
        return physical_key(own) if says_something(own) else None
    if says_something(panel):
        return _vocabulary_name(panel)
    # An observation that no report lists: its own name, or the examination that reports its quantities.
    fluid, labels = _fluid(resource), [one.label for one in analytes]
    if len(labels) > 1 and examinations().find(_vocabulary_name(own)):
        return _vocabulary_name(own)
    reported = next(filter(None, (panel_of(name, fluid) for name in (*labels, own))), None)
    if reported is None and fluid not in ("", "Blood"):
        own = f"{own} ({fluid})"
    return reported or (_vocabulary_name(own) if says_something(own) else None)


def _vocabulary_name(name: str) -> str:
    """Return the canonical name of a known examination. The name is looked up as it is, and without additions at its
    end ("... panel - Blood", "... (hemogram)"); an unknown name is returned unchanged."""
    shorter = [name]
    for pattern in _WORDS["further"]:
        shorter.append(re.sub(pattern, "", shorter[-1]))
    return next((term.name for term in map(term_of, shorter) if term), name)


def _add_text(workup: Workup, name: str, text: str) -> None:
    """Add a text to the examination that ``name`` means. The name is written before it where it says more than the key
    of the examination: a side, a part of the body."""
    key = _vocabulary_name(name)
    workup.add(key, text if covers(key, name) else f"{name}: {text}")


def _read_analytes(content: FhirElement, person: Person, parent_label: str = "") -> Iterable[Analyte]:
    """Read what an observation and its components measured, as analytes. A component without a name gets
    ``parent_label``, the label of its observation."""
    value_text, flags = read_value(content), content.codes("interpretation")
    words = [_WORDS["values"][flag] for flag in sorted(flags & _WORDS["values"].keys())]  # of flags such as "POS"
    notes = [*(note.text("text") for note in content.children("note")), content.text("comment")]
    # Without a value, the words of the first flag are the value.
    value, unit = value_text if value_text else (words.pop(0) if words else "", "")
    label = without_semicolons(_PATTERN.system.sub("", _concept_name(content, "code"))) or parent_label
    low, high, range_text = _reference_range(content, person)
    if says_something(value) and label:
        remarks = [*words, range_text, *(one_line(note) for note in notes)]
        yield Analyte(
            label=label, value=without_semicolons(value), units=without_semicolons(unit) or None, low=low, high=high,
            flag="abnormal" if flags & _ABNORMAL else None,
            comments=", ".join(filter(None, remarks)) or None,
        )  # fmt: skip
    elif label and any(map(says_something, notes)):
        yield Analyte(label=label, value=without_semicolons(" ".join(notes)))
    for component in content.children("component"):
        yield from _read_analytes(component, person, label)


def read_value(content: FhirElement) -> tuple[str, str] | None:
    """Read the ``value[x]`` of an observation or answer as (value, unit). None where there is no value, or where it
    says that there is none."""
    if content.child("dataAbsentReason"):
        return None
    if quantity := content.child("valueQuantity"):
        number = quantity.number("value")
        unit = quantity.text("unit") or quantity.text("code")
        return (quantity.text("comparator") + number, "" if unit == "1" else unit) if number else None
    if ratio := content.child("valueRatio"):
        parts = [ratio.child(name).number("value") for name in ("numerator", "denominator")]
        return (":".join(parts), "") if all(parts) else None
    if span := content.child("valueRange"):
        parts = [span.child(name).number("value") for name in ("low", "high")]
        return ("-".join(filter(None, parts)), span.child("low").text("unit")) if any(parts) else None
    if (flag := content.value.get("valueBoolean")) is not None:
        if not isinstance(flag, bool):
            raise content.error("valueBoolean", f"expected true or false, found {type(flag).__name__}")
        return ("yes" if flag else "no", "")
    # All other types are text.
    coded = concept_display(content.child("valueCodeableConcept")) or content.child("valueCoding").text("display")
    text = coded or content.text("valueString")
    text = text or content.number("valueInteger") or content.text("valueDateTime") or content.text("valueTime")
    return None if is_absent(text) else (text, "")


def _reference_range(content: FhirElement, person: Person) -> tuple[float | None, float | None, str]:
    """Return the reference range of an observation for a healthy person of this sex and age, of several the most
    specific: low and high bound, each None where it is missing, and a remark on what the range says in words."""
    fitting = [one for one in content.children("referenceRange") if _is_range_for(one, person)]
    if not fitting:
        return None, None, ""
    # The most specific range.
    first = max(fitting, key=lambda one: bool(one.children("appliesTo")) + bool(one.child("age")))
    low, high = (first.child(name).number("value") for name in ("low", "high"))
    text = one_line(first.text("text"))
    if low or high:
        text = "" if low and high else f"at least {low}" if low else f"at most {high}"
    remark = f"reference {text}" if says_something(text) else ""
    return float(low) if low else None, float(high) if high else None, remark


def _is_range_for(span: FhirElement, person: Person) -> bool:
    """Whether a reference range is one of healthy people of this person's sex and age. A range for one sex or age does
    not hold for a person whose sex or age is unknown."""
    meant = [_concept_words(one) for one in span.children("appliesTo")]  # sexes, pregnancy, ...
    kind = _concept_words(span.child("type"))
    low, high = (_age_in_years(span.child("age").child(name)) for name in ("low", "high"))
    years = math.nan if person.years is None else person.years
    of_age = (low is None and high is None) or (low or 0) <= years <= (math.inf if high is None else high)
    of_sex = all(words & _SEXES.get(person.sex, set()) for words in meant)
    return of_age and of_sex and (not kind or bool(kind & _HEALTHY))


def _concept_words(concept: FhirElement) -> set[str]:
    """Return the text, the codes and the displays of a CodeableConcept, in lower case."""
    codings = concept.children("coding")
    words = [concept.text("text"), *(one.text(name) for one in codings for name in ("code", "display"))]
    return {word.casefold() for word in words if word}


def _age_in_years(age: FhirElement) -> float | None:
    """Return an ``Age`` of FHIR in years; None where it has no number."""
    number = age.number("value")
    return float(number) * _WORDS["years"].get(age.text("code") or age.text("unit") or "a", 1) if number else None


def _add_report(resource: Resource, workup: Workup, attrition: Attrition) -> None:
    """Add the text of a report to the results: its attachments, then its conclusion as impression. A report without a
    text or a name is counted."""
    if not _is_final(resource, attrition, "reports"):
        return
    name = _PATTERN.system.sub("", _concept_name(resource, "code"))
    plain = report_text if resource.codes("category") & _IMAGING else one_line
    parts = [plain(text) for text in resource.attached_texts(resource.children("presentedForm"), attrition)]
    coded = ", ".join(map(concept_display, resource.children("conclusionCode")))
    concluded = one_line(resource.text("conclusion")) or coded  # in words, else by codes
    if says_something(concluded) and not any(concluded in part for part in parts):
        parts.append(f"Impression: {concluded}")
    text = " ".join(filter(says_something, parts))
    if text and says_something(name):
        _add_text(workup, name, text)
    elif not resource.children("result"):
        attrition.count("reports without a name" if text else "reports without a result")


def _add_procedure(resource: Resource, workup: Workup, attrition: Attrition) -> None:
    """Add what a procedure found to the results. Most procedures are treatments, which found nothing; these are
    counted."""
    if not _is_final(resource, attrition, "procedures"):
        return
    texts = [resource.display("outcome"), *(note.text("text") for note in resource.children("note"))]
    text, name = " ".join(filter(says_something, map(one_line, texts))), _concept_name(resource, "code")
    if text and says_something(name):
        _add_text(workup, name, text)
    else:
        attrition.count("procedures without a result")
