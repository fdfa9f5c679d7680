"""Imports AgentClinic: cases made from MedQA questions, one JSON object a line.

Test results are nested one to three levels deep under free names. A heading ("Blood_Tests", "Imaging") only groups
examinations. A quantity that is alone under a heading is added to the examination that reports it, as in MIMIC-IV:
hemoglobin to the blood count. Examinations get their names in the vocabulary (the list of known ones); a side or a part
of the body that such a name lacks is written before the result.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..cases import PHYSICAL, CaseRecord, class_of, meaning, modality, names_no_place, normalise
from ..settings.datasets import Source
from .attrition import Attrition
from .draft import Draft, Import
from .flat_files import Element, digest_id, flat_text, json_lines
from .names import Workup, clean_name, covers, panel_of, physical_key, term_of, usual_name
from .texts import is_absent, one_line, patterns, phrases

_WORDS = phrases("agentclinic")
_HEADING_WORDS, _SILENT = set(_WORDS["headings"]), _WORDS["silent"]
_PARTS = ("Patient_Actor", "Physical_Examination_Findings", "Test_Results")
# What a Doppler of a limb is where its name has no vessel, unless its results describe arteries alone.
_OPEN_DOPPLER = "Venous Duplex Ultrasound"
_PATTERN = patterns("agentclinic")


def read_agentclinic(source: Source, work: Import) -> Iterator[CaseRecord]:
    """Read a ``.jsonl`` file, or the one such file of a folder. Yields the records of all usable cases.

    A case has no identifier of its own; it gets a digest of its content. Raises IngestError for a file that cannot be
    read.
    """
    yield from work.records(_draft(case, work.attrition) for case in json_lines(work.path))


def _draft(case: Element, attrition: Attrition) -> Draft:
    """Make the draft of one case: history, physical findings, tests and diagnosis. Findings and tests get the canonical
    names of known examinations."""
    osce = case.child("OSCE_Examination", required=True)
    patient, findings, tests = (osce.child(name, required=True).value for name in _PARTS)
    physical, results = Workup(), Workup()
    for name, content in (_drop_absent(findings, attrition.events) or {}).items():
        physical.add(physical_key(readable(name) or "General Appearance"), _plain_text(content))
    # Tests, some of which are physical findings.
    for name, content, heading in _list_tests(_drop_absent(tests, attrition.events)):
        key, label = _key_and_label(readable(name) or readable(heading) or "Other Tests", content, heading)
        text = f"{label}: {_plain_text(content)}" if label else _plain_text(content)
        if key == "Vital Signs" or meaning(key).kind in PHYSICAL:
            physical.add(physical_key(key), text)
        else:
            results.add(key, text)
    return Draft(
        note_id=digest_id("agentclinic", osce.value),
        history=_history(patient),
        physical=physical.results(),
        results=results.results(),
        diagnosis=one_line(osce.text("Correct_Diagnosis")).rstrip("."),
        where=f"line {case.line}",
    )


def _history(patient: Mapping[str, Any]) -> dict[str, str]:
    """Write the sections of the case summary, by name, from the content of ``Patient_Actor``: what a patient can
    tell."""
    patient = _drop_absent(patient, Counter()) or {}
    symptoms = patient.get("Symptoms")
    symptoms = symptoms if isinstance(symptoms, Mapping) else {"Primary_Symptom": symptoms}
    fields = {name: content for name, content in symptoms.items() if name != "Primary_Symptom"}
    present = [patient.get("History"), fields, patient.get("Review_of_Systems")]
    past = [patient.get(n) for n in ("Past_Medical_History", "Medications", "Current_Medications", "Drug_History")]
    return {
        "Patient Information": _plain_text(patient.get("Demographics")),
        "Chief Complaint": _plain_text(symptoms.get("Primary_Symptom")),
        "History of Present Illness": _join_sentences(present),
        "Past Medical History": _join_sentences(past),
        "Personal History": _plain_text(patient.get("Social_History")),
        "Family History": _plain_text(patient.get("Family_History")),
        "Allergy History": _plain_text(patient.get("Allergies") or patient.get("Allergy_History")),
    }


def _join_sentences(parts: Iterable[Any]) -> str:
    """Write the texts of ``parts`` one after another, each ended by a full stop; empty parts are left out."""
    return " ".join(text if text[-1] in ".!?" else f"{text}." for text in map(_plain_text, parts) if text)


def _drop_absent(content: Any, events: Counter[str], label: str = "") -> Any:
    """Return ``content`` without entries that say that there is no result, or that only propose one ("Suggestion:
    MRI"). None where nothing is left. Dropped entries and kept results are counted in ``events``. ``label`` is the name
    of the entry itself."""
    if isinstance(content, Mapping):
        inner = {name: _drop_absent(part, events, normalise(name)) for name, part in content.items()}
        return {name: part for name, part in inner.items() if part is not None} or None
    text = _plain_text(content)
    empty = is_absent(text) or label in _WORDS["proposed"] or _PATTERN.proposed.match(text)
    events["entries without a result" if empty else "results"] += 1
    return None if empty else content


def _list_tests(tests: Mapping[str, Any] | None, heading: str = "") -> Iterator[tuple[str, Any, str]]:
    """List the examinations in nested test results. Yields (name, content, heading) of each; ``heading`` is the name of
    the group above it, or empty.

    ``{"Blood_Tests": {"CBC": {...}}, "X-rays": {"Knee": "..."}}`` gives ("CBC", {...}, "Blood_Tests") and
    ("Knee_X-rays", "...", ""). An examination within another one is listed by itself."""
    for name, content in (tests or {}).items():
        if not isinstance(content, Mapping):  # an examination with its result
            yield name, content, heading
        elif placed := {n: f"{n}_{name}" for n in content if _is_body_part(readable(n), readable(name))}:
            yield from ((placed[n], content[n], heading) for n in placed)
            if rest := {n: part for n, part in content.items() if n not in placed}:
                yield name, rest, heading
        elif _is_heading(name, content):  # a group of examinations
            yield from _list_tests(content, heading=name)
        elif len(content) == 1 and (joint := _joint_name(name, content)):  # a name in two parts
            yield joint, *content.values(), heading
        else:
            # Examinations within one.
            apart = {n: part for n, part in content.items() if isinstance(part, Mapping) and term_of(readable(n))}
            if len(apart) < len(content):
                yield name, {n: part for n, part in content.items() if n not in apart}, ""
            yield from _list_tests(apart)


def _is_heading(name: str, content: Mapping[str, Any]) -> bool:
    """Whether a name only groups the examinations below it: it has only general words ("Blood Tests"), or the names of
    all examinations below repeat it."""
    if all(normalise(inner) in _SILENT for inner in content):
        return False
    plain = normalise(name)
    repeated = all(isinstance(part, Mapping) and plain in normalise(inner) for inner, part in content.items())
    return repeated or _HEADING_WORDS.issuperset(plain.split())


def _joint_name(name: str, content: Mapping[str, Any]) -> str:
    """Join the name of an examination and that of its only entry, where the entry is an examination too: another one
    ("Stool" and "Occult Blood Test"), or the same in other words ("Skin Biopsy" and "Histopathology"). Empty where it
    is none."""
    ((inner, part),) = content.items()
    joint = term_of(readable(f"{name}_{inner}"))
    is_other = joint is not term_of(readable(name)) or (isinstance(part, Mapping) and term_of(readable(inner)))
    return f"{name}_{inner}" if joint is not None and is_other else ""


def _is_body_part(name: str, how: str) -> bool:
    """Whether ``name`` is the part of the body to which the examination ``how`` above it is applied: a knee below
    "X-rays", a lymph node below "Biopsy"."""
    # "Knee X-rays" means an examination of the class of "X-rays".
    terms = meaning(f"{name} {how}").terms if names_no_place(how) and not modality(name) else ()
    return bool(terms) and all(class_of(term) == meaning(how).kind for term in terms)


def _key_and_label(name: str, content: Any, heading: str) -> tuple[str, str]:
    """Return the key of an examination, and a label for its result. The label is the full name where the key does not
    say all of it (a side, a part of the body), else empty. ``heading`` is the name of the group above it, or empty."""
    # A single value in a group belongs to the panel that reports it.
    if heading and not isinstance(content, Mapping):
        if _HEADING_WORDS.issuperset(normalise(name).split()):
            return readable(heading), ""
        panel = panel_of(name)
        if panel is not None:
            return panel, "" if covers(panel, name) else name
    term = term_of(name)
    if term is not None and term.name == _OPEN_DOPPLER and _PATTERN.arteries.search(_plain_text(content)):
        term = term if _PATTERN.veins.search(f"{name} {_plain_text(content)}") else term_of(f"Arterial {name}") or term
    if term is None:  # not in the vocabulary
        key = usual_name(name)
        return key, "" if covers(key, name) else name
    laboratory = isinstance(content, Mapping) and term.kind in ("laboratory", "microbiology")
    return term.name, "" if laboratory or covers(term.name, name) else name


def _plain_text(content: Any) -> str:
    """Write the content of an entry on one line, each value after its name. Names that say nothing ("Findings") are
    left out."""
    return flat_text(content, lambda name: "" if normalise(name) in _SILENT else readable(name))


def readable(name: str) -> str:
    """Return a name with spaces instead of underscores: ``Chest_X-ray`` becomes ``Chest X-ray``."""
    return clean_name(name.replace("_", " "))
