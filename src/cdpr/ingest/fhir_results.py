"""Observations, reports and procedures of FHIR R4 -> results by examination.

Observations that a laboratory report or a panel lists are one examination under its name; any other belongs to the
examination that reports such a quantity, as in MIMIC-IV. Of a repeated quantity the first counts.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from ..cases import Analyte, examinations
from .attrition import Attrition
from .fhir_resources import FhirElement, Resource, concept_text, of_type
from .names import Workup, covers, examination_name, examination_of, physical_key, result_part, term_of
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
    """When the result was true of the patient, or the ``last`` of that day; else when it was reported."""
    period = resource.one("effectivePeriod") or resource.one("performedPeriod")
    names = ("effectiveDateTime", "effectiveInstant", "start", "performedDateTime", "issued")
    moments = ((period if name == "start" else resource).moment(name, last) for name in names)
    return next(filter(None, moments), None)


class Person(NamedTuple):
    """Sex, as FHIR says it, and age in years; None for an unknown age."""

    sex: str
    years: float | None


def find_results(
    resources: Sequence[Resource], person: Person, attrition: Attrition
) -> tuple[dict[str, str], list[str]]:
    """Results by examination, those of the physical one among them, and social history, of the resources of one case in
    the order of their times. What cannot be used is counted."""
    workup = Workup()
    social: list[str] = []
    panel_names, panels = _panels(resources, attrition)
    cultures = {
        _specimen(one): _key(one, _analytes(one, person), panel_names.get(id(one.value), "")) or ""
        for one in of_type(resources, "Observation")
        if _specimen(one) and not _PATTERN.susceptibility.search(one.concept("code"))
    }
    for resource in resources:
        if resource.kind == "Observation" and id(resource.value) not in panels:
            name = panel_names.get(id(resource.value), "")
            if not name and _PATTERN.susceptibility.search(resource.concept("code")):  # part of what was cultured
                name = cultures.get(_specimen(resource), "Antibiotic Susceptibility")
            _add_observation(resource, name, person, workup, social, attrition)
        elif resource.kind == "DiagnosticReport":
            _add_report(resource, workup, attrition)
        elif resource.kind == "Procedure":
            _add_procedure(resource, workup, attrition)
    return workup.results(), social


def _panels(resources: Iterable[Resource], attrition: Attrition) -> tuple[dict[int, str], set[int]]:
    """The name of the report or panel that lists an observation, and the observations that only list others. Of a
    panel within a report the report's name counts, where the vocabulary knows it, else the panel's."""
    listed: dict[int, str] = {}
    panels: set[int] = set()
    for resource in of_type(resources, "Observation", "DiagnosticReport"):
        members = "hasMember" if resource.kind == "Observation" else "result"
        name = _name(resource, "code")
        for reference in resource.many(members):
            member = resource.find(reference.text("reference"))
            if member is None:
                attrition.count("references that lead nowhere")
                continue
            known = listed.setdefault(id(member.value), name)
            if examinations().find(known) is None and examinations().find(name) is not None:
                listed[id(member.value)] = name
            if members == "hasMember" and not value_of(resource):
                panels.add(id(resource.value))
    return listed, panels


def _add_observation(
    resource: Resource, panel: str, person: Person, workup: Workup, social: list[str], attrition: Attrition
) -> None:
    """Add what an observation measured to the workup, or to the social history; count what cannot be used.
    ``panel`` is the name of the report or panel that lists the observation, empty without one."""
    categories = resource.codes("category")
    if not _usable(resource, attrition, "observations"):
        return
    if categories & _NO_EXAMINATION or _PATTERN.death.search(resource.concept("code")):
        attrition.count("observations that are no examination")
        return
    analytes = list(_analytes(resource, person))
    if not analytes:
        if not resource.concept("code") and value_of(resource):
            attrition.count("observations whose code has no name")
        else:
            attrition.count("observations without a result")
    if _SOCIAL in categories:
        social += [f"{one.label}: {one.value}" for one in analytes]
        return
    key = _key(resource, analytes, panel)
    for analyte in analytes:
        if key is None:
            attrition.count("observations without a name")
        elif analyte.value and len(analyte.value) > _LONG and not analyte.units:
            workup.add(key, f"{analyte.label}: {analyte.value}")
        elif not workup.add(key, analyte):
            attrition.count("repeated items")


def _usable(content: FhirElement, attrition: Attrition, what: str) -> bool:
    """Whether a resource is final, as far as it says so; counted."""
    attrition.count(what)
    final = content.text("status") in ("", *FINAL)
    attrition.count(f"{what} that are withdrawn or not there yet", not final)
    return final


def _name(content: FhirElement, name: str) -> str:
    """The words of a concept without method and measure, as the name of an examination."""
    return examination_name(_PATTERN.method.sub("", _PATTERN.measure.sub("", content.concept(name))))


def _specimen(resource: Resource) -> str:
    """The reference of a resource to its specimen; empty without one."""
    return resource.one("specimen").text("reference")


def _fluid(resource: Resource) -> str:
    """What was examined, as the specimen or the name of the observation says; Blood where neither does."""
    specimen = resource.find(_specimen(resource))
    system = _PATTERN.system.search(resource.concept("code"))
    parts = (specimen.concept("type") if specimen else "", system[1] if system else "")
    description = " ".join(filter(None, parts)).casefold()
    if not description:
        return "Blood"
    return next((fluid for words, fluid in _WORDS["fluids"].items() if re.search(words, description)), "")


def _key(resource: Resource, analytes: Iterable[Analyte], panel: str) -> str | None:
    """Key of the one examination that the quantities of an observation belong to; None for one without a name.
    ``panel`` is the name of the report or panel that lists the observation."""
    categories = resource.codes("category")
    if _VITAL in categories:
        return physical_key("Vital Signs")
    own = _PATTERN.system.sub("", _name(resource, "code"))
    if _BODY in categories:
        return physical_key(own) if says_something(own) else None
    if says_something(panel):
        return _usual(panel)
    fluid, labels = _fluid(resource), [one.label for one in analytes]
    if len(labels) > 1 and examinations().find(_usual(own)):
        return _usual(own)
    reported = next(filter(None, (examination_of(name, fluid) for name in (*labels, own))), None)
    if reported is None and fluid not in ("", "Blood"):
        own = f"{own} ({fluid})"
    return reported or (_usual(own) if says_something(own) else None)


def _usual(name: str) -> str:
    """The vocabulary's name of an examination, found by the whole name or by the name without further words at its end
    ("... panel - Blood", "... (hemogram)"); a name that the vocabulary does not know is returned as it is."""
    shorter = [name]
    for pattern in _WORDS["further"]:
        shorter.append(re.sub(pattern, "", shorter[-1]))
    return next((term.name for term in map(term_of, shorter) if term), name)


def _add_text(workup: Workup, name: str, text: str) -> None:
    """Add a text below the key of its examination, with its own name where that says more: a side, a place."""
    key = _usual(name)
    workup.add(key, text if covers(key, name) else f"{name}: {text}")


def _analytes(content: FhirElement, person: Person, within: str = "") -> Iterable[Analyte]:
    """What an observation and its components measured."""
    value_text, flags = value_of(content), content.codes("interpretation")
    words = [_WORDS["values"][flag] for flag in sorted(flags & _WORDS["values"].keys())]
    notes = [*(note.text("text") for note in content.many("note")), content.text("comment")]
    value, unit = value_text if value_text else (words.pop(0) if words else "", "")
    label = result_part(_PATTERN.system.sub("", _name(content, "code"))) or within
    low, high, range_text = _range(content, person)
    if says_something(value) and label:
        remarks = [*words, range_text, *(one_line(note) for note in notes)]
        yield Analyte(
            label=label, value=result_part(value), units=result_part(unit) or None, low=low, high=high,
            flag="abnormal" if flags & _ABNORMAL else None,
            comments=", ".join(filter(None, remarks)) or None,
        )  # fmt: skip
    elif label and any(map(says_something, notes)):
        yield Analyte(label=label, value=result_part(" ".join(notes)))
    for component in content.many("component"):
        yield from _analytes(component, person, label)


def value_of(content: FhirElement) -> tuple[str, str] | None:
    """What ``value[x]`` says, and its unit; None for an observation without a value, or with one that is no text."""
    if content.one("dataAbsentReason"):
        return None
    if quantity := content.one("valueQuantity"):
        number = quantity.number("value")
        unit = quantity.text("unit") or quantity.text("code")
        return (quantity.text("comparator") + number, "" if unit == "1" else unit) if number else None
    if ratio := content.one("valueRatio"):
        parts = [ratio.one(name).number("value") for name in ("numerator", "denominator")]
        return (":".join(parts), "") if all(parts) else None
    if span := content.one("valueRange"):
        parts = [span.one(name).number("value") for name in ("low", "high")]
        return ("-".join(filter(None, parts)), span.one("low").text("unit")) if any(parts) else None
    if (flag := content.value.get("valueBoolean")) is not None:
        if not isinstance(flag, bool):
            raise content.wrong("valueBoolean", f"expected true or false, found {type(flag).__name__}")
        return ("yes" if flag else "no", "")
    coded = concept_text(content.one("valueCodeableConcept")) or content.one("valueCoding").text("display")
    text = coded or content.text("valueString")
    text = text or content.number("valueInteger") or content.text("valueDateTime") or content.text("valueTime")
    return None if is_absent(text) else (text, "")


def _range(content: FhirElement, person: Person) -> tuple[float | None, float | None, str]:
    """Bounds of the reference range of a healthy person of this sex and age, the closest fit, and what it says
    otherwise."""
    fitting = [one for one in content.many("referenceRange") if _is_for(one, person)]
    if not fitting:
        return None, None, ""
    first = max(fitting, key=lambda one: bool(one.many("appliesTo")) + bool(one.one("age")))
    low, high = (first.one(name).number("value") for name in ("low", "high"))
    text = one_line(first.text("text"))
    if low or high:
        text = "" if low and high else f"at least {low}" if low else f"at most {high}"
    remark = f"reference {text}" if says_something(text) else ""
    return float(low) if low else None, float(high) if high else None, remark


def _is_for(span: FhirElement, person: Person) -> bool:
    """Whether a reference range is one of health, and for a person like this; of whom more is not known, it is not."""
    meant = [_said(one) for one in span.many("appliesTo")]
    kind = _said(span.one("type"))
    low, high = (_years(span.one("age").one(name)) for name in ("low", "high"))
    years = math.nan if person.years is None else person.years
    of_age = (low is None and high is None) or (low or 0) <= years <= (math.inf if high is None else high)
    of_sex = all(words & _SEXES.get(person.sex, set()) for words in meant)
    return of_age and of_sex and (not kind or bool(kind & _HEALTHY))


def _said(concept: FhirElement) -> set[str]:
    """Codes and words of a concept."""
    codings = concept.many("coding")
    words = [concept.text("text"), *(one.text(name) for one in codings for name in ("code", "display"))]
    return {word.casefold() for word in words if word}


def _years(age: FhirElement) -> float | None:
    """An age of FHIR in years; None without a number."""
    number = age.number("value")
    return float(number) * _WORDS["years"].get(age.text("code") or age.text("unit") or "a", 1) if number else None


def _add_report(resource: Resource, workup: Workup, attrition: Attrition) -> None:
    """Add the text of a report: what is attached, then the conclusion as its impression."""
    if not _usable(resource, attrition, "reports"):
        return
    name = _PATTERN.system.sub("", _name(resource, "code"))
    plain = report_text if resource.codes("category") & _IMAGING else one_line
    parts = [plain(text) for text in resource.attached(resource.many("presentedForm"), attrition)]
    concluded = one_line(resource.text("conclusion")) or ", ".join(map(concept_text, resource.many("conclusionCode")))
    if says_something(concluded) and not any(concluded in part for part in parts):
        parts.append(f"Impression: {concluded}")
    text = " ".join(filter(says_something, parts))
    if text and says_something(name):
        _add_text(workup, name, text)
    elif not resource.many("result"):
        attrition.count("reports without a name" if text else "reports without a result")


def _add_procedure(resource: Resource, workup: Workup, attrition: Attrition) -> None:
    """Add what a procedure found; most are treatments that found nothing."""
    if not _usable(resource, attrition, "procedures"):
        return
    texts = [resource.concept("outcome"), *(note.text("text") for note in resource.many("note"))]
    text, name = " ".join(filter(says_something, map(one_line, texts))), _name(resource, "code")
    if text and says_something(name):
        _add_text(workup, name, text)
    else:
        attrition.count("procedures without a result")
