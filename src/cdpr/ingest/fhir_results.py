"""Turns observations, reports and procedures of FHIR R4 into results by examination.

Observations that a laboratory report or a panel lists are one examination under its name. Any other observation is
added to the examination that reports its quantity, as in MIMIC-IV. Of a repeated quantity the first value is used.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from ..cases import Analyte, examinations
from .attrition import Attrition
from .fhir_resources import FhirElement, Resource, attached_texts, concept_display, of_kind
from .names import Workup, clean_name, covers, panel_of, physical_key, term_of, without_semicolons
from .notes import report_text
from .texts import LONG_CLAUSE, blank_if_missing, is_absent, one_line, patterns, phrases, says_something

_WORDS, _PATTERN = phrases("fhir"), patterns("fhir")
FINAL = _WORDS["final"]  # values of the element ``status``, each with its order: corrections before what they correct
_SEXES = {sex: set(words) for sex, words in _WORDS["sexes"].items()}  # by FHIR's ``male``, ...: words and codes for it
Texts = dict[str, str]  # by examination
_VITAL, _BODY, _SOCIAL = "vital-signs", "exam", "social-history"  # categories of observations


def time_of(resource: Resource, end: bool = False) -> datetime | None:
    """Return the time for which a result holds, else when a resource was reported or written, or began; None where it
    has none of these. A date without a time is the first moment of its day, or with ``end`` the last one."""
    return next(filter(None, (resource.moment(name, end) for name in _WORDS["times"])), None)


class Person(NamedTuple):
    """Sex (FHIR's ``male``, ``female``, ...) and age in years, None where it is unknown: they choose a reference
    range."""

    sex: str
    years: float | None


@dataclass
class _Collector:
    """Collects the results of one case: ``workup`` has those of examinations, ``social`` the social history. What
    cannot be used is counted in ``attrition``."""

    person: Person
    attrition: Attrition
    workup: Workup = field(default_factory=Workup)
    social: list[str] = field(default_factory=list)

    def add_observation(self, observation: Resource, panel: str) -> None:
        """Add what an observation measured. ``panel`` is the name of the report or panel that lists the observation,
        empty without one."""
        categories, name = observation.codes("category"), observation.display("code")
        # Some systems mark everything on a form as a survey, known examinations too: these are kept.
        is_survey = not categories.isdisjoint(_WORDS["no_examination"]) and term_of(_code_name(observation)) is None
        if is_survey or _PATTERN.death.search(name):
            self.attrition.count("observations that are no examination")
            return
        analytes = list(_read_analytes(observation, self.person))
        if not analytes:
            nameless = not name and read_value(observation)
            self.attrition.count("observations whose code has no name" if nameless else "observations without a result")
        if _SOCIAL in categories:
            self.social += [f"{one.label}: {one.value}" for one in analytes]
            return
        key = _examination_key(observation, analytes, panel)
        for analyte in analytes:
            if key is None:
                self.attrition.count("observations without a name")
            # A longer value without a unit is a report, not a quantity.
            elif analyte.value and len(analyte.value) > LONG_CLAUSE and not analyte.units:
                self.workup.add(key, f"{analyte.label}: {analyte.value}")
            elif not self.workup.add(key, analyte):
                self.attrition.count("repeated items")

    def add_report(self, report: Resource) -> None:
        """Add the text of a report: its attachments, then its conclusion as impression. A report without a text or a
        name is counted, unless it lists observations."""
        name = _PATTERN.system.sub("", _code_name(report))
        is_imaging = not report.codes("category").isdisjoint(_WORDS["imaging"])
        texts = attached_texts(report.children("presentedForm"), self.attrition)
        parts = list(map(report_text if is_imaging else one_line, texts))
        coded = ", ".join(map(concept_display, report.children("conclusionCode")))
        conclusion = one_line(report.text("conclusion")) or coded
        if says_something(conclusion) and not any(conclusion in part for part in parts):
            parts.append(f"Impression: {conclusion}")
        text = " ".join(filter(says_something, parts))
        if text or not report.children("result"):
            self._add_text(name, text, "reports")

    def add_procedure(self, procedure: Resource) -> None:
        """Add what a procedure found. Most procedures are treatments, which found nothing; these are counted."""
        texts = [procedure.display("outcome"), *(note.text("text") for note in procedure.children("note"))]
        text = " ".join(filter(says_something, map(one_line, texts)))
        self._add_text(_code_name(procedure), text, "procedures")

    def _add_text(self, name: str, text: str, what: str) -> None:
        """Add a text to the examination that ``name`` means. The name is written before it where it says more than the
        key of the examination: a side, a part of the body. ``what`` has no text or no name is counted."""
        key = _vocabulary_name(name)
        if text and says_something(name):
            self.workup.add(key, text if covers(key, name) else f"{name}: {text}")
        else:
            self.attrition.count(f"{what} without a {'name' if text else 'result'}")


def collect_results(resources: Sequence[Resource], person: Person, attrition: Attrition) -> tuple[Texts, list[str]]:
    """Collect the results of one case from its ``resources``, which are in the order of their times. Returns the
    results by examination, and the social history as a list of texts. Resources that cannot be used are counted."""
    collector = _Collector(person, attrition)
    panels, mere_lists = _name_panels(resources, attrition)  # mere lists: observations without a result of their own
    # The culture of each specimen (:func:`_specimen_of`). Susceptibilities of the organisms that grew from
    # it are added to this culture. Any observation on the specimen that is no susceptibility is taken for its culture;
    # of several the last. An empty key (no name) leaves a susceptibility an examination of its own.
    cultures: dict[str | int, str] = {}
    for one in of_kind(resources, "Observation"):
        specimen, panel = _specimen_of(one), panels.get(id(one.value), "")
        if specimen and not _PATTERN.susceptibility.search(one.display("code")):
            cultures[specimen] = _examination_key(one, _read_analytes(one, person), panel) or ""
    for resource in resources:
        if id(resource.value) in mere_lists or not _is_final(resource, attrition):
            continue
        if resource.kind == "Observation":
            panel = panels.get(id(resource.value), "")
            if not panel and _PATTERN.susceptibility.search(resource.display("code")):
                panel = cultures.get(_specimen_of(resource), "Antibiotic Susceptibility")
            collector.add_observation(resource, panel)
        elif resource.kind == "DiagnosticReport":
            collector.add_report(resource)
        elif resource.kind == "Procedure":
            collector.add_procedure(resource)
    return collector.workup.results(), collector.social


def _name_panels(resources: Iterable[Resource], attrition: Attrition) -> tuple[dict[int, str], set[int]]:
    """Find the report or panel that lists each observation. Returns the name of this report or panel by observation,
    and the observations that only list others. If several list an observation, the name of the first is used, unless
    only that of another one is a known examination.

    Observations are known by the identity (``id``) of their ``value``: each reference to an observation within another
    resource makes a new object of it, but from the same value.
    """
    panels: dict[int, str] = {}
    mere_lists: set[int] = set()
    for resource in of_kind(resources, "Observation", "DiagnosticReport"):
        name = _code_name(resource)
        for reference in resource.children("hasMember" if resource.kind == "Observation" else "result"):
            member = reference.resolve()
            if member is None:
                attrition.count("references that lead nowhere")
                continue
            earlier_name = panels.setdefault(id(member.value), name)
            if examinations().find(earlier_name) is None and examinations().find(name) is not None:
                panels[id(member.value)] = name
            if resource.kind == "Observation" and not read_value(resource):
                mere_lists.add(id(resource.value))
    return panels, mere_lists


def _is_final(resource: Resource, attrition: Attrition) -> bool:
    """Whether a result is final; one without a status counts as final. All results are counted by their kind, and those
    that are not final once more."""
    what, final = _WORDS["counted"][resource.kind], resource.text("status") in FINAL
    attrition.count(what)
    attrition.count(f"{what} that are withdrawn or not there yet", not final)
    return final


def _code_name(content: FhirElement) -> str:
    """Return the ``code`` of an element in words, as the name of an examination without LOINC's measure and method:
    "Sodium [Moles/volume] in Serum by Automated" becomes "Sodium in Serum"."""
    return clean_name(_PATTERN.method.sub("", _PATTERN.measure.sub("", content.display("code"))))


def _specimen_of(resource: Resource) -> str | int:
    """Return what is the same for all resources of one specimen, however they refer to it: the identity of its content,
    or the reference itself where the export does not have it. Empty without one."""
    specimen = resource.child("specimen").resolve()
    return id(specimen.value) if specimen else resource.child("specimen").text("reference")


def _find_fluid(resource: Resource) -> str:
    """Return the fluid that was examined, as ``panels.csv`` names it: by the type of the specimen and the name of the
    observation ("Glucose in Urine"). ``Blood`` where neither says anything, empty for an unknown fluid."""
    specimen = resource.child("specimen").resolve()
    in_name = _PATTERN.system.search(resource.display("code"))  # " in Urine", whose group 1 is "Urine"
    description = f"{specimen.display('type') if specimen else ''} {in_name[1] if in_name else ''}".casefold()
    if not description.strip():
        return "Blood"
    return next((fluid for words, fluid in _WORDS["fluids"].items() if re.search(words, description)), "")


def _examination_key(resource: Resource, analytes: Iterable[Analyte], panel: str) -> str | None:
    """Return the key of the examination to which the quantities of an observation belong; None for an observation
    without a name. ``panel`` is the name of the report or panel that lists the observation, empty without one."""
    categories, own = resource.codes("category"), _PATTERN.system.sub("", _code_name(resource))
    term = term_of(own)
    is_vital_sign = term is not None and term.name == "Vital Signs" and not panel
    if _VITAL in categories or is_vital_sign:
        return physical_key("Vital Signs")
    # The name of a known examination says more than the category.
    if _BODY in categories and term is None:
        return physical_key(own) if says_something(own) else None
    if says_something(panel):
        return _vocabulary_name(panel)
    # No report lists it: it is an examination of its own, or belongs to the one that reports its quantities.
    fluid, labels = _find_fluid(resource), [analyte.label for analyte in analytes]
    if len(labels) > 1 and examinations().find(_vocabulary_name(own)):
        return _vocabulary_name(own)
    reporting_panel = next(filter(None, (panel_of(name, fluid) for name in (*labels, own))), None)
    if reporting_panel is None and fluid not in ("", "Blood"):
        own = f"{own} ({fluid})"
    return reporting_panel or (_vocabulary_name(own) if says_something(own) else None)


def _vocabulary_name(name: str) -> str:
    """Return the canonical name of a known examination. The name is looked up as it is, and without additions at its
    end ("... panel - Blood", "... (hemogram)"); an unknown name is returned unchanged."""
    shorter = [name]
    for pattern in _WORDS["further"]:
        shorter.append(re.sub(pattern, "", shorter[-1]))
    return next((term.name for term in map(term_of, shorter) if term), name)


def _read_analytes(content: FhirElement, person: Person, parent_label: str = "") -> Iterable[Analyte]:
    """Read what an observation and its components measured, as analytes. A component without a name gets
    ``parent_label``, the label of its observation."""
    flags = {word for concept in content.children("interpretation") for word in _concept_words(concept)}
    # "positive" for POS, once.
    words = list(dict.fromkeys(_WORDS["values"][flag] for flag in sorted(flags & _WORDS["values"].keys())))
    notes = [*(note.text("text") for note in content.children("note")), content.text("comment")]
    measured = read_value(content)
    if measured is None:  # the word of the first flag is the value
        measured, words = ("".join(words[:1]), ""), words[1:]
    value, unit = measured
    label = without_semicolons(_PATTERN.system.sub("", _code_name(content))) or parent_label
    low, high, range_text = _read_reference_range(content, person)
    if says_something(value) and label:
        flag = None if flags.isdisjoint(_WORDS["abnormal"]) else "abnormal"
        comments = ", ".join(filter(None, [*words, range_text, *map(one_line, notes)])) or None
        units = without_semicolons(unit) or None
        yield Analyte(label, without_semicolons(value), units, low, high, flag, comments)
    elif label and any(map(says_something, notes)):  # without a value its notes are the result
        yield Analyte(label=label, value=without_semicolons(" ".join(notes)))
    for component in content.children("component"):
        yield from _read_analytes(component, person, label)


def read_value(content: FhirElement) -> tuple[str, str] | None:
    """Read the ``value[x]`` of an observation or answer as (value, unit): ("<5", "mg/dL"), ("1:80", ""), ("3-5",
    "/HPF"), ("yes", ""), ("Clear", ""). None where there is no value, or where it says that there is none."""
    if content.child("dataAbsentReason"):
        return None
    if quantity := content.child("valueQuantity"):
        number = quantity.number("value")
        unit = blank_if_missing(quantity.text("unit")) or blank_if_missing(quantity.text("code"))
        unit = _PATTERN.no_unit.sub("", unit)
        return (quantity.text("comparator") + number, unit) if number else None
    if ratio := content.child("valueRatio"):
        parts = [ratio.child(name).number("value") for name in ("numerator", "denominator")]
        return (":".join(parts), "") if all(parts) else None
    if span := content.child("valueRange"):
        parts = [span.child(name).number("value") for name in ("low", "high")]
        return ("-".join(filter(None, parts)), span.child("low").text("unit")) if any(parts) else None
    if (flag := content.typed("valueBoolean", bool, "true or false", None)) is not None:
        return ("yes" if flag else "no", "")
    # All other types are text.
    coded = concept_display(content.child("valueCodeableConcept")) or content.child("valueCoding").text("display")
    text = coded or content.text("valueString")
    text = text or content.number("valueInteger") or content.text("valueDateTime") or content.text("valueTime")
    return None if is_absent(text) else (text, "")


def _read_reference_range(content: FhirElement, person: Person) -> tuple[float | None, float | None, str]:
    """Return the reference range of an observation for a healthy person of this sex and age, of several the most
    specific: low and high bound, each None where it is missing, and a remark on what the range says in words."""
    fitting = [one for one in content.children("referenceRange") if _is_range_for(one, person)]
    if not fitting:
        return None, None, ""
    # The most specific range is for a group of people (a sex, pregnancy) and for an age: one point for each.
    narrowest = max(fitting, key=lambda one: bool(one.children("appliesTo")) + bool(one.child("age")))
    low, high = (narrowest.child(name).number("value") for name in ("low", "high"))
    text = one_line(narrowest.text("text"))
    if low or high:  # two bounds say it all
        text = "" if low and high else f"at least {low}" if low else f"at most {high}"
    remark = f"reference {text}" if says_something(text) else ""
    return float(low) if low else None, float(high) if high else None, remark


def _is_range_for(span: FhirElement, person: Person) -> bool:
    """Whether a reference range is one of healthy people of this person's sex and age. A range for one sex or age does
    not hold for a person whose sex or age is unknown."""
    kinds = _concept_words(span.child("type"))
    groups = map(_concept_words, span.children("appliesTo"))  # sexes, pregnancy, ...
    is_of_sex = all(words & _SEXES.get(person.sex, set()) for words in groups)
    low, high = (_age_in_years(span.child("age").child(name)) for name in ("low", "high"))
    years = float("nan") if person.years is None else person.years  # nan meets no bound
    is_of_age = (low is None or years >= low) and (high is None or years <= high)
    return is_of_sex and is_of_age and (not kinds or not kinds.isdisjoint(_WORDS["healthy"]))


def _concept_words(concept: FhirElement) -> set[str]:
    """Return the text, the codes and the displays of a CodeableConcept, in lower case."""
    codings = concept.children("coding")
    words = [concept.text("text"), *(one.text(name) for one in codings for name in ("code", "display"))]
    return {word.casefold() for word in words if word}


def _age_in_years(age: FhirElement) -> float | None:
    """Return an ``Age`` of FHIR in years; None where it has no number."""
    number = age.number("value")
    unit = age.text("code") or age.text("unit") or "a"  # UCUM's code for a year
    return float(number) * _WORDS["years"].get(unit, 1) if number else None
